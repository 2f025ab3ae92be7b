"""Tests what a speller reads and predicts: the words meant, with an end, where they are misspelled or drawn."""

from __future__ import annotations

import dataclasses
import string

import numpy as np
import pytest

from charlm.data.batching import packed, shape_of
from charlm.data.forms import word_rows
from charlm.data.masking import Masking
from charlm.families.hlm.misspelled import END, ROOM, MisspellingMaker, Spelling, fits, is_correctable, labels_of
from charlm.text.chars import MASK, WORD_CLS, CharVocab, WordEncoder
from charlm.text.noise.mixture import Mixture

VOCAB = CharVocab([*string.ascii_letters, *string.punctuation, *string.digits])
SLOTS = 12
WORDS = [
    "Houses",
    "stand",
    ",",
    "between",
    "3.14",
    "the",
    "trees",
    "and",
    "the",
    "mountains",
    "of",
    "Ö",
    "old",
    "towns",
    ".",
]
SPELLING = Spelling(Mixture(("charbert:1:3",)), (), held_out=0.2, most=0.9, clean=0.0, kept=0.3)
ROWS = word_rows(WordEncoder(VOCAB, SLOTS), WORDS)


def maker(**changes):
    return MisspellingMaker(32, SLOTS, Masking(), 5, VOCAB, dataclasses.replace(SPELLING, **changes))


def texts(chars_WC):
    return [VOCAB.decode(row_C[1:]) for row_C in chars_WC[1:-1]]


@pytest.mark.parametrize("number", range(5))
def test_labels_spell_the_words_meant(number):
    sequence = maker().make([ROWS[:6], ROWS[6:]], (number,))
    read = texts(sequence.chars_WC)
    for n, labels_C in enumerate(sequence.labels_WC[1:-1]):
        meant = texts(np.concatenate([ROWS[:1], ROWS[n : n + 1], ROWS[:1]]))[0]
        if labels_C.any():
            assert labels_C[0] == 0
            ends = np.flatnonzero(labels_C == END)
            assert len(ends) == 1
            assert VOCAB.decode(labels_C[1 : ends[0]]) == meant
            assert not labels_C[ends[0] + 1 :].any()
            assert ends[0] <= min(len(read[n]) + ROOM, SLOTS - 1)
            assert is_correctable(meant)
        else:
            assert read[n] == meant, "what is misspelled is predicted"


def test_draws_depend_on_the_number_alone():
    first, again, other = (maker().make([ROWS], (n,)) for n in (1, 1, 2))
    np.testing.assert_array_equal(first.chars_WC, again.chars_WC)
    np.testing.assert_array_equal(first.labels_WC, again.labels_WC)
    assert (first.chars_WC != other.chars_WC).any()


def test_clean_texts_have_no_misspelling():
    sequence = maker(clean=0.9999).make([ROWS], (0,))
    np.testing.assert_array_equal(sequence.chars_WC[1:-1], ROWS)
    assert sequence.labels_WC.any(axis=1).sum() >= 4


def test_some_predicted_words_are_masked():
    """Their lengths show, and the words meant are predicted; what else is read does not change."""
    plain, sequence = (maker(most=0.0, masked=share).make([ROWS], (3,)) for share in (0.0, 0.9999))
    np.testing.assert_array_equal(sequence.labels_WC, plain.labels_WC)
    masked_W = (sequence.chars_WC == MASK).any(axis=1)
    asked_W = plain.labels_WC.any(axis=1)
    assert masked_W.sum() >= 3
    assert not (masked_W & ~asked_W).any()
    np.testing.assert_array_equal(sequence.chars_WC[~masked_W], plain.chars_WC[~masked_W])
    hidden_WC = sequence.chars_WC[masked_W]
    assert (hidden_WC[:, 0] == WORD_CLS).all()
    np.testing.assert_array_equal(hidden_WC[:, 1:] == MASK, plain.chars_WC[masked_W][:, 1:] != 0)


def test_a_text_without_words_to_mend():
    assert not maker().make([ROWS[[2, 4]]], (0,)).labels_WC.any()


def test_words_that_are_mended():
    assert [word for word in ["it's", "cat", "I", "3rd", "#tag", "a.b", "’’", "don’t"] if is_correctable(word)] == [
        "it's", "cat", "don’t",
    ]  # fmt: skip
    assert [fits(*lengths, SLOTS) for lengths in ((5, 5), (7, 5), (8, 5), (11, 11))] == [True, True, False, False]


def test_predicted_words_get_room_in_their_table():
    """A word of five slots is predicted in a table of eight, and one that is only read stays in that of five."""
    labels_WC = np.zeros_like(ROWS)
    labels_WC[WORDS.index("and")] = labels_of(ROWS[WORDS.index("and")])
    sequence = maker(most=0.0, kept=0.0001).make([ROWS], (0,))._replace(labels_WC=np.pad(labels_WC, ((1, 1), (0, 0))))
    shape = shape_of([sequence], 20, (5, 8, SLOTS), ROOM)
    batch = packed([sequence], shape)
    assert [int(bucket.labels_SMC.any(axis=-1).sum()) for bucket in batch.masked] == [0, 1, 0]
    bucket = batch.masked[1]
    row_C = bucket.chars_SPC[0, bucket.row_SM[0, 0]]
    np.testing.assert_array_equal(row_C, ROWS[WORDS.index("and")][:8])
    np.testing.assert_array_equal(bucket.labels_SMC[0, 0], labels_WC[WORDS.index("and")][:8])
    without = packed([sequence], shape_of([sequence], 20, (5, 8, SLOTS)))
    assert [int(bucket.labels_SMC.any(axis=-1).sum()) for bucket in without.masked] == [1, 0, 0]


def test_a_saved_position_holds_what_waits():
    one = maker()
    parts, sequences = [ROWS[:6], ROWS[6:]], [one.make([ROWS], (n,)) for n in (1, 2)]
    back, again = one.restored(one.held(parts, sequences))
    for got, want in zip([*back], parts, strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip([*again], sequences, strict=True):
        np.testing.assert_array_equal(got.chars_WC, want.chars_WC)
        np.testing.assert_array_equal(got.labels_WC, want.labels_WC)
