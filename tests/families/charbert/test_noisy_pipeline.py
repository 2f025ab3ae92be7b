"""Tests CharBERT's batches: blocks in rows, labelled positions per shard, a budget that is never exceeded."""

from __future__ import annotations

import dataclasses
import json

import grain
import jax
import numpy as np
import pytest
from small_charbert import LENGTH, SLOTS, small_maker, small_records, small_tokenizer
from trees import assert_same_trees

from charlm.data.lanes import empty_batch
from charlm.data.streams import SequenceStream, sequence_batches
from charlm.families.charbert.batches import NoisyShape, NoisyShard, measure_noised
from charlm.families.charbert.loss import label_weights


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    return small_maker(small_tokenizer(tmp_path_factory.getbasetemp() / "small_tokenizer"))


SHAPE = NoisyShape(shards=2, sequences=3, length=LENGTH, slots=SLOTS, masked=15, noised=24)


def dataset(maker, shape=SHAPE, lanes=(0, 1), accumulation=1, prefetch=0, by_record=False, repeat=False):
    source = grain.MapDataset.source(small_records(40))
    whole = source.repeat() if repeat else source
    dealt = {lane: whole[lane :: shape.shards].to_iter_dataset() for lane in lanes}
    sizes = {"of": shape.shards, "accumulation": accumulation, "prefetch": prefetch}
    return sequence_batches(dealt, maker, lambda: NoisyShard(shape, maker.pad), **sizes, by_record=by_record)


def test_a_batch_holds_the_blocks_of_its_lanes(maker):
    records = small_records(40)
    streams = [SequenceStream(iter(records[lane::2]), maker, lane, 2) for lane in range(2)]
    read = {0: [], 1: []}
    early = 0
    for batch in dataset(maker):
        assert batch.inputs.ids_BL.shape == (1, 2, 3, LENGTH)
        for shard in range(2):
            inputs = jax.tree.map(lambda x, s=shard: x[0, s], batch.inputs)
            labels = 0
            for row in range(3):
                if not inputs.mask_BL[row].any():
                    early += 1
                    continue
                block = streams[shard].next()
                T = len(block.ids_T)
                np.testing.assert_array_equal(inputs.ids_BL[row, :T], block.ids_T)
                assert (inputs.ids_BL[row, T:] == maker.tokenizer.special.pad).all()
                assert inputs.mask_BL[row].sum() == T
                for got, want in zip((inputs.chars_BN, inputs.starts_BL, inputs.ends_BL), block.chars, strict=True):
                    np.testing.assert_array_equal(got[row], want)
                for positions, values, places, right in (
                    (batch.mlm_position_SM, batch.mlm_labels_SM, block.mlm_positions, block.mlm_labels),
                    (batch.nlm_position_SP, batch.nlm_labels_SP, block.nlm_positions, block.nlm_labels),
                ):
                    here = (positions[0, shard] // LENGTH == row) & (values[0, shard] >= 0)
                    np.testing.assert_array_equal(positions[0, shard][here] - row * LENGTH, places)
                    np.testing.assert_array_equal(values[0, shard][here], right)
                labels += len(block.nlm_labels)
                read[shard].append(block)
            assert labels <= SHAPE.noised
    assert [stream.next() for stream in streams] == [None, None]  # nothing was left out
    assert early > 4  # the budget closed shards before they were full


def test_shares_of_labels_do_not_depend_on_the_number_of_lanes(maker):
    counts = []
    for shards in (1, 2, 4):
        shape = SHAPE._replace(shards=shards)
        batches = list(dataset(maker, shape, range(shards), by_record=True))
        counts.append(np.sum([label_weights(batch) for batch in batches], axis=0))
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(counts[0], counts[2])
    assert min(counts[0]) > 100


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_saved_position_goes_on_exactly(maker, prefetch):
    options = {"accumulation": 2, "repeat": True}
    whole = iter(dataset(maker, prefetch=prefetch, **options))
    try:
        for _ in range(5):
            next(whole)
        state = json.loads(json.dumps(whole.get_state()))
        want = [next(whole) for _ in range(4)]
    finally:
        close(whole)
    resumed = iter(dataset(maker, prefetch=2 - prefetch // 2, **options))
    try:
        resumed.set_state(state)
        for batch in want:
            assert_same_trees(next(resumed), batch)
    finally:
        close(resumed)


def close(iterator):
    if hasattr(iterator, "close"):
        iterator.close()


def test_a_position_of_other_shards_is_refused(maker):
    state = iter(dataset(maker)).get_state()
    with pytest.raises(ValueError, match=r"belongs to data\.table_shards=2, not 1"):
        iter(dataset(maker, SHAPE._replace(shards=1), (0,))).set_state(state)


def test_the_measured_budget_holds_nearly_every_shard(maker):
    records = small_records(40) * 20
    budget = measure_noised(records, maker, sequences=16)
    blocks = list(iter(SequenceStream(iter(records), maker).next, None))
    totals = [sum(len(b.nlm_labels) for b in blocks[i : i + 16]) for i in range(0, len(blocks) - 15, 16)]
    assert budget % 8 == 0
    assert budget >= LENGTH - 2
    assert np.mean([total > budget for total in totals]) < 0.01
    assert budget < 2.5 * np.mean(totals)
    assert measure_noised(records, dataclasses.replace(maker, predicts_words=False), 4) == 1
    with pytest.raises(ValueError, match=r"data\.train: no sentence to measure batches on"):
        measure_noised([], maker, 4)


def test_a_budget_below_that_of_one_block_is_refused(maker):
    with pytest.raises(ValueError, match=r"data\.noised_budget leaves no room for a block of \d+ labels"):
        list(dataset(maker, SHAPE._replace(noised=1)))


def test_an_empty_batch_has_the_shape_of_the_others_and_no_label(maker):
    empty = empty_batch(NoisyShard(SHAPE, maker.pad).build(), shards=2)
    batch = next(iter(dataset(maker)))
    assert jax.tree.map(np.shape, empty) == jax.tree.map(np.shape, batch)
    assert jax.tree.map(lambda x: x.dtype, empty) == jax.tree.map(lambda x: x.dtype, batch)
    assert not empty.inputs.mask_BL.any()
    assert [float(x) for x in label_weights(empty)] == [0, 0]
