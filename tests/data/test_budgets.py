"""Tests measured shapes: the cheapest buckets are chosen, and nearly every shard fits the budgets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_pipeline import MASKING, SLOTS, batches_of, original, read, record, records_of, text

from charlm.data.budgets import budget, choose_buckets, measure_shape
from charlm.data.masking import Masking


@pytest.mark.parametrize("buckets", [1, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_chosen_buckets_are_the_cheapest(seed, buckets):
    rng = np.random.default_rng(seed)
    longest = 4 + seed
    words = np.concatenate([[0], rng.integers(0, 50, longest)]) * (rng.random(longest + 1) < 0.8)

    def slots(chosen):
        return sum(n * min(b for b in chosen if b >= length) for length, n in enumerate(words) if length)

    chosen = choose_buckets(words, buckets)
    assert chosen[-1] == longest
    assert len(chosen) == min(buckets, longest - 1)
    choices = [(*c, longest) for n in range(buckets) for c in itertools.combinations(range(1, longest), n)]
    # One slot alone is [CLS] and [SEP]: no bucket of their own.
    assert slots(chosen) == min(slots(c) for c in choices if c[0] > 1)


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_short_words_have_few_buckets(longest):
    assert choose_buckets(np.ones(longest + 1), 6) == tuple(range(2, longest + 1) or (1,))


def measure(records, **changes):
    arguments = {"sequences": 4, "shards": 2, "max_words": 20, "char_slots": SLOTS, "masking": MASKING} | changes
    return measure_shape(records, **arguments)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([0, 0, 0], 8),  # there is always room for a word
        ([8, 8, 8], 8),
        ([9, 9, 9], 16),
        ([0, 8] * 50, 24),  # 4 and four deviations of 4
        ([20] * 99 + [30], 32),  # 20.1 and four deviations of 0.995 are less than what was met
        ([0] * 999 + [100], 104),  # the largest that was met, although it is far beyond four deviations
    ],
)
def test_a_budget_holds_what_was_met_and_four_deviations(counts, expected):
    assert budget(np.array(counts)) == expected


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
        assert sum(shape.table + shape.masked) < 4 * 20 * 1.5


def test_buckets_are_as_many_as_pay(monkeypatch):
    """One more costs as many slots as its constant says: the more words a shard has, the more buckets pay."""
    rng = np.random.default_rng(0)
    records = records_of(text(rng, rng.integers(3, 18, 1200).tolist(), words=3000))
    count = lambda sequences, **more: len(measure(records, sequences=sequences, sample_shards=4, **more).slots)
    few = [count(sequences) for sequences in (1, 200)]
    assert few == sorted({1, *few})
    assert 1 <= count(200, platform="tpu") == count(200, platform="gpu") < count(200)
    monkeypatch.setattr("charlm.data.budgets.BUCKET_COST", 0)
    assert count(200) == 6


def test_words_share_the_room_of_longer_ones():
    """Shards of short words alone and of long words alone: room for either is kept, not for both at once."""
    short = [[(20 + word, 20 + line) for word in range(12)] for line in range(40)]
    long = [[(20 + word, 20 + line, 20, 20, 20) for word in range(12)] for line in range(40)]
    rows = list(itertools.chain(*zip(short, long, strict=True)))
    shape = measure(
        [record(rows)], shards=1, sequences=1, max_words=14, bucket_slots=(3, SLOTS), masking=Masking(rate=0.01)
    )
    assert sum(shape.table) <= 32  # the mean number of long ones, 6, and four deviations
    assert all(len(shard) == 1 for batch in batches_of([record(rows)], shape) for shard in read(batch))


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
