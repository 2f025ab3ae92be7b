"""Sequences and batches of XRayEmb: words really become one position, nothing is lost, exact saved states."""

from __future__ import annotations

import dataclasses
import json

import grain
import jax
import numpy as np
import pytest
from small_char2subword_run import LENGTH
from small_charbert import small_records
from small_xrayemb_run import CHARS, SLOTS, small_maker

from charlm.data.cycle_words import CycleWords
from charlm.data.piece_sequences import PieceStream, halves
from charlm.data.xray_batches import XRayShape, empty_xray_batch, pad_id_of, xray_batches
from charlm.data.xray_budgets import Budgets, measure_budgets
from charlm.text.xray_chars import word_rows
from charlm.text.xray_policies import get_policy

KINDS = ("bert", "gpt2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.getbasetemp() / "small_xrayemb"


@pytest.fixture(scope="module", params=KINDS)
def maker(request, folder):
    return small_maker(folder, request.param)


def sequences_of(maker, count=40, **options):
    return list(iter(PieceStream(iter(small_records(count)), maker, **options).next, None))


def row_text(row):
    return CHARS.decode(row)


# ---- Sequences ----


def test_positions_spell_the_text_again(maker):
    """What stands at the positions, subwords and words, is what the subwords were, in their order."""
    spelled = 0
    unknown = maker.tokenizer.special.unk
    for sequence in sequences_of(maker):
        assert (sequence.rows_LC[:, 0] != 0).tolist() == (sequence.ids_L == -1).tolist()
        inner = slice(1, -1) if maker.framed else slice(None)
        if unknown in sequence.pieces:  # its characters are lost
            continue
        texts = [row_text(row) for row in sequence.written_LC[inner]]
        runs = maker.found.find(sequence.pieces)
        whole = "".join(runs.chars).encode("utf-8", "surrogateescape").decode()  # characters in two pieces
        got = "".join(texts)
        if any(len(text) == SLOTS - 2 for text in texts):  # cut
            assert whole.startswith(got[: SLOTS - 2])
        else:
            assert got == whole
        multi = int((runs.counts_W > 1).sum())
        assert (sequence.ids_L == -1).sum() == multi
        assert len(sequence.ids_L) - 2 * maker.framed == len(sequence.pieces) - (runs.counts_W - 1).sum()
        spelled += multi
    assert spelled > 40


def test_labels_are_subwords_alone(maker):
    """Neither special tokens nor spelled words are predicted, and every label is what stood there."""
    quiet = small_like(maker, hiding=None)
    labels = 0
    for sequence in sequences_of(maker):
        special, clean = maker.tokenizer.special, plain_ids(quiet, sequence)
        if maker.framed:
            for place in np.flatnonzero(sequence.labels_L >= 0):
                assert clean[place] == sequence.labels_L[place] not in (special.cls, special.sep, -1)
            changed = sequence.ids_L != clean
            assert not (changed & (sequence.labels_L < 0)).any()
        else:
            np.testing.assert_array_equal(sequence.labels_L[:-1], clean[1:])  # -1 before a word, too
            assert sequence.labels_L[-1] == -1
        labels += (sequence.labels_L >= 0).sum()
    assert labels > 60


def small_like(maker, **changes):
    return dataclasses.replace(maker, **changes)


def plain_ids(maker, sequence):
    """Returns the positions of a sequence before anything was hidden."""
    runs = maker.found.find(sequence.pieces)
    ids = maker._collapsed(sequence.pieces, runs, runs.counts_W > 1)[0]
    if len(ids) == len(sequence.ids_L):
        return ids
    special = maker.tokenizer.special
    return np.array([special.cls, *ids, special.sep])


def test_learned_words_have_their_own_subwords(maker):
    learned = 0
    for sequence in sequences_of(maker):
        for row, pieces_P in zip(sequence.learned_WC, sequence.pieces_WP, strict=True):
            pieces = pieces_P[pieces_P >= 0].tolist()
            assert (pieces_P[len(pieces) :] == -1).all()
            assert row_text(row) == maker.found.text(pieces)[: SLOTS - 2]
            learned += 1
    words = sum(len(maker.found.find(sequence.pieces)) for sequence in sequences_of(maker))
    assert 0.2 < learned / words < 0.4


def test_draws_depend_on_seed_and_number_alone(maker):
    sequence = sequences_of(maker)[3]
    again = maker.sequence(sequence.pieces, sequence.number)
    jax.tree.map(np.testing.assert_array_equal, tuple(sequence), tuple(again))
    other = maker.sequence(sequence.pieces, (*sequence.number, 1))
    reseeded = small_like(maker, seed=1).sequence(sequence.pieces, sequence.number)
    for changed in (other, reseeded):
        assert (
            changed.learned_WC.shape != sequence.learned_WC.shape or (changed.learned_WC != sequence.learned_WC).any()
        )
    one, two = halves(maker, sequence)
    assert one.pieces + two.pieces == sequence.pieces


def test_what_is_written(folder):
    maker = small_maker(folder, writes="masked", share=0.5)
    everything = sequences_of(small_maker(folder))
    some = sequences_of(maker)
    for sequence in some:
        assert not (sequence.written_LC.any(axis=1) & (sequence.labels_L < 0)).any()
    count = lambda found: sum(int(s.written_LC.any(axis=1).sum()) for s in found)
    labels = sum(int((s.labels_L >= 0).sum()) for s in everything)
    assert 0.35 * labels < count(some) < 0.65 * labels
    assert count(everything) > 4 * labels
    assert count(sequences_of(small_maker(folder, writes=""))) == 0


# ---- Batches ----


def cycle_of(maker, **changes):
    words = ["cat", "dog", "house", "the"]
    fields = {"rows_NC": word_rows(words, CHARS, SLOTS), "counts_N": np.array([8, 4, 2, 1]), "size": 3, "every": 2}
    return CycleWords(**{**fields, "micro_batches": 1, "seed": 0, **changes})


def shape_of(maker, **changes):
    each = maker.hiding.most(LENGTH - 2) if maker.hiding else LENGTH - 1
    fields = {"shards": 2, "sequences": 3, "length": LENGTH, "slots": (6, SLOTS), "rows": (14, 10)}
    fields |= {"predicted": 3 * each, "learned": 16, "pieces": maker.pieces_most}
    fields |= {"written_slots": (5, SLOTS), "written_rows": (30, 30), "cycle_slots": (5, SLOTS), "cycle_rows": (1, 2)}
    return XRayShape(**{**fields, **changes})


def dataset(maker, shape, lanes=(0, 1), accumulation=1, prefetch=0, repeat=False, **cycle):
    source = grain.MapDataset.source(small_records(40))
    whole = source.repeat() if repeat else source
    dealt = {lane: whole[lane :: shape.shards].to_iter_dataset() for lane in lanes}
    made = cycle_of(maker, micro_batches=accumulation, **cycle)
    return xray_batches(dealt, maker, shape, made, accumulation=accumulation, prefetch=prefetch)


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
        length = len(sequence.ids_L)
        np.testing.assert_array_equal(inputs.mask_SBL[b], np.arange(LENGTH) < length)
        np.testing.assert_array_equal(inputs.ids_SBL[b, :length], sequence.ids_L)
        for i in np.flatnonzero(sequence.ids_L == -1):
            np.testing.assert_array_equal(table_row(inputs, shape, inputs.index_SBL[b, i]), sequence.rows_LC[i])
        labels |= {b * LENGTH + i: sequence.labels_L[i] for i in np.flatnonzero(sequence.labels_L >= 0)}
        at = np.flatnonzero(sequence.written_LC[:, 0])
        written |= {b * LENGTH + i: row_text(sequence.written_LC[i]) for i in at}
        learned += [(row_text(r), p.tolist()) for r, p in zip(sequence.learned_WC, sequence.pieces_WP, strict=True)]
    assert (inputs.ids_SBL[~inputs.mask_SBL] == pad_id_of(maker)).all()
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
    streams = [PieceStream(iter(small_records(40)[lane::2]), maker, lane, 2) for lane in range(2)]
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
    empty = empty_xray_batch(shape, pad_id_of(maker), cycle_of(maker), shards=2)
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


def test_words_of_cycles_are_those_of_the_lane(maker):
    """Each shard has the words drawn for it, in its tables, and as many points of the sphere."""
    cycle, found = cycle_of(maker), []
    for number, batch in enumerate(dataset(maker, shape_of(maker))):
        assert [words.shape for words in batch.cycle] == [(1, 2, 1, 5), (1, 2, 2, SLOTS)]
        for lane in range(2):
            drawn = cycle.of(lane, 2, number) if batch.inputs.mask_SBL[0, lane].any() else cycle.none()
            words = [row_text(row) for table in batch.cycle for row in table[0, lane] if row.any()]
            assert sorted(words) == sorted(row_text(row) for row in drawn if row.any())
            np.testing.assert_array_equal(batch.points_SK[0, lane], drawn.any(axis=1))
            found += words
    assert set(found) == {"cat", "dog", "house", "the"}
