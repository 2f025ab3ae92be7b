"""Tests the words of XRayEmb's cycles: in which steps, how often, and in which tables by length."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_xrayemb_run import CHARS, SLOTS

from charlm.families.xrayemb.chars import word_rows
from charlm.families.xrayemb.cycle_words import CycleWords, cycle_tables, measure_cycle


def cycle_of(**changes):
    words = ["cat", "dog", "house", "the"]
    fields = {"rows_NC": word_rows(words, CHARS, SLOTS), "counts_N": np.array([8, 4, 2, 1]), "size": 3, "every": 2}
    return CycleWords(**{**fields, "micro_batches": 1, "seed": 0, **changes})


def row_text(row):
    return CHARS.decode(row)


# ---- Which words ----


def test_they_come_in_their_steps():
    words = words_of([3] * 40)
    cycle = cycle_of(rows_NC=words, counts_N=np.ones(40), size=10, every=3, micro_batches=2)
    found = [cycle.of(1, 4, shard) for shard in range(12)]
    assert [bool(words.any()) for words in found] == [False] * 4 + [True] * 2 + [False] * 4 + [True] * 2
    drawn = [x for x in found if x.any()]
    assert all(x.shape == (10, SLOTS) for x in found)
    assert {row.tobytes() for x in drawn for row in x} <= {row.tobytes() for row in words}
    assert (drawn[0] != drawn[1]).any()
    assert (cycle.of(2, 4, 4) != found[4]).any()
    assert (dataclasses.replace(cycle, seed=1).of(1, 4, 4) != found[4]).any()


def test_steps_of_their_own_stand_between_those_of_text():
    cycle = cycle_of(every=2, micro_batches=2, apart=True)
    assert [cycle.alone(shard) for shard in range(12)] == ([False] * 4 + [True] * 2) * 2
    assert [bool(cycle.of(0, 1, shard).any()) for shard in range(12)] == ([False] * 4 + [True] * 2) * 2
    assert not any(cycle_of(every=2).alone(shard) for shard in range(6))
    assert not any(dataclasses.replace(cycle, in_order=True).alone(shard) for shard in range(6))
    assert not any(dataclasses.replace(cycle, size=0).alone(shard) for shard in range(6))


@pytest.mark.parametrize(("sampling", "share"), [("sqrt", 0.414), ("frequency", 0.533)])
def test_frequent_words_may_come_more_often(sampling, share):
    words = cycle_of(size=600, every=1, sampling=sampling).of(0, 1, 0)
    assert np.mean([row_text(row) == "cat" for row in words]) == pytest.approx(share, abs=0.07)


def test_in_evaluation_all_come_in_turn():
    cycle = cycle_of(in_order=True)
    found = [[row_text(row) for row in cycle.of(lane, 2, shard)] for shard in range(2) for lane in range(2)]
    assert found == [["cat", "the", ""], ["dog", "house", ""]] * 2
    whole = cycle_of(in_order=True, size=6).of(1, 2, 3)
    assert [row_text(row) for row in whole] == ["cat", "dog", "the", "house", "", ""]


@pytest.mark.parametrize("sampling", ["uniform", "sqrt", "frequency"])
def test_each_word_comes_by_its_chance_and_every_draw_has_its_lengths(sampling):
    words, counts = words_of(np.random.default_rng(2).permutation([3] * 9 + [5] * 6 + [12] * 5)), np.arange(20, 0, -1)
    cycle = cycle_of(rows_NC=words, counts_N=counts, size=16, every=1, sampling=sampling)
    found = np.stack([cycle.of(0, 1, shard) for shard in range(2000)])
    power = {"uniform": 0.0, "sqrt": 0.5, "frequency": 1.0}[sampling]
    chance = counts**power / (counts**power).sum()
    number = {row.tobytes(): i for i, row in enumerate(words)}
    met = np.bincount([number[row.tobytes()] for row in found.reshape(-1, SLOTS)], minlength=20)
    np.testing.assert_allclose(met / met.sum(), chance, atol=0.005)
    longer = ((found != 0).sum(axis=2, keepdims=True) > np.arange(SLOTS)).sum(axis=1)
    wanted = 16 * np.stack([chance[(words != 0).sum(axis=1) > c].sum() for c in range(SLOTS)])
    assert (np.abs(longer - wanted) < 1).all()
    assert len({shard.tobytes() for shard in found[:50]}) > 40


# ---- Their tables ----


def words_of(lengths):
    """Returns words of so many slots, each another one, uint16 [K, SLOTS]; 0: no word."""
    place = np.arange(SLOTS)[None]
    numbers = np.arange(1, len(lengths) + 1)[:, None]
    return np.where(place < np.asarray(lengths)[:, None], numbers, 0).astype(np.uint16)


def lengths_in(tables):
    """Returns the slots of the words in each table."""
    return [[n for n in (table != 0).sum(axis=1).tolist() if n] for table in tables]


def in_full(tables):
    """Returns the words of tables as rows of all slots, in the order of their numbers."""
    rows = np.concatenate([np.pad(table, ((0, 0), (0, SLOTS - table.shape[1]))) for table in tables])
    rows = rows[rows[:, 0] != 0]
    return rows[np.argsort(rows[:, 0])]


def test_a_word_stands_in_the_first_table_that_has_room():
    words = words_of([4, 12, 3, 0, 5, 8, 4, 6, 4])
    tables = cycle_tables(words, (4, 8, SLOTS), (3, 3, 4))
    assert [table.shape for table in tables] == [(3, 4), (3, 8), (4, SLOTS)]
    assert all(table.dtype == np.uint16 for table in tables)
    assert lengths_in(tables) == [[4, 3, 4], [4, 5, 8], [6, 12]]
    np.testing.assert_array_equal(in_full(tables), words[[0, 1, 2, 4, 5, 6, 7, 8]])
    assert not any(table.any() for table in cycle_tables(np.zeros_like(words), (4, 8, SLOTS), (3, 3, 4)))


def test_a_word_without_room_is_left_out_and_no_other():
    words = words_of([3, 3, 10, 3, 3, 11])
    assert lengths_in(cycle_tables(words, (4, SLOTS), (2, 3))) == [[3, 3], [3, 3, 10]]
    assert lengths_in(cycle_tables(words, (4, SLOTS), (5, 1))) == [[3, 3, 3, 3], [10]]


@pytest.mark.parametrize("seed", range(5))
def test_no_word_is_lost_or_doubled(seed):
    rng = np.random.default_rng(seed)
    words = words_of(rng.integers(2, SLOTS + 1, 40))
    cycle = cycle_of(rows_NC=words, counts_N=np.ones(40), size=40, in_order=True)
    slots, rows = measure_cycle(cycle, (8, 10, SLOTS))
    assert sum(rows) == 40
    np.testing.assert_array_equal(in_full(cycle_tables(words, slots, rows)), words)


# ---- The room that they have ----


def frequent(count, seed=0):
    """Returns words most of which are short, the longest the rarest."""
    rng = np.random.default_rng(seed)
    return words_of(np.sort(np.minimum(2 + rng.geometric(0.4, count), SLOTS)))


def left_out(cycle, shards, slots, rows):
    """Returns of how many shards a word finds no room."""
    found = (cycle.of(0, 1, shard) for shard in range(shards))
    return sum(len(in_full(cycle_tables(words, slots, rows))) < words.any(axis=1).sum() for words in found)


@pytest.mark.parametrize("sampling", ["uniform", "sqrt", "frequency"])
@pytest.mark.parametrize("size", [1, 5, 64, 300])
def test_measured_tables_hold_every_draw_and_all_of_evaluation(size, sampling):
    cycle = cycle_of(
        rows_NC=frequent(200), counts_N=np.arange(200, 0, -1), size=size, every=1, sampling=sampling, seed=3
    )
    slots, rows = measure_cycle(cycle)
    assert sum(rows) == size
    assert slots[-1] == SLOTS
    assert len(slots) <= 4
    assert left_out(cycle, 1000, slots, rows) == 0
    in_order = dataclasses.replace(cycle, in_order=True)
    assert measure_cycle(in_order) == (slots, rows)
    assert left_out(in_order, 200, slots, rows) == 0


def test_they_cost_fewer_slots_than_one_table():
    words = np.random.default_rng(1).permutation(frequent(5000))
    cycle = cycle_of(rows_NC=words, counts_N=np.ones(5000), size=250, every=1)
    slots, rows = measure_cycle(cycle)
    assert len(slots) == 4
    assert np.dot(slots, rows) < 0.45 * 250 * SLOTS
    assert np.dot(slots, rows) < 1.15 * (words != 0).sum() / 5000 * 250
    # Nor is there more room for long words than they need.
    for bucket in range(1, 4):
        fewer = [n + (b == bucket - 1) - (b == bucket) for b, n in enumerate(rows)]
        assert left_out(cycle, 50, slots, fewer) > 0


def test_a_table_must_save_more_than_its_steps_cost():
    words = np.random.default_rng(1).permutation(frequent(5000))
    count = [len(measure_cycle(cycle_of(rows_NC=words, counts_N=np.ones(5000), size=n))[0]) for n in (2, 8, 64, 250)]
    assert count == [1, 2, 3, 4]


def test_evaluation_may_need_more_room_than_draws():
    """Long words are rare among draws by frequency, and as many as others in evaluation."""
    words = words_of([3] * 10 + [SLOTS] * 10)
    cycle = cycle_of(rows_NC=words, counts_N=np.array([1000] * 10 + [1] * 10), size=8, every=1, sampling="frequency")
    assert left_out(cycle, 100, (3, SLOTS), (7, 1)) == 0
    with pytest.raises(ValueError, match=r"room for 1 words of more than 3 characters, expected room for 4$"):
        measure_cycle(cycle, (3, SLOTS), (7, 1))
    assert measure_cycle(cycle, (3, SLOTS)) == ((3, SLOTS), (4, 4))


def test_draws_may_need_more_room_than_evaluation():
    cycle = cycle_of(
        rows_NC=words_of([3] * 90 + [SLOTS] * 10), counts_N=np.array([1] * 90 + [81] * 10), size=20, every=1,
        sampling="frequency",
    )  # fmt: skip
    assert left_out(cycle, 20, (3, SLOTS), (18, 2)) == 20
    assert left_out(dataclasses.replace(cycle, in_order=True), 5, (3, SLOTS), (18, 2)) == 0
    assert measure_cycle(cycle, (3, SLOTS)) == ((3, SLOTS), (2, 18))


def test_the_last_table_is_as_long_as_a_word_may_be():
    """However short the words are: the generator's own may be longer."""
    cycle = cycle_of(rows_NC=words_of([3, 4, 5] * 20), counts_N=np.ones(60), size=30)
    slots, rows = measure_cycle(cycle)
    assert (slots[-1], rows[-1], sum(rows)) == (SLOTS, 1, 30)


def test_what_is_given_is_not_measured():
    cycle = cycle_of(rows_NC=np.random.default_rng(1).permutation(frequent(200)), counts_N=np.ones(200), size=64)
    slots, rows = measure_cycle(cycle, (5, 7, SLOTS))
    assert slots == (5, 7, SLOTS)
    assert sum(rows) == 64
    assert measure_cycle(cycle, *measure_cycle(cycle)) == measure_cycle(cycle)
    assert measure_cycle(cycle_of(size=2), (4, 5, SLOTS)) == ((4, 5, SLOTS), (1, 1, 1))
    none = cycle_of(size=0)
    assert measure_cycle(none) == ((SLOTS,), (0,))
    assert measure_cycle(none, (4, SLOTS), (0, 0)) == ((4, SLOTS), (0, 0))
    assert cycle_tables(none.of(0, 1, 0), (SLOTS,), (0,))[0].shape == (0, SLOTS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (((3, 5),), r"cycle\.slots=\(3, 5\) must ascend and end at 12, model\.char_slots"),
        (((5, 3, SLOTS),), r"cycle\.slots=\(5, 3, 12\) must ascend"),
        (((5, SLOTS), (9,)), r"cycle\.rows=\(9,\) must name a positive number for each of 2 buckets"),
        (((5, SLOTS), (0, 9)), r"cycle\.rows=\(0, 9\) must name a positive number"),
        (
            ((5, SLOTS), (1, 1)),
            r"cycle\.rows=\(1, 1\) have room for 2 words of more than 0 characters, expected room for 3",
        ),
    ],
)
def test_what_does_not_fit_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        measure_cycle(cycle_of(), *given)


def test_samplings_are_named():
    with pytest.raises(ValueError, match=r"cycle\.sampling='often' is not one of uniform, sqrt, frequency"):
        cycle_of(sampling="often")
