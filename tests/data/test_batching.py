"""Tests word tables: each distinct word once, every position right, nothing lost, no trace of refused sequences."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.core.trees import stack
from charlm.data.batching import BatchShape, ShardPacker, WordSequence, bucket_of, halve, inference_slots, pack_all
from charlm.data.word_batch import WordBatch, reshape_batch
from charlm.text.chars import CLS, MASK, SEP, WORD_CLS

SLOTS = 6
EDGES = np.zeros((2, SLOTS), np.uint16)
EDGES[:, 0] = CLS, SEP
SHAPE = BatchShape(1, 3, 12, (2, 4, SLOTS), (8, 8, 8), (4, 4, 4), (6, 6, 6))


def word(*characters: int) -> np.ndarray:
    row = np.zeros(SLOTS, np.uint16)
    row[: len(characters) + 1] = [WORD_CLS, *characters]
    return row


def sequence(words: list[np.ndarray], masked: tuple[int, ...] = ()) -> WordSequence:
    """Returns [CLS] words [SEP]; the words at `masked` read [MASK] all over."""
    chars = np.concatenate([EDGES[:1], np.array(words, np.uint16).reshape(-1, SLOTS), EDGES[1:]])
    labels = np.zeros_like(chars)
    for i in masked:
        labels[i + 1, 1:] = chars[i + 1, 1:]
        chars[i + 1, 1:] = np.where(chars[i + 1, 1:] != 0, MASK, 0)
    return WordSequence(chars, labels)


def random_sequence(rng: np.random.Generator, words: int, distinct: int = 9) -> WordSequence:
    rows = [word(*[8 + i] * (1 + i % (SLOTS - 1))) for i in rng.integers(0, distinct, words)]
    found = sequence(rows, tuple(np.nonzero(rng.random(words) < 0.3)[0]))
    for i in np.nonzero(found.labels_WC.any(axis=1) & (rng.random(words + 2) < 0.4))[0]:
        found.chars_WC[i] = np.where(rng.random() < 0.5, rows[i - 1], found.chars_WC[i])  # chosen, but left as it was
    return found


def read_shard(batch: WordBatch, index: tuple[int, ...] = (0,)) -> list[WordSequence]:
    """Reads a shard back as a model would, checking that all its arrays tell the same story."""
    chars = [x[index] for x in batch.chars]
    masked = [[x if x is None else x[index] for x in bucket] for bucket in batch.masked]
    index_BW, mask_BW = batch.index_SBW[index], batch.mask_SBW[index]
    tables = [bucket[0] for bucket in masked] + chars
    width = max(table.shape[1] for table in tables)
    rows_UC = np.concatenate([np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in tables])
    assert not index_BW[~mask_BW].any() or not chars  # the reshape keeps a row for every position
    chars_BWC = rows_UC[index_BW] * mask_BW[..., None]
    labels_BWC = np.zeros_like(chars_BWC)
    start = 0
    for table, position_M, row_M, labels_MC in masked:
        real_M = labels_MC.any(axis=1)
        assert not real_M[np.argmin(real_M) :].any() or real_M.all()  # masked words come first, empty places behind
        assert not position_M[~real_M].any()
        assert not row_M[~real_M].any()
        assert len(set(position_M[real_M])) == real_M.sum()
        assert mask_BW.reshape(-1)[position_M[real_M]].all()
        np.testing.assert_array_equal(index_BW.reshape(-1)[position_M[real_M]], row_M[real_M] + start)
        at = np.unravel_index(position_M[real_M], mask_BW.shape)
        assert not labels_BWC[at].any()
        labels_BWC[(*at, slice(labels_MC.shape[1]))] = labels_MC[real_M]
        np.testing.assert_array_equal((table[row_M] != 0)[real_M][:, 1:], (labels_MC != 0)[real_M][:, 1:])
        start += len(table)
    lengths = mask_BW.sum(axis=1)
    np.testing.assert_array_equal(mask_BW, np.arange(mask_BW.shape[1]) < lengths[:, None])
    return [WordSequence(c[:n], y[:n]) for c, y, n in zip(chars_BWC, labels_BWC, lengths, strict=True) if n]


def assert_same(got: list[WordSequence], want: list[WordSequence]) -> None:
    assert [len(s.chars_WC) for s in got] == [len(s.chars_WC) for s in want]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.chars_WC, b.chars_WC)
        np.testing.assert_array_equal(a.labels_WC, b.labels_WC)


def assert_equal_batches(got: WordBatch, want: WordBatch) -> None:
    flat = lambda batch: [*batch.chars, *(x for bucket in batch.masked for x in bucket), *batch[2:]]
    assert len(flat(got)) == len(flat(want))
    for a, b in zip(flat(got), flat(want), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def build(shape: BatchShape, sequences: list[WordSequence]) -> WordBatch:
    packer = ShardPacker(shape)
    assert all(packer.add(s) for s in sequences)
    return stack([packer.build()])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 10), min_size=1, max_size=6), st.booleans())
def test_packed_sequences_are_read_back(seed, lengths, all_at_once):
    rng = np.random.default_rng(seed)
    sequences = [random_sequence(rng, length) for length in lengths]
    if all_at_once:
        batch = pack_all(sequences, 12, (2, 4, SLOTS))
    else:
        shape = dataclasses.replace(SHAPE, sequences=6, table=(9, 9, 9), masked=(30, 30, 30), labels=(60, 60, 60))
        batch = build(shape, sequences)
    assert_same(read_shard(batch), sequences)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 10), min_size=1, max_size=12))
def test_every_distinct_word_has_one_row_and_a_refused_sequence_leaves_no_trace(seed, lengths):
    rng = np.random.default_rng(seed)
    shape = dataclasses.replace(SHAPE, sequences=4, table=(4, 4, 3), masked=(3, 3, 3), labels=(3, 3, 3))
    packer, taken = ShardPacker(shape), []
    for length in lengths:
        candidate = random_sequence(rng, length, distinct=20)
        before = stack([packer.build()])
        if packer.add(candidate):
            taken.append(candidate)
        else:
            assert_equal_batches(stack([packer.build()]), before)
    assert len(packer) == len(taken)
    assert packer.full == (len(taken) == 4)
    batch = stack([packer.build()])
    if taken:
        assert_equal_batches(batch, build(shape, taken))
    assert_same(read_shard(batch), taken)
    used = [
        np.pad(t[0], ((0, 0), (0, SLOTS - t.shape[2]))) for t in (*(m.chars_SPC for m in batch.masked), *batch.chars)
    ]
    used = [bytes(row) for table in used for row in table if row.any()]
    assert len(used) == len(set(used)) == len({bytes(row) for s in taken for row in s.chars_WC})


def test_a_packer_refuses_only_what_does_not_fit():
    """The counts of the packer, one budget at a time; at the limit it still takes the sequence."""
    short, middle = [word(8 + i) for i in range(9)], [word(8 + i, 9, 9) for i in range(9)]
    wide = dataclasses.replace(SHAPE, table=(9, 9, 9), masked=(9, 9, 9), labels=(9, 9, 9))
    cases = {
        # [CLS] and [SEP] take two rows of the first bucket, and the last two hold what the first cannot.
        "table": (dataclasses.replace(wide, table=(3, 1, 1)), sequence(short[:3]), sequence(short[:4])),
        "no spill to shorter words": (
            dataclasses.replace(wide, table=(9, 1, 1)), sequence(middle[:2]), sequence(middle[:3]),
        ),
        "masked": (
            dataclasses.replace(wide, masked=(1, 1, 1)),
            sequence([short[0], short[1]], masked=(0, 1)),  # both read [MASK]: one row
            WordSequence(sequence(short[:2]).chars_WC, sequence(short[:2], masked=(0, 1)).labels_WC),
        ),
        "labels": (
            dataclasses.replace(wide, labels=(2, 1, 1)), sequence(short[:3], masked=(0, 2)),
            sequence(short[:3], masked=(0, 1, 2)),
        ),
    }  # fmt: skip
    for name, (shape, fits, too_much) in cases.items():
        assert ShardPacker(shape).add(fits), name
        assert not ShardPacker(shape).add(too_much), name
        assert ShardPacker(wide).add(too_much), name


def test_words_spill_to_longer_buckets_and_are_read_back():
    words = [word(8 + i) for i in range(5)]
    shape = dataclasses.replace(SHAPE, table=(4, 2, 8))
    batch = build(shape, [sequence(words)])
    assert [int(t.any(axis=-1).sum()) for t in batch.chars] == [4, 2, 1]
    assert_same(read_shard(batch), [sequence(words)])


def test_a_word_met_plain_and_then_masked_moves_to_the_masked_table():
    kept = WordSequence(sequence([word(8, 9)]).chars_WC, sequence([word(8, 9)], masked=(0,)).labels_WC)
    shape = dataclasses.replace(SHAPE, table=(2, 1, 0), masked=(1, 1, 1))
    batch = build(shape, [sequence([word(8, 9)]), kept, sequence([word(10, 11)])])  # the row it left is free again
    assert_same(read_shard(batch), [sequence([word(8, 9)]), kept, sequence([word(10, 11)])])
    np.testing.assert_array_equal(batch.masked[1].chars_SPC[0, 0], word(8, 9)[:4])


def test_a_full_packer_takes_nothing():
    packer = ShardPacker(dataclasses.replace(SHAPE, sequences=1))
    assert packer.add(sequence([word(8)]))
    assert packer.full
    assert not packer.add(sequence([]))


def test_reshape_layout_equals_reshape_batch():
    sequences = [random_sequence(np.random.default_rng(i), 5) for i in range(3)]
    labels = sum(int(s.labels_WC.any(axis=1).sum()) for s in sequences)
    shape = BatchShape(1, 3, 12, (SLOTS,), (), (36,), (labels,), unique_words=False)
    arrays = np.zeros((2, 3, 12, SLOTS), np.uint16)
    for b, s in enumerate(sequences):
        arrays[:, b, : len(s.chars_WC)] = s
    assert_equal_batches(build(shape, sequences), reshape_batch(*arrays))
    too_small = dataclasses.replace(shape, labels=(labels - 1,))
    packer = ShardPacker(too_small)
    assert [packer.add(s) for s in sequences] == [True, True, False]


def test_reshape_without_labels_reads_word_vectors_only():
    chars = np.stack([random_sequence(np.random.default_rng(i), 4).chars_WC for i in range(2)])
    batch = reshape_batch(chars)
    assert batch.masked == ()
    np.testing.assert_array_equal(np.stack([s.chars_WC for s in read_shard(batch)]), chars)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_bucket_is_the_shortest_that_holds_the_word(lengths):
    slots = (3, 5, 20)
    want = [next(b for b, size in enumerate(slots) if length <= size) for length in lengths]
    np.testing.assert_array_equal(bucket_of(np.array(lengths), slots), want)


@given(st.integers(2, 20), st.integers(0, 2**32))
def test_halves_hold_every_word_once_and_have_both_ends(words, seed):
    whole = random_sequence(np.random.default_rng(seed), words)
    halves = halve(whole)
    for half in halves:
        np.testing.assert_array_equal(half.chars_WC[[0, -1]], EDGES)
        assert not half.labels_WC[[0, -1]].any()
        assert 3 <= len(half.chars_WC) < len(whole.chars_WC)
    for name in WordSequence._fields:
        inner = np.concatenate([getattr(half, name)[1:-1] for half in halves])
        np.testing.assert_array_equal(inner, getattr(whole, name)[1:-1])


def test_a_sequence_of_one_word_cannot_be_halved():
    with pytest.raises(ValueError, match=r"data\.bucket_words"):
        halve(sequence([word(8)]))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32))
def test_pack_all_has_few_shapes(count, seed):
    rng = np.random.default_rng(seed)
    batch = pack_all([random_sequence(rng, 6, distinct=200) for _ in range(count)], 8, (3, SLOTS))
    B = batch.index_SBW.shape[1]
    assert count <= B < 2 * count
    assert B in {2**k for k in range(12)}
    rows = {*(t.shape[1] for t in batch.chars), *(x.shape[1] for m in batch.masked for x in m)}
    assert rows <= {*range(32, 257, 32), *range(320, 513, 64), *range(640, 1025, 128)}


@pytest.mark.parametrize(("longest", "slots"), [(20, (5, 8, 11, 20)), (11, (5, 8, 11)), (9, (5, 8, 9)), (2, (2,))])
def test_inference_slots_end_at_the_longest_word(longest, slots):
    assert inference_slots(longest) == slots


def test_pack_all_without_masked_words_and_with_empty_texts():
    sequences = [sequence([]), sequence([word(9)]), sequence([])]
    assert_same(read_shard(pack_all(sequences, 4, (2, SLOTS))), sequences)


def test_stack_keeps_every_shard():
    shards = [[random_sequence(np.random.default_rng(i), 7)] for i in range(3)]
    packers = []
    for shard in shards:
        packers.append(ShardPacker(SHAPE))
        assert packers[-1].add(shard[0])
    batch = stack([p.build() for p in packers])
    for i, shard in enumerate(shards):
        assert_same(read_shard(batch, (i,)), shard)
