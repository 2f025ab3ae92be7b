"""Measured shapes: the cheapest buckets, and budgets that nearly every shard fits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_pipeline import MASKING, SLOTS, batches_of, original, read, record, records_of, text

from charlm.data.budgets import choose_buckets, measure_shape
from charlm.data.masking import Masking


@pytest.mark.parametrize("seed", range(6))
def test_chosen_buckets_are_the_cheapest(seed):
    rng = np.random.default_rng(seed)
    longest = 4 + seed
    words = np.concatenate([[0], rng.integers(0, 50, longest)]) * (rng.random(longest + 1) < 0.8)

    def slots(buckets):
        return sum(n * min(b for b in buckets if b >= length) for length, n in enumerate(words) if length)

    chosen = choose_buckets(words)
    assert chosen[-1] == longest
    assert len(chosen) <= 3
    choices = [(*c, longest) for n in range(3) for c in itertools.combinations(range(1, longest), n)]
    # One slot alone is [CLS] and [SEP]: no bucket of their own.
    assert slots(chosen) == min(slots(c) for c in choices if c[0] > 1)


def measure(records, **changes):
    arguments = {"sequences": 4, "shards": 2, "max_words": 20, "char_slots": SLOTS, "masking": MASKING} | changes
    return measure_shape(records, **arguments)


@pytest.mark.parametrize("unique_words", [True, False])
def test_measured_budgets_keep_shards_full(unique_words):
    rng = np.random.default_rng(0)
    records = records_of(text(rng, rng.integers(3, 18, 1200).tolist(), words=300))
    shape = measure(records, unique_words=unique_words)
    assert (shape.shards, shape.sequences, shape.words, shape.slots[-1]) == (2, 4, 20, SLOTS)
    assert shape.unique_words == unique_words
    budgets = (*shape.table, *shape.masked, *shape.labels)
    assert all(n % 8 == 0 for n in budgets)
    sizes = [len(shard) for batch in batches_of(records, shape) for shard in read(batch)]
    assert len(sizes) > 80
    assert np.mean(np.array(sizes[:-2]) == 4) >= 0.95
    if unique_words:  # budgets that hold everything that could ever come would save nothing
        assert sum(budgets[:6]) < 4 * 20 * 1.5
        assert len(shape.slots) == 3


@pytest.mark.parametrize("unique_words", [True, False])
def test_a_corpus_shorter_than_a_shard_works(unique_words):
    records = [record([[(8, 9), (10,)]])]
    shape = measure(records, unique_words=unique_words, masking=Masking(rate=1.0))
    (batch,) = batches_of(records, shape, masking=Masking(rate=1.0))
    assert original(list(itertools.chain(*read(batch)))) == [(8, 9), (10,)]


def test_given_buckets_are_kept():
    records = records_of(text(np.random.default_rng(0), [12] * 20))
    assert measure(records, bucket_slots=(2, SLOTS)).slots == (2, SLOTS)


@pytest.mark.parametrize("slots", [(2, 5), (5, 2, SLOTS), (2, 2, SLOTS), (3, SLOTS, 9), (9,)])
def test_wrong_buckets_are_refused(slots):
    with pytest.raises(ValueError, match=rf"data\.bucket_slots=.* must ascend and end at model\.char_slots={SLOTS}"):
        measure(records_of(text(np.random.default_rng(0), [12])), bucket_slots=slots)


def test_an_empty_corpus_is_an_error():
    with pytest.raises(ValueError, match=r"data\.train"):
        measure([])
