"""Tests XRayEmb's sequences: selected words become one position, and only subwords are hidden and predicted."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from small_xrayemb_run import SLOTS, row_text, sequences_of, small_maker

from charlm.data.masking import Hiding


@pytest.fixture(scope="module", params=("bert", "gpt2"))
def maker(request, xray_folder):
    return small_maker(xray_folder, request.param)


def test_positions_spell_the_text_again(maker):
    """What stands at the positions, subwords and words, is what the subwords were, in their order."""
    spelled = 0
    unknown = maker.tokenizer.special.unk
    for sequence in sequences_of(maker):
        assert (sequence.rows_TC[:, 0] != 0).tolist() == (sequence.ids_T == -1).tolist()
        inner = slice(1, -1) if maker.framed else slice(None)
        if unknown in sequence.pieces:  # its characters are lost
            continue
        texts = [row_text(row) for row in sequence.written_TC[inner]]
        runs = maker.found.find(sequence.pieces)
        whole = "".join(runs.chars).encode("utf-8", "surrogateescape").decode()  # characters in two pieces
        got = "".join(texts)
        if any(len(text) == SLOTS - 2 for text in texts):  # cut
            assert whole.startswith(got[: SLOTS - 2])
        else:
            assert got == whole
        multi = int((runs.counts_W > 1).sum())
        assert (sequence.ids_T == -1).sum() == multi
        assert len(sequence.ids_T) - 2 * maker.framed == len(sequence.pieces) - (runs.counts_W - 1).sum()
        spelled += multi
    assert spelled > 40


def test_labels_are_subwords_alone(maker):
    """Neither special tokens nor spelled words are predicted, and every label is what stood there."""
    quiet = dataclasses.replace(maker, hiding=None)
    labels = 0
    for sequence in sequences_of(maker):
        special, clean = maker.tokenizer.special, plain_ids(quiet, sequence)
        if maker.framed:
            for place in np.flatnonzero(sequence.labels_T >= 0):
                assert clean[place] == sequence.labels_T[place] not in (special.cls, special.sep, -1)
            changed = sequence.ids_T != clean
            assert not (changed & (sequence.labels_T < 0)).any()
        else:
            np.testing.assert_array_equal(sequence.labels_T[:-1], clean[1:])  # -1 before a word, too
            assert sequence.labels_T[-1] == -1
        labels += (sequence.labels_T >= 0).sum()
    assert labels > 60


def plain_ids(maker, sequence):
    """Returns the positions of a sequence before anything was hidden."""
    runs = maker.found.find(sequence.pieces)
    ids = maker._collapsed(sequence.pieces, runs, runs.counts_W > 1)[0]
    if len(ids) == len(sequence.ids_T):
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
    reseeded = dataclasses.replace(maker, seed=1).sequence(sequence.pieces, sequence.number)
    for changed in (other, reseeded):
        assert (
            changed.learned_WC.shape != sequence.learned_WC.shape or (changed.learned_WC != sequence.learned_WC).any()
        )
    one, two = maker.halves(sequence)
    assert one.pieces + two.pieces == sequence.pieces


def test_what_is_written(xray_folder):
    maker = small_maker(xray_folder, writes="masked", share=0.5)
    everything = sequences_of(small_maker(xray_folder))
    some = sequences_of(maker)
    for sequence in some:
        assert not (sequence.written_TC.any(axis=1) & (sequence.labels_T < 0)).any()
    count = lambda found: sum(int(s.written_TC.any(axis=1).sum()) for s in found)
    labels = sum(int((s.labels_T >= 0).sum()) for s in everything)
    assert 0.35 * labels < count(some) < 0.65 * labels
    assert count(everything) > 4 * labels
    assert count(sequences_of(small_maker(xray_folder, writes=""))) == 0


def test_of_hidden_subwords_a_tenth_stays_and_a_tenth_is_another():
    mask, count = 5, 50_000
    hiding = Hiding(0.4, 0.8, 0.1, mask, np.arange(100, 200, dtype=np.int32))
    ids = np.arange(count, dtype=np.int32) + 1000  # none is a random one
    inputs, labels = hiding.hide(ids, np.arange(0, count, 2), np.random.default_rng(0))
    chosen = labels >= 0
    assert chosen.sum() == 0.4 * count / 2
    np.testing.assert_array_equal(labels[chosen], ids[chosen])
    np.testing.assert_array_equal(inputs[~chosen], ids[~chosen])
    share = lambda found: found[chosen].mean()
    shares = share(inputs == mask), share((inputs >= 100) & (inputs < 200)), share(inputs == ids)
    np.testing.assert_allclose(shares, (0.8, 0.1, 0.1), atol=0.01)
    assert len(np.unique(inputs[(inputs >= 100) & (inputs < 200)])) == 100
