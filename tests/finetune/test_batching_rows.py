"""Tests the batches of fine-tuning: every row once, the same for the same seed, in a few shapes."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest
from finetune.tiny_tasks import source

from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.units import Joined
from charlm.finetune.batching import Packer
from charlm.finetune.strips import epoch_groups, eval_groups, lengths_of
from charlm.tasks.base import Row


def rows(lengths):
    return [Row(Joined(None, length, 1, 1, 0), n, {"weight": np.float32(1)}) for n, length in enumerate(lengths)]


@pytest.mark.parametrize("count", [1, 7, 64, 301])
def test_an_epoch_has_every_row_once_and_no_more_batches_than_needed(count):
    made = rows(np.random.default_rng(count).integers(3, 60, count).tolist())
    lengths = lengths_of(made, 64)
    assert lengths[-1] == 64
    for epoch in range(3):
        groups = epoch_groups(made, lengths, 8, seed=1, epoch=epoch)
        assert Counter(i for group in groups for i in group.rows) == Counter(range(count))
        assert len(groups) == -(-count // 8)
        for group in groups:
            assert group.length in lengths
            assert all(made[i].joined.length <= group.length for i in group.rows)
    assert Counter(i for group in eval_groups(made, lengths, 8) for i in group.rows) == Counter(range(count))


def test_epochs_differ_and_seeds_differ_and_the_same_is_the_same():
    made = rows(np.random.default_rng(0).integers(3, 60, 100).tolist())
    lengths = lengths_of(made, 64)
    make = lambda seed, epoch: epoch_groups(made, lengths, 8, seed, epoch)
    assert make(0, 0) == make(0, 0)
    assert make(0, 0) != make(0, 1)
    assert make(0, 0) != make(1, 0)


def test_like_lengths_share_batches():
    made = rows([4] * 80 + [60] * 80)
    groups = epoch_groups(made, (8, 64), 8, 0, 0)
    assert sum(group.length == 8 for group in groups) == 10
    mixed = [group.length for group in groups]
    assert mixed != sorted(mixed)  # short and long batches alternate


def test_lengths_are_multiples_but_never_beyond_the_longest():
    assert lengths_of(rows([3, 9, 17, 39]), 40) == (24, 40)
    assert lengths_of(rows([3]), 40) == (8, 40)
    assert lengths_of([], 40) == (40,)


@pytest.fixture(scope="module")
def hlm_units(trained):
    return units_of(from_pretrained(source("hlm", trained.workdir)))


def test_what_does_not_fit_the_measured_shape_takes_the_widest(hlm_units):
    texts = ["the the the the", "cat dog town mat house tree near old", "a on in to we"]
    made = [Row(hlm_units.join(e), n, {"weight": np.float32(1)}) for n, e in enumerate(hlm_units.encode(texts * 8))]
    packer = Packer(hlm_units, 16)
    groups = eval_groups(made, (16,), 16)
    packer.measure(made[:1], eval_groups(made[:1], (16,), 16))
    few = packer.inputs(made[:1], eval_groups(made[:1], (16,), 16)[0])
    many = [packer.inputs(made, group) for group in groups]
    assert sum(x.shape[2] for x in many[-1].chars) > sum(x.shape[2] for x in few.chars)
    for group, inputs in zip(groups, many, strict=True):
        assert inputs.mask_SBW.sum() == sum(made[i].joined.length for i in group.rows)


def test_a_batch_is_cut_into_micro_batches_and_shards(hlm_units):
    made = [Row(hlm_units.join(e), n, {"n": np.int32(n + 1)}) for n, e in enumerate(hlm_units.encode(["cat"] * 7))]
    packer = Packer(hlm_units, 8, accumulation=2, shards=2)
    (group,) = eval_groups(made, (16,), 8)
    batch, rows = packer.pack(made, group)
    assert batch.targets["n"].shape == (2, 2, 2)
    assert rows == 7
    for shard in range(2):  # as each of two processes packs it
        own, own_rows = Packer(hlm_units, 8, accumulation=2, shards=2, local=(shard,)).pack(made, group)
        assert own_rows == (4, 3)[shard]
        part = jax.tree.map(lambda x, shard=shard: x[:, shard : shard + 1], batch)
        jax.tree.map(np.testing.assert_array_equal, own, part)
    numbers = np.zeros(8, int)
    for row, strip, start in packer.places(made, group):
        numbers[strip], at = row + 1, start
        assert at == 0
    assert numbers.tolist() == batch.targets["n"].reshape(-1).tolist()
    with pytest.raises(ValueError, match=r"data.batch_size=6 must be a multiple of data.accumulation=2 x the 2 dev"):
        Packer(hlm_units, 6, accumulation=2, shards=2)
