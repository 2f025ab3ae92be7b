"""Tests batches of spelled subwords: each position reads its own spelling or row, nothing is lost, exact resume."""

from __future__ import annotations

import dataclasses
import json

import grain
import jax
import numpy as np
import pytest
from small_char2subword_run import LENGTH, small_tokenizer
from small_charbert import small_records
from trees import assert_same_trees

from charlm.data.lanes import empty_batch
from charlm.data.streams import SequenceStream, sequence_batches
from charlm.data.text_records import TextRecord
from charlm.families.char2subword.masking import CharacterMasking, PieceRows
from charlm.families.char2subword.sequences import SubwordMaker
from charlm.families.char2subword.spelling_vocab import Entries, characters_of
from charlm.families.spelled.masked_batches import MaskedShape, MaskedShard, count_distinct, measure_tables
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.subwords.word_pieces import WordPieces


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    tokenizer = small_tokenizer(tmp_path_factory.getbasetemp() / "small_pieces")
    entries = Entries.of(tokenizer)
    vocab = characters_of(entries, keyboard_for("auto"))
    pieces = PieceRows.of(entries, vocab, tokenizer.size, 64)
    masking = CharacterMasking(0.2, 0.8, 0.1, vocab.size)
    return SubwordMaker(WordPieces(tokenizer), LENGTH, 0, tokenizer, pieces, masking)


@pytest.fixture(scope="module")
def shape(maker):
    longest = maker.pieces.rows_VC.shape[1]
    masked = 3 * maker.masking.most(LENGTH - 2)
    return MaskedShape(shards=2, sequences=3, length=LENGTH, slots=(3, longest), rows=(20, 20), masked=masked)


def sequences_of(records, maker, **options):
    return list(iter(SequenceStream(iter(records), maker, **options).next, None))


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        assert one.number == other.number
        for a, b in zip(one[:3], other[:3], strict=True):
            np.testing.assert_array_equal(a, b)


# ---- Sequences ----


def test_every_subword_once_in_order_and_words_whole(maker):
    records, special = small_records(), maker.tokenizer.special
    words = [pieces for record in records for pieces in maker.words.of(record.texts(), record.spaces.tolist())]
    seen = []
    sequences = sequences_of(records, maker)
    for sequence in sequences:
        assert (sequence.ids_T[0], sequence.ids_T[-1]) == (special.cls, special.sep)
        assert len(sequence.ids_T) <= LENGTH
        assert not sequence.rows_TC[[0, -1]].any()
        assert not sequence.chosen_T[[0, -1]].any()
        seen.append(sequence.ids_T[1:-1].tolist())
    assert [i for ids in seen for i in ids] == [i for word in words for i in word]
    ends = set(np.cumsum([len(word) for word in words]).tolist())
    assert set(np.cumsum([len(ids) for ids in seen]).tolist()) <= ends
    assert np.mean([len(s.ids_T) for s in sequences[:-1]]) > 0.85 * LENGTH  # full, but for what a word leaves


def test_a_word_longer_than_a_sequence_is_cut(maker):
    record = TextRecord.of([3], ["the", "horse" * 14, "the"], [True, True, True])
    names = [maker.tokenizer.token(i) for s in sequences_of([record], maker) for i in s.ids_T[1:-1].tolist()]
    assert "".join(name.removeprefix("##") for name in names) == f"the{'horse' * 14}the"


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_sequences_by_record_are_the_same_in_any_number_of_lanes(maker, lanes):
    records = small_records(11)
    whole = sorted(sequences_of(records, maker, by_record=True), key=lambda s: s.number)
    dealt = []
    for lane in range(lanes):
        dealt += sequences_of(records[lane::lanes], maker, lane=lane, lanes=lanes, by_record=True)
    assert_equal(sorted(dealt, key=lambda s: s.number), whole)
    assert {sequence.number[0] for sequence in whole} == set(range(11))
    assert any(sequence.number[1] for sequence in whole)


def test_halves_hold_all_subwords_and_have_draws_of_their_own(maker):
    sequence = max(sequences_of(small_records(), maker), key=lambda s: len(s.ids_T))
    one, two = maker.halves(sequence)
    np.testing.assert_array_equal(np.concatenate([one.ids_T[1:-1], two.ids_T[1:-1]]), sequence.ids_T[1:-1])
    again = maker.sequence(sequence.ids_T[1:-1].tolist(), (*sequence.number, 1))
    assert (again.chosen_T != sequence.chosen_T).any()


# ---- Batches ----


def dataset(maker, shape, lanes=(0, 1), accumulation=1, prefetch=0, by_record=False, repeat=False, records=None):
    source = grain.MapDataset.source(records or small_records(40))
    whole = source.repeat() if repeat else source
    dealt = {lane: whole[lane :: shape.shards].to_iter_dataset() for lane in lanes}
    sizes = {"of": shape.shards, "accumulation": accumulation, "prefetch": prefetch}
    return sequence_batches(dealt, maker, lambda: MaskedShard(shape, maker.pad), **sizes, by_record=by_record)


def read_at(inputs, rows, place):
    """Returns the row of characters that a position of a shard reads."""
    at = int(inputs.index_SBL[place])
    for chars_UC, count in zip(inputs.chars, rows, strict=True):
        if at < count:
            return chars_UC[at][chars_UC[at] != 0]
        at -= count
    raise AssertionError("no such row")


def check_shard(shard, sequences, maker, shape):
    """Checks every position of a shard against the sequences in it."""
    inputs, B = shard.inputs, shape.sequences
    labels = {}
    for row, sequence in enumerate(sequences):
        T = len(sequence.ids_T)
        np.testing.assert_array_equal(inputs.mask_SBL[row], np.arange(LENGTH) < T)
        for i in range(T):
            spelling = sequence.rows_TC[i][sequence.rows_TC[i] != 0]
            if len(spelling):
                assert inputs.ids_SBL[row, i] == -1
                np.testing.assert_array_equal(read_at(inputs, shape.rows, (row, i)), spelling)
            else:
                assert inputs.ids_SBL[row, i] == sequence.ids_T[i]
                assert inputs.index_SBL[row, i] == 0
            if sequence.chosen_T[i]:
                labels[row * LENGTH + i] = sequence.ids_T[i]
    assert not inputs.mask_SBL[len(sequences) : B].any()
    assert (inputs.ids_SBL[~inputs.mask_SBL] == maker.pad).all()
    real = shard.labels_SM >= 0
    assert dict(zip(shard.position_SM[real].tolist(), shard.labels_SM[real].tolist(), strict=True)) == labels
    assert len(labels) == real.sum()
    for chars_UC in inputs.chars:
        used = chars_UC[chars_UC.any(axis=1)]
        assert len(np.unique(used, axis=0)) == len(used)  # distinct
    return len(labels)


def test_every_position_reads_its_spelling_or_its_row(maker, shape):
    records = small_records(40)
    waiting = [sequences_of(records[lane::2], maker, lane=lane, lanes=2) for lane in range(2)]
    early = labels = 0
    for batch in dataset(maker, shape):
        for number, sequences in enumerate(waiting):
            shard = jax.tree.map(lambda x, s=number: x[0, s], batch)
            count = int(shard.inputs.mask_SBL[:, 0].sum())
            labels += check_shard(shard, sequences[:count], maker, shape)
            del sequences[:count]
            early += count < shape.sequences
    assert waiting == [[], []]  # nothing was left out
    assert early > 4  # the budget closed shards before they were full
    assert labels > 50


def test_a_sequence_that_never_fits_is_halved_and_not_lost(maker, shape):
    tight = shape._replace(rows=(7, 1), masked=shape.masked)
    ids = []
    for batch in dataset(maker, tight, prefetch=0):
        for shard in range(2):
            inputs = jax.tree.map(lambda x, s=shard: x[0, s], batch.inputs)
            ids.append(int(inputs.mask_SBL.sum() - 2 * inputs.mask_SBL[:, 0].sum()))
    total = sum(len(s.ids_T) - 2 for lane in range(2) for s in sequences_of(small_records(40)[lane::2], maker))
    assert sum(ids) == total
    assert max(ids) < LENGTH


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("rows", [(20, 20), (7, 1)])
def test_a_saved_position_goes_on_exactly(maker, shape, prefetch, rows):
    options = {"accumulation": 2, "repeat": True}
    shape = shape._replace(rows=rows)
    whole = iter(dataset(maker, shape, prefetch=prefetch, **options))
    try:
        for _ in range(5):
            next(whole)
        state = json.loads(json.dumps(whole.get_state()))
        want = [next(whole) for _ in range(4)]
    finally:
        close(whole)
    resumed = iter(dataset(maker, shape, prefetch=2 - prefetch // 2, **options))
    try:
        resumed.set_state(state)
        for batch in want:
            assert_same_trees(next(resumed), batch)
    finally:
        close(resumed)


def close(iterator):
    if hasattr(iterator, "close"):
        iterator.close()


def test_a_shard_without_room_for_one_subword_is_refused(maker, shape):
    with pytest.raises(ValueError, match=r"data\.bucket_rows leave no room for a single word or subword"):
        list(dataset(maker, shape._replace(rows=(0, 0))))


def test_labels_by_record_do_not_depend_on_the_number_of_lanes(maker, shape):
    counts = []
    for shards in (1, 2, 4):
        batches = dataset(maker, shape._replace(shards=shards), range(shards), by_record=True)
        counts.append(sum(int((batch.labels_SM >= 0).sum()) for batch in batches))
    assert counts == [counts[0]] * 3
    assert counts[0] > 50


def test_an_empty_batch_has_the_shape_of_the_others_and_no_label(maker, shape):
    empty = empty_batch(MaskedShard(shape, maker.pad).build(), shards=2)
    batch = next(iter(dataset(maker, shape)))
    assert jax.tree.map(np.shape, empty) == jax.tree.map(np.shape, batch)
    assert jax.tree.map(lambda x: x.dtype, empty) == jax.tree.map(lambda x: x.dtype, batch)
    assert not empty.inputs.mask_SBL.any()
    assert (empty.labels_SM == -1).all()


# ---- Budgets ----


def test_measured_tables_hold_nearly_every_shard(maker, shape):
    records = small_records(40) * 10
    slots, rows = measure_tables(records, maker, 6)
    assert slots[-1] == maker.pieces.rows_VC.shape[1]
    assert sorted(set(slots)) == list(slots)
    shape = shape._replace(shards=1, sequences=6, slots=slots, rows=rows, masked=6 * maker.masking.most(LENGTH - 2))
    batches = dataset(maker, shape, (0,), records=records)
    filled = [int(batch.inputs.mask_SBL[..., 0].sum()) for batch in batches][:-1]
    assert np.mean([count == 6 for count in filled]) > 0.98
    used = np.mean([sum((chars.any(axis=-1)).sum() for chars in b.inputs.chars) for b in batches])
    assert sum(rows) < 2.5 * used
    assert measure_tables(records, maker, 6, slots) == (slots, rows)
    assert measure_tables([], maker, 6, slots, rows) == (slots, rows)  # nothing to measure


def test_tables_that_do_not_fit_are_named(maker):
    longest = maker.pieces.rows_VC.shape[1]
    with pytest.raises(ValueError, match=rf"data\.bucket_slots=\(3, 4\) must ascend and end at {longest}, "):
        measure_tables(small_records(), maker, 2, (3, 4))
    with pytest.raises(ValueError, match=r"contextual\.bucket_rows=\(8,\) must name a positive number for each of 2 b"):
        measure_tables(small_records(), maker, 2, (3, longest), (8,), section="contextual")
    with pytest.raises(ValueError, match=r"data\.train: no sentence to measure batches on"):
        measure_tables([], maker, 2)


def test_equal_spellings_share_a_row(maker, shape):
    """Characters that stay as they are hide nothing: the row is that of the subword itself."""
    masking = dataclasses.replace(maker.masking, mask_share=0.0, random_share=0.0, rate=1.0)
    shown = dataclasses.replace(maker, masking=masking)
    plain = dataclasses.replace(maker, masking=dataclasses.replace(masking, rate=1e-9))
    wide = shape._replace(masked=3 * LENGTH)
    for a, b in zip(dataset(shown, wide), dataset(plain, wide), strict=True):
        assert_same_trees(a.inputs, b.inputs)
        assert (a.labels_SM >= 0).any()
        assert not (b.labels_SM >= 0).any()


@pytest.mark.parametrize("count", [0, 1, 40, 3000])
def test_distinct_spellings_are_counted_by_their_lengths(count):
    lengths_N = np.random.default_rng(0).integers(0, 6, count)
    codes_NC = np.random.default_rng(1).integers(1, 3, (count, 5)) * (np.arange(5) < lengths_N[:, None])
    rows_NC = codes_NC.astype(np.uint16)
    distinct = {tuple(row) for row in rows_NC.tolist()}
    expected = [sum(np.count_nonzero(row) == length for row in distinct) for length in range(6)]
    half = count // 2
    np.testing.assert_array_equal(count_distinct([rows_NC[:half], rows_NC[half:]], 5), expected)
