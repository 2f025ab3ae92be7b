"""Tests XRayEmb's batches: every position and word is in its place, nothing is lost, exact saved states."""

from __future__ import annotations

import dataclasses
import json

import grain
import jax
import numpy as np
import pytest
from small_char2subword_run import LENGTH
from small_charbert import small_records
from small_xrayemb_run import CHARS, SLOTS, row_text, sequences_of, small_maker

from charlm.data.lanes import empty_batch
from charlm.data.streams import SequenceStream, sequence_batches
from charlm.families.xrayemb.batches import XRayLane, XRayShape, XRayShard, with_cycle
from charlm.families.xrayemb.budgets import Budgets, measure_budgets
from charlm.families.xrayemb.chars import word_rows
from charlm.families.xrayemb.cycle_words import CycleWords
from charlm.families.xrayemb.policies import get_policy


@pytest.fixture(scope="module", params=("bert", "gpt2"))
def maker(request, xray_folder):
    return small_maker(xray_folder, request.param)


# ---- Batches ----


def cycle_of(maker, **changes):
    words = ["cat", "dog", "house", "the"]
    fields = {"rows_NC": word_rows(words, CHARS, SLOTS), "counts_N": np.array([8, 4, 2, 1]), "size": 3, "every": 2}
    return CycleWords(**{**fields, "micro_batches": 1, "seed": 0, **changes})


def shape_of(maker, **changes):
    fields = {"shards": 2, "sequences": 3, "length": LENGTH, "slots": (6, SLOTS), "rows": (14, 10)}
    fields |= {"predicted": 3 * maker.most, "learned": 16, "pieces": maker.pieces_most}
    fields |= {"written_slots": (5, SLOTS), "written_rows": (30, 30), "cycle_slots": (5, SLOTS), "cycle_rows": (1, 2)}
    return XRayShape(**{**fields, **changes})


def xray_batches(records, maker, shape, cycle, accumulation=1, prefetch=0):
    wrap = lambda lane, number: XRayLane(lane, shape, cycle, number, XRayShard(shape, maker.pad).build())
    sizes = {"of": shape.shards, "accumulation": accumulation, "prefetch": prefetch}
    return sequence_batches(records, maker, lambda: XRayShard(shape, maker.pad), **sizes, wrap=wrap)


def dataset(maker, shape, lanes=(0, 1), accumulation=1, prefetch=0, repeat=False, **cycle):
    source = grain.MapDataset.source(small_records(40))
    whole = source.repeat() if repeat else source
    dealt = {lane: whole[lane :: shape.shards].to_iter_dataset() for lane in lanes}
    made = cycle_of(maker, micro_batches=accumulation, **cycle)
    return xray_batches(dealt, maker, shape, made, accumulation, prefetch)


def table_row(inputs, shape, at):
    for chars_UC, count in zip(inputs.chars, shape.rows, strict=True):
        if at < count:
            return np.pad(chars_UC[at], (0, SLOTS - chars_UC.shape[1]))
        at -= count
    raise AssertionError("no such row")


def check_shard(shard, sequences, maker, shape):
    """Checks every position, label, learned and written word of a shard against the sequences in it."""
    inputs = shard.inputs
    labels, written, learned = {}, {}, []
    for b, sequence in enumerate(sequences):
        length = len(sequence.ids_T)
        np.testing.assert_array_equal(inputs.mask_SBL[b], np.arange(LENGTH) < length)
        np.testing.assert_array_equal(inputs.ids_SBL[b, :length], sequence.ids_T)
        for i in np.flatnonzero(sequence.ids_T == -1):
            np.testing.assert_array_equal(table_row(inputs, shape, inputs.index_SBL[b, i]), sequence.rows_TC[i])
        labels |= {b * LENGTH + i: sequence.labels_T[i] for i in np.flatnonzero(sequence.labels_T >= 0)}
        at = np.flatnonzero(sequence.written_TC[:, 0])
        written |= {b * LENGTH + i: row_text(sequence.written_TC[i]) for i in at}
        learned += [(row_text(r), p.tolist()) for r, p in zip(sequence.learned_WC, sequence.pieces_WP, strict=True)]
    assert (inputs.ids_SBL[~inputs.mask_SBL] == maker.pad).all()
    real = shard.labels_SM >= 0
    assert dict(zip(shard.position_SM[real].tolist(), shard.labels_SM[real].tolist(), strict=True)) == labels
    found = {}
    for words in shard.written:
        there = words.chars_SGC[:, 0] != 0
        found |= dict(zip(words.position_SG[there].tolist(), map(row_text, words.chars_SGC[there]), strict=True))
    assert found == written
    rows, pieces = shard.learned
    there = pieces[:, 0] >= 0
    got = [
        (row_text(table_row(inputs, shape, at)), p.tolist()) for at, p in zip(rows[there], pieces[there], strict=True)
    ]
    assert got == learned


def test_every_position_and_word_is_where_it_belongs(maker):
    shape = shape_of(maker)
    streams = [SequenceStream(iter(small_records(40)[lane::2]), maker, lane, 2) for lane in range(2)]
    waiting = [list(iter(stream.next, None)) for stream in streams]
    early = 0
    for batch in dataset(maker, shape):
        for number, sequences in enumerate(waiting):
            shard = jax.tree.map(lambda x, s=number: x[0, s], batch)
            count = int(shard.inputs.mask_SBL[:, 0].sum())
            check_shard(shard, sequences[:count], maker, shape)
            del sequences[:count]
            early += 0 < count < shape.sequences
    assert waiting == [[], []]  # nothing was left out
    assert early  # a budget closed shards before they were full


def test_cycles_may_have_batches_of_their_own(maker):
    """After two batches of text comes one of words alone; no text is lost, and every lane is in the same step."""
    shape = shape_of(maker)
    joined, apart = ([*dataset(maker, shape, apart=apart)] for apart in (False, True))
    texts = [batch for batch in apart if batch.inputs.mask_SBL.any()]
    assert [bool(batch.inputs.mask_SBL.any()) for batch in apart][:6] == [True, True, False] * 2
    for batch in apart:
        has_words = [bool(batch.cycle[1][0, lane].any()) for lane in range(2)]
        assert has_words == [not batch.inputs.mask_SBL.any()] * 2
        assert batch.points_SK.any() == has_words[0]
    assert len(texts) == len(joined)
    for one, other in zip(texts, joined, strict=True):
        np.testing.assert_array_equal(one.inputs.ids_SBL, other.inputs.ids_SBL)
    alone = next(batch for batch in apart if not batch.inputs.mask_SBL.any())
    assert (alone.labels_SM < 0).all()
    assert not any(words.chars_SGC.any() for words in alone.written)


def small_like(maker, **changes):
    return dataclasses.replace(maker, **changes)


@pytest.mark.parametrize(
    "tight", [{"learned": 3}, {"rows": (4, 4)}, {"written_rows": (6, 5)}], ids=["learned", "rows", "written"]
)
def test_a_sequence_that_never_fits_is_halved_and_not_lost(maker, tight):
    total = sum(len(s.pieces) for s in sequences_of(maker))
    plain = small_like(maker, infer=get_policy("none"))
    shape = shape_of(plain, **tight)
    read = 0
    for batch in dataset(plain, shape):
        mask = batch.inputs.mask_SBL
        read += int(mask.sum() - 2 * plain.framed * mask[..., 0].sum())
    assert read == total


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_saved_position_goes_on_exactly(maker, prefetch):
    options = {"accumulation": 2, "repeat": True}
    shape = shape_of(maker, rows=(8, 6))
    whole = iter(dataset(maker, shape, prefetch=prefetch, **options))
    try:
        for _ in range(5):
            next(whole)
        state = json.loads(json.dumps(whole.get_state()))
        want = [next(whole) for _ in range(4)]
    finally:
        close(whole)
    resumed = iter(dataset(maker, shape, prefetch=3 - prefetch, **options))
    try:
        resumed.set_state(state)
        for batch in want:
            jax.tree.map(np.testing.assert_array_equal, next(resumed), batch)
    finally:
        close(resumed)
    assert [batch.points_SK.any() for batch in want] in ([True, False] * 2, [False, True] * 2)


def close(iterator):
    if hasattr(iterator, "close"):
        iterator.close()


def test_an_empty_batch_has_the_shape_of_the_others_and_asks_nothing(maker):
    shape = shape_of(maker)
    empty = empty_batch(with_cycle(XRayShard(shape, maker.pad).build(), cycle_of(maker).none(), shape), shards=2)
    batch = next(iter(dataset(maker, shape)))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), empty) == jax.tree.map(lambda x: (x.shape, x.dtype), batch)
    assert not empty.inputs.mask_SBL.any()
    assert not any(words.any() for words in (*empty.cycle, empty.points_SK))
    assert shape.described().endswith("30 of 5, 30 of 12) and 3 of cycles (1 of 5, 2 of 12)")
    assert (empty.labels_SM == -1).all()
    assert (empty.learned.pieces_SWP == -1).all()


def test_measured_budgets_hold_nearly_every_shard(maker):
    found = measure_budgets(small_records(40) * 10, maker, 3, Budgets())
    assert found.slots[-1] == found.written_slots[-1] == SLOTS
    shape = shape_of(maker, slots=found.slots, rows=found.rows, learned=found.learned)
    shape = shape._replace(written_slots=found.written_slots, written_rows=found.written_rows)
    counts = [int(batch.inputs.mask_SBL[..., 0].sum()) for batch in dataset(maker, shape, lanes=(0,))]
    assert np.mean(np.array(counts[:-1]) == 3) > 0.8
    again = measure_budgets([], maker, 3, found)
    assert again == found
    with pytest.raises(ValueError, match=rf"data\.written_slots=\(5,\) must ascend and end at {SLOTS}"):
        measure_budgets([], maker, 3, found._replace(written_slots=(5,)))
    with pytest.raises(ValueError, match=r"data\.bucket_rows=\(3,\) must name a positive number for each of"):
        measure_budgets([], maker, 3, found._replace(rows=(3,), slots=(4, SLOTS)))


@pytest.mark.parametrize("in_order", [False, True])
def test_words_of_cycles_are_those_of_the_lane(maker, in_order):
    """Each shard has its words in its tables, and as many points of the sphere, though evaluation leaves rows empty."""
    cycle, found = cycle_of(maker, in_order=in_order), []
    for number, batch in enumerate(dataset(maker, shape_of(maker), in_order=in_order)):
        assert not (in_order and batch.points_SK.all())
        assert [words.shape for words in batch.cycle] == [(1, 2, 1, 5), (1, 2, 2, SLOTS)]
        for lane in range(2):
            drawn = cycle.of(lane, 2, number) if batch.inputs.mask_SBL[0, lane].any() else cycle.none()
            words = [row_text(row) for table in batch.cycle for row in table[0, lane] if row.any()]
            assert sorted(words) == sorted(row_text(row) for row in drawn if row.any())
            np.testing.assert_array_equal(batch.points_SK[0, lane], drawn.any(axis=1))
            found += words
    assert set(found) == {"cat", "dog", "house", "the"}


def test_a_lane_without_text_has_no_words_of_cycles(maker):
    """Its records end first; the others go on with theirs."""
    shape, cycle = shape_of(maker), cycle_of(maker, every=1)
    records = {
        lane: grain.MapDataset.source(small_records(count)).to_iter_dataset() for lane, count in ((0, 2), (1, 40))
    }
    text, words, points = [], [], []
    for batch in xray_batches(records, maker, shape, cycle):
        text.append(batch.inputs.mask_SBL[0].any(axis=(1, 2)))
        words.append(sum(table[0].any(axis=2).sum(axis=1) for table in batch.cycle))
        points.append(batch.points_SK[0].sum(axis=1))
    assert 0 < np.sum(text, axis=0)[0] < np.sum(text, axis=0)[1] == len(text)
    for found in (words, points):
        np.testing.assert_array_equal(found, 3 * np.array(text))
