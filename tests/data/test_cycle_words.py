"""Words of XRayEmb's cycles: when they come, how often, and their tables by length, whose room is measured."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from small_xrayemb_run import CHARS, SLOTS

from charlm.data.cycle_words import CycleWords, cycle_tables, measure_cycle
from charlm.text.xray_chars import word_rows


def cycle_of(**changes):
    words = ["cat", "dog", "house", "the"]
    fields = {"rows_NC": word_rows(words, CHARS, SLOTS), "counts_N": np.array([8, 4, 2, 1]), "size": 3, "every": 2}
    return CycleWords(**{**fields, "micro_batches": 1, "seed": 0, **changes})


def row_text(row):
    return CHARS.decode(row)


# ---- Which words ----


def test_they_come_in_their_steps():
    cycle = cycle_of(size=200, every=3, micro_batches=2)
    found = [cycle.of(1, 4, shard) for shard in range(12)]
    assert [bool(words.any()) for words in found] == [False] * 4 + [True] * 2 + [False] * 4 + [True] * 2
    drawn = [x for x in found if x.any()]
    for words in drawn:
        assert {row_text(row) for row in words} == {"cat", "dog", "house", "the"}
        share = np.mean([row_text(row) == "cat" for row in words])
        assert 0.15 < share < 0.35
    assert (drawn[0] != drawn[1]).any()
    assert (cycle.of(2, 4, 4) != found[4]).any()


@pytest.mark.parametrize(("sampling", "share"), [("sqrt", 0.414), ("frequency", 0.533)])
def test_frequent_words_may_come_more_often(sampling, share):
    words = cycle_of(size=600, every=1, sampling=sampling).of(0, 1, 0)
    assert np.mean([row_text(row) == "cat" for row in words]) == pytest.approx(share, abs=0.07)


def test_in_evaluation_they_come_in_order():
    cycle = cycle_of(in_order=True)
    found = np.concatenate([cycle.of(lane, 2, shard) for shard in range(2) for lane in range(2)])
    assert [row_text(row) for row in found] == ["cat", "dog", "house", "the"] * 3


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
    assert (sum(rows), min(rows)) == (40, 8)
    np.testing.assert_array_equal(in_full(cycle_tables(words, slots, rows)), words)


# ---- The room that they have ----


def frequent(count, seed=0):
    """Returns words most of which are short, the longest the rarest."""
    rng = np.random.default_rng(seed)
    return words_of(np.sort(np.minimum(2 + rng.geometric(0.4, count), SLOTS)))


def left_out(cycle, shards, slots, rows):
    """Returns of how many shards a word finds no room."""
    found = (cycle.of(0, 1, shard) for shard in range(shards))
    return sum(len(in_full(cycle_tables(words, slots, rows))) < cycle.size for words in found)


@pytest.mark.parametrize("size", [1, 5, 64, 300])
def test_measured_tables_hold_nearly_every_draw_and_all_of_evaluation(size):
    words = frequent(200)
    cycle = cycle_of(rows_NC=words, counts_N=np.arange(200, 0, -1), size=size, every=1, sampling="sqrt", seed=3)
    slots, rows = measure_cycle(cycle)
    assert sum(rows) == size
    assert slots[-1] == SLOTS
    assert len(slots) <= 4
    assert left_out(cycle, 1000, slots, rows) <= 5
    in_order = dataclasses.replace(cycle, in_order=True)
    assert measure_cycle(in_order) == (slots, rows)
    assert left_out(in_order, 200, slots, rows) == 0


def test_they_cost_fewer_slots_than_one_table():
    words = np.random.default_rng(1).permutation(frequent(5000))
    cycle = cycle_of(rows_NC=words, counts_N=np.ones(5000), size=250)
    slots, rows = measure_cycle(cycle)
    assert len(slots) == 3
    assert np.dot(slots, rows) < 0.55 * 250 * SLOTS
    drawn = dataclasses.replace(cycle, every=1)
    # Nor is there more room for long words than they need: half of it would be too little.
    assert left_out(drawn, 50, slots, (rows[0] + rows[2] // 2, rows[1], rows[2] - rows[2] // 2)) > 0


def test_a_bucket_must_save_more_than_its_loop_costs():
    words = np.random.default_rng(1).permutation(frequent(5000))
    count = [len(measure_cycle(cycle_of(rows_NC=words, counts_N=np.ones(5000), size=n))[0]) for n in (8, 64, 250, 2000)]
    assert count == [1, 2, 3, 4]


@pytest.mark.parametrize(("count", "size"), [(100, 16), (96, 40), (10, 25), (7, 7)])
def test_evaluation_may_need_more_room_than_draws(count, size):
    """The longest words stand together, at the end, and the first of the next round behind them."""
    words = words_of([SLOTS] * 2 + [3] * (count - 2 - count // 5) + [SLOTS] * (count // 5))
    cycle = cycle_of(rows_NC=words, counts_N=np.ones(count), size=size, in_order=True)
    slots, rows = measure_cycle(cycle)
    windows = count // math.gcd(count, size)
    assert left_out(cycle, windows, slots, rows) == 0
    long = max(int((cycle.of(0, 1, shard) != 0).all(axis=1).sum()) for shard in range(windows))
    with pytest.raises(ValueError, match=rf"room for {long - 1} words of more than 3 characters, and .* needs {long}$"):
        measure_cycle(cycle, (3, SLOTS), (size, long - 1))
    assert measure_cycle(cycle, (3, SLOTS), (size, long)) == ((3, SLOTS), (size, long))


def test_draws_may_need_more_room_than_evaluation():
    cycle = cycle_of(rows_NC=words_of([3, SLOTS] * 50), counts_N=np.ones(100), size=20, every=1)
    assert left_out(cycle, 200, (3, SLOTS), (12, 10)) > 20
    assert left_out(dataclasses.replace(cycle, in_order=True), 5, (3, SLOTS), (12, 10)) == 0
    assert left_out(cycle, 200, *measure_cycle(cycle, (3, SLOTS))) <= 1


def test_what_is_given_is_not_measured():
    cycle = cycle_of(rows_NC=np.random.default_rng(1).permutation(frequent(200)), counts_N=np.ones(200), size=64)
    slots, rows = measure_cycle(cycle, (5, 7, SLOTS))
    assert slots == (5, 7, SLOTS)
    assert sum(rows) == 64
    assert measure_cycle(cycle, *measure_cycle(cycle)) == measure_cycle(cycle)
    assert measure_cycle(cycle_of(size=2), (4, 5, SLOTS)) == ((4, 5, SLOTS), (1, 1, 2))
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
        (((5, SLOTS), (1, 1)), r"cycle\.rows=\(1, 1\) have room for 2 words of more than 0 characters, and .* needs 3"),
    ],
)
def test_what_does_not_fit_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        measure_cycle(cycle_of(), *given)


def test_samplings_are_named():
    with pytest.raises(ValueError, match=r"cycle\.sampling='often' is not one of uniform, sqrt, frequency"):
        cycle_of(sampling="often")
