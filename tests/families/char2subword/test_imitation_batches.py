"""Tests batches of spellings: fixed shapes, every entry equally often, some typos, a number as the position."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from charlm.families.char2subword.batches import (
    EvaluationBatches,
    Imitated,
    MadeLater,
    TrainingBatches,
    choose_unseen,
    measure_shape,
)
from charlm.families.char2subword.spelling_noise import OneTypo
from charlm.families.char2subword.spelling_vocab import Entries, characters_of
from charlm.text.chars import UNK
from charlm.text.noise import Noise, Noiser
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.subwords.pieces import Surface

RNG = np.random.default_rng(0)
WORDS = ["".join(RNG.choice(list("abcdefgh"), length)) for length in RNG.integers(1, 12, 300)]
ENTRIES = Entries(np.arange(300, dtype=np.int32) + 5, tuple(Surface(word, i % 3 > 0) for i, word in enumerate(WORDS)))


def imitated(noise: float = 0.0, unseen: float = 0.0) -> Imitated:
    typos = OneTypo(Noiser(Noise("char2subword", noise, 5), seed=0)) if noise else None
    near = np.arange(600, dtype=np.int32).reshape(300, 2)
    chars = characters_of(ENTRIES, keyboard_for("auto"))
    return Imitated(ENTRIES, chars, typos, 20, near, choose_unseen(ENTRIES, unseen, seed=1))


def spelled(vocab, row):
    return vocab.decode(row)


def read(batches, count):
    iterator = iter(batches)
    return [next(iterator) for _ in range(count)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_entry_is_met_equally_often_and_no_row_is_padding(shuffle):
    data = imitated()
    shape = measure_shape(data, 30, shards=2)
    assert sum(shape.rows) == 30
    batches = TrainingBatches(data, shape, (0, 1), accumulation=2, seed=0, shuffle=shuffle)
    counts: Counter[int] = Counter()
    for batch in read(batches, 25):  # 3000 spellings: every entry ten times
        for chars, ids, near in zip(batch.chars, batch.ids, batch.near, strict=True):
            assert chars.shape[:2] == (2, 2)
            assert (ids >= 5).all()
            counts.update(ids.reshape(-1).tolist())
            for row, index, pair in zip(chars.reshape(-1, chars.shape[-1]), ids.reshape(-1), near.reshape(-1, 2),
                                        strict=True):  # fmt: skip
                surface = ENTRIES.surfaces[index - 5]
                assert spelled(data.vocab, row) == ("##" if surface.starts_word else "") + surface.chars
                assert pair.tolist() == [2 * (index - 5), 2 * (index - 5) + 1]
    assert set(counts) == set(range(5, 305))
    assert min(counts.values()) >= 8
    assert max(counts.values()) <= 13


def test_a_bucket_is_read_whole_before_anything_comes_again():
    data = imitated()
    shape = measure_shape(data, 30, shards=1)
    batches = read(TrainingBatches(data, shape, (0,), accumulation=1, seed=0), 40)
    for bucket in range(len(shape.slots)):
        ids = np.concatenate([batch.ids[bucket].reshape(-1) for batch in batches])
        size = len(set(ids.tolist()))
        epochs = [ids[at : at + size] for at in range(0, len(ids) - size + 1, size)]
        assert all(len(set(epoch.tolist())) == size for epoch in epochs)
        assert not np.array_equal(epochs[0], epochs[1])


def test_a_half_of_the_long_ones_has_a_typo_and_the_mark_never():
    data = imitated(noise=0.5)
    shape = measure_shape(data, 60, shards=1)
    noised: Counter[bool] = Counter()
    for batch in read(TrainingBatches(data, shape, (0,), accumulation=1, seed=0), 40):
        for chars, ids in zip(batch.chars, batch.ids, strict=True):
            assert not (chars == UNK).any()  # every typo can be spelled
            for row, index in zip(chars.reshape(-1, chars.shape[-1]), ids.reshape(-1), strict=True):
                surface = ENTRIES.surfaces[index - 5]
                text = spelled(data.vocab, row)
                assert text.startswith("##") == surface.starts_word
                is_typo = text.removeprefix("##") != surface.chars
                if len(surface.chars) < 5:
                    assert not is_typo
                else:
                    noised[is_typo] += 1
    share = noised[True] / noised.total()
    assert abs(share - 0.5) < 4 * (0.25 / noised.total()) ** 0.5 + 0.03  # a swap of equal letters changes none


def test_unseen_entries_are_evaluated_and_never_trained_on():
    data = imitated(noise=0.5, unseen=0.2)
    shape = measure_shape(data, 30, shards=2)
    unseen = {5 + i for i in np.flatnonzero(data.unseen_N).tolist()}
    assert len(unseen) == 60
    trained = {int(i) for batch in read(TrainingBatches(data, shape, (0, 1), accumulation=1, seed=0), 60)
               for ids in batch.ids for i in ids.reshape(-1)}  # fmt: skip
    assert trained == set(range(5, 305)) - unseen
    met: Counter[int] = Counter()
    for batch in EvaluationBatches(data, shape, (0, 1), most=0):
        for chars, ids, is_unseen in zip(batch.chars, batch.ids, batch.unseen, strict=True):
            real = ids >= 0
            met.update(ids[real].tolist())
            assert is_unseen[real].tolist() == [index in unseen for index in ids[real].tolist()]
            assert not chars[~real].any()
    assert met == Counter(range(5, 305))  # each once
    for most, of_unseen in ((80, 20), (5, 1), (2, 1), (1, 0)):
        sample = [int(i) for batch in EvaluationBatches(data, shape, (0, 1), most) for ids in batch.ids
                  for i in ids.reshape(-1) if i >= 0]  # fmt: skip
        assert len(sample) == most
        assert len(unseen & set(sample)) == of_unseen


def test_lanes_of_one_process_are_those_of_another():
    data = imitated(noise=0.5)
    shape = measure_shape(data, 20, shards=3)
    options = {"accumulation": 2, "seed": 3}
    together = read(TrainingBatches(data, shape, (0, 1, 2), **options), 3)
    alone = read(TrainingBatches(data, shape, (2,), **options), 3)
    for whole, part in zip(together, alone, strict=True):
        for column, own in zip(whole, part, strict=True):
            for array, of_lane in zip(column, own, strict=True):
                np.testing.assert_array_equal(array[:, 2:], of_lane)


def test_goes_on_where_it_was():
    data = imitated(noise=0.5)
    shape = measure_shape(data, 20, shards=1)
    made = []
    batches = MadeLater(lambda: made.append(1) or TrainingBatches(data, shape, (0,), accumulation=1, seed=0))
    assert not made  # before they are read
    expected = read(batches, 30)[20:]
    iterator = iter(batches)
    for _ in range(20):
        next(iterator)
    state = iterator.get_state()
    again = iter(batches)
    again.set_state(state)
    for want in expected:
        got = next(again)
        assert all(np.array_equal(a, b) for x, y in zip(got, want, strict=True) for a, b in zip(x, y, strict=True))
    with pytest.raises(ValueError, match=r"data\.table_shards=2, not 1"):
        again.set_state(state | {"of": 2})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": (4, 9)}, r"data\.bucket_slots=\(4, 9\) must ascend, and end at 13 or more"),
        ({"slots": (13, 4)}, r"must ascend"),
        ({"slots": (6, 13), "rows": (3,)}, r"data\.bucket_rows=\(3,\) must name a positive number for each of 2"),
        (
            {"slots": (6, 13), "rows": (9, 10)},
            r"data\.bucket_rows=\(9, 10\) are 19 spellings, but data\.batch_size / .* 20$",
        ),
        (
            {"slots": tuple(range(1, 22))},
            r"data\.bucket_slots=.* are more than the 20 spellings of a part of the batch$",
        ),
    ],
)
def test_what_does_not_hold_the_entries_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        measure_shape(imitated(), 20, 1, **given)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 20, 64])
def test_a_part_of_a_batch_is_never_larger_than_it_should_be(size):
    """However few spellings it has: a run that goes on takes the rows over, and they are compared with the batch."""
    for noise in (0.0, 0.5):
        data = imitated(noise)
        for slots in ((), (2, 3, 14)[-size:]):  # hardly an entry is so short, and its bucket has a row
            shape = measure_shape(data, size, 1, slots)
            assert sum(shape.rows) == size
            assert min(shape.rows) >= 1
            assert measure_shape(data, size, 1, shape.slots, shape.rows) == shape


def test_what_is_too_long_is_cut():
    data = dataclasses.replace(imitated(), slots=7)
    shape = measure_shape(data, 20, shards=1)
    assert shape.slots[-1] == 7
    longest = [row for batch in EvaluationBatches(data, shape, (0,), most=0) for chars in batch.chars
               for row in chars.reshape(-1, chars.shape[-1])]  # fmt: skip
    assert max(np.count_nonzero(row) for row in longest) == 7
