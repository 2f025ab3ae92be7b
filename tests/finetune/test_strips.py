"""Tests rows that share strips: they are read, and learned from, as if each had a strip of its own."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from robustness.conftest import Models
from small_char2subword import spelled
from small_characterbert import characterbert
from small_xrayemb import xrayemb
from tiny_models import release

from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.core.flops import lengths_of as real_lengths
from charlm.core.flops import text_lengths
from charlm.families.labels import LSTMS
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.families.units import Joined
from charlm.finetune.batching import Packer
from charlm.finetune.data import read
from charlm.finetune.epochs import EpochBatches
from charlm.finetune.learning import TaskLearning
from charlm.finetune.model import first_params, with_task
from charlm.finetune.predictor import FineTuned
from charlm.finetune.sharing import may_share
from charlm.finetune.strips import (
    epoch_groups,
    lengths_of,
    shared_groups,
    shared_lengths,
    strip_counts,
)
from charlm.tasks.base import Row
from charlm.tasks.create import task_of


def rows(lengths):
    return [Row(Joined(None, length, 1, 1, 0), n, {"weight": np.float32(1)}) for n, length in enumerate(lengths)]


def drawn(count, most=60):
    return rows(np.random.default_rng(count).integers(3, most, count).tolist())


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("count", [1, 7, 64, 301])
def test_an_epoch_has_every_row_once_in_strips_with_room_for_them(count, pieces):
    made = drawn(count)
    lengths = lengths_of(made, 64, 32)
    assert (lengths[0], lengths[-1]) == (32, 64)
    for epoch in range(2):
        groups = epoch_groups(made, lengths, 8, 1, epoch, pieces, shares=True)
        assert Counter(i for group in groups for i in group.rows) == Counter(range(count))
        assert len(groups) == -(-count // 8)
        for group in groups:
            assert all(sum(made[i].joined.length for i in strip) <= group.length for strip in group.strips)
            of_pieces = [[i for strip in group.strips[p::pieces] for i in strip] for p in range(pieces)]
            sizes = [len(part) for part in of_pieces]
            assert max(sizes) - min(sizes) <= 1
            assert max(sizes) <= 8 // pieces
    assert groups == epoch_groups(made, lengths, 8, 1, 1, pieces, shares=True)


class Seen:
    """A packer that gives back the rows of a batch."""

    def __init__(self):
        self.measured = []

    def measure(self, rows, groups):
        self.measured.append(len(groups))

    def pack(self, rows, group):
        return sorted(group.rows)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("pieces", [2, 8])
def test_a_run_that_goes_on_with_other_devices_has_each_row_once(pieces, shares):
    made = drawn(600, 300)

    def batches(pieces, shares):
        lengths = shared_lengths(made, 512, 16, pieces, 0) if shares else lengths_of(made, 512)
        of = lambda epoch, lengths: (made, epoch_groups(made, lengths, 16, 0, epoch, pieces, shares=shares))
        return EpochBatches(of, Seen(), lengths, 0), lengths

    (begun, first), (later, second) = batches(1, True), batches(pieces, shares)
    if not shares:
        assert first != second
    seen = [next(begun) for _ in range(20)]
    later.set_state(json.loads(json.dumps(begun.get_state())))
    assert len(later._packer.measured) == 1 + (first != second)
    seen += [next(later) for _ in range(18)]
    assert later.epoch_ended
    assert Counter(i for batch in seen for i in batch) == Counter(range(600))
    assert [next(later) for _ in range(3)] == [next(begun) for _ in range(21)][18:]


def test_strips_hold_less_padding_than_rows_alone():
    made = drawn(400, 40)
    real = sum(row.joined.length for row in made)
    shared = epoch_groups(made, shared_lengths(made, 512, 32, 1, 0), 32, 0, 0, shares=True)
    alone = epoch_groups(made, lengths_of(made, 512), 32, 0, 0)
    counts = strip_counts(shared, 1)
    padded = sum(min(n for n in counts[g.length] if n >= len(g.strips)) * g.length for g in shared)
    assert padded < 1.15 * real
    assert sum(group.size * group.length for group in alone) > 1.3 * real
    assert sum(map(len, counts.values())) <= 4  # hardly more shapes


def test_long_rows_have_lanes_of_their_own_length():
    made = rows([12] * 60 + [300] * 8)
    lengths = shared_lengths(made, 512, 8, 1, 0)
    assert lengths[-2:] == (304, 512)
    assert lengths[0] <= 192
    groups = epoch_groups(made, lengths, 8, 0, 0, shares=True)
    assert {group.length for group in groups if any(made[i].joined.length == 300 for i in group.rows)} == {304}


def test_no_strip_is_longer_than_the_model_reads():
    assert shared_lengths(drawn(50, 20), 20, 8, 1, 0) == (20,)
    assert {group.length for group in shared_groups(drawn(50, 20), (16, 20), lambda length: 8)} <= {16, 20}


@pytest.mark.parametrize("pieces", [1, 4])
def test_predictions_have_every_row_once_in_full_strips(pieces):
    made = drawn(300)
    groups = shared_groups(made, (16, 32, 64, 128), lambda length: 8, pieces)
    assert Counter(i for group in groups for i in group.rows) == Counter(range(300))
    assert all(group.size % pieces == 0 for group in groups)
    positions = sum(len(group.strips) * group.length for group in groups)
    assert positions < 1.05 * sum(row.joined.length for row in made)


def stored(model):
    """Returns a model of a test as one that was read from a checkpoint."""
    return replace(model, metadata={**model.metadata, "model": config_to_dict(model.config)})


SOURCES = {  # with room for several texts in a row
    "hlm": lambda workdir: from_pretrained(workdir),
    "bert": lambda _: from_pretrained(release("bert", max_positions=96)),
    "roberta": lambda _: from_pretrained(release("roberta", max_positions=98)),
    "roformer": lambda _: from_pretrained(release("roformer", max_positions=96)),
    "gpt2": lambda _: from_pretrained(release("gpt2", max_positions=96)),
    "characterbert": lambda _: from_pretrained(characterbert()),
    "char2subword": lambda _: from_pretrained(spelled("bert")),
    "char2subword, gated": lambda _: from_pretrained(spelled("bert", mode="gated")),
    "xrayemb on roberta": lambda _: stored(xrayemb("roberta")),
    "xrayemb on gpt2": lambda _: stored(xrayemb("gpt2")),
}
CASES = [
    *(("tagging", family) for family in SOURCES),
    *(("classification", family) for family in ("hlm", "bert", "roberta", "roformer", "gpt2", "characterbert")),
    *(("classification", f"{family}, mean") for family in ("hlm", "bert", "gpt2")),
    *(("question_answering", family) for family in ("bert", "gpt2")),
    ("regression", "hlm"),
    ("ranking", "bert"),
]


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory, trained):
    """Returns a function that returns a tiny model with a random head for a task, and examples of it."""
    models = Models(tmp_path_factory.mktemp("models"), trained.workdir)

    @functools.cache
    def made(task, family):
        config = models.config(task, "bert")
        name, _, head = family.rpartition(", ") if family.endswith("mean") else (family, "", "")
        source, kind = SOURCES[name](trained.workdir), task_of(config)
        read(config, kind)
        model, target = with_task(source, kind, head)
        params = first_params(source, model, target, seed=3)
        metadata = model.metadata | {"task": kind.settings(), "fine_tuning": {}}
        found = FineTuned(replace(model, params=params, metadata=metadata), batch_size=8)
        if name == "hlm":
            found.evaluator.units.longest = 48  # relative positions have no end
        return found, found.task.read([models.data(task)], training=False)

    return made


@pytest.mark.parametrize(("task", "family"), CASES)
def test_rows_in_a_strip_are_predicted_as_alone(fine_tuned, task, family):
    model, examples = fine_tuned(task, family)
    evaluator = model.evaluator
    prepared = evaluator.prepare(examples)
    assert max(len(strip) for group in prepared.groups for strip in group.strips) > 1
    together = evaluator.logits(model.params, prepared)
    alone = [evaluator.logits(model.params, evaluator.prepare([one])) for one in examples[:3]]
    for found, expected in zip(together, [row for some in alone for row in some], strict=False):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize(("task", "family"), CASES)
def test_rows_in_a_strip_teach_what_they_teach_alone(fine_tuned, task, family):
    model, examples = fine_tuned(task, family)
    units = model.evaluator.units
    made = model.task.rows(examples, units, training=True)
    learning, found = TaskLearning(model.task, model.pretrained, units), []
    for shares in (False, True):
        longest = units.longest
        lengths = lengths_of(made, longest, longest if shares else 0)
        by_row = model.pretrained.head == SEQUENCE_CLASSIFICATION
        packer = Packer(units, 16, shards=2, shares=shares, by_row=by_row)
        groups = epoch_groups(made, lengths, 16, 0, 0, 2, shares=shares)
        packer.measure(made, groups)

        @jax.jit
        def step(params, batch):
            def loss(params):
                sums = learning.loss_sums(params, jax.tree.map(lambda x: x[0], batch), None)
                return sums.loss, sums

            return jax.grad(loss, has_aux=True)(params)

        packed = [packer.pack(made, group) for group in groups]
        steps = [step(model.params, one.batch) for one in packed]
        found.append(jax.tree.map(lambda *parts: np.sum(parts, axis=0), *steps))
        assert sum(one.rows for one in packed) == len(made)
        assert shares == any(len(strip) > 1 for group in groups for strip in group.strips)
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(one).max())))


def test_useful_operations_are_those_of_the_rows_alone():
    numbers = np.array([[[1, 1, 1, 2, 0], [1, 2, 2, 3, 3]]], np.int32)
    alone = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0]], bool)
    assert text_lengths(numbers) == real_lengths(alone) == text_lengths(alone)
    assert text_lengths(np.zeros((2, 3), np.int32)) == real_lengths(np.zeros((2, 3), bool))


def test_who_may_share():
    mesh = lambda platform: SimpleNamespace(devices=np.array([SimpleNamespace(platform=platform)], object))
    model = lambda head="linear": SimpleNamespace(metadata={"label_head": head}, title="BERT")
    able, unable = SimpleNamespace(shares_rows=True), SimpleNamespace(shares_rows=False)
    assert may_share("auto", model(), able, mesh("cpu"))
    assert not may_share("auto", model(), able, mesh("gpu"))
    assert may_share("yes", model(), able, mesh("tpu"))
    assert not may_share("no", model(), able, mesh("cpu"))
    for cannot, units in ((model(), unable), *((model(head), able) for head in LSTMS)):
        assert not may_share("auto", cannot, units, mesh("cpu"))
        with pytest.raises(ValueError, match=r"data.share_rows=yes: a model of the kind BERT with this head reads one"):
            may_share("yes", cannot, units, mesh("cpu"))
