"""Tests how Char2Subword spells pieces and words as rows of ids, and what masking leaves readable."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from charlm.data.masking import Shares
from charlm.families.char2subword.spelling import mask_rows, spell_piece, spell_rows, spell_word
from charlm.text.chars import FIRST_CHAR, MASK, UNK, CharVocab
from charlm.text.subwords.pieces import Surface

GOLDENS = Path(__file__).parents[2] / "goldens" / "char2subword"
VOCAB = CharVocab([*"abcdefghijklmnopqrstuvwxyz#"])


def test_spellings_are_the_golden_ones():
    meta = json.loads((GOLDENS / "module_meta.json").read_text(encoding="utf-8"))["module_a"]
    for token, want in zip(meta["tokens"], meta["spelled"], strict=True):
        continues = token.startswith("##")
        surface = Surface(token[2:] if continues else token, not continues)
        assert spell_piece(surface) == want
        if not continues:
            assert spell_word(token) == want


def test_rows_are_padded_cut_and_know_the_unknown():
    rows = spell_rows(["##ab", "", "naïve", "abcdefgh"], VOCAB, 5)
    assert rows.dtype == np.uint16
    mark, a = VOCAB.ids["#"], FIRST_CHAR
    assert rows.tolist() == [
        [mark, mark, a, a + 1, 0],
        [0] * 5,
        [VOCAB.ids["n"], a, UNK, VOCAB.ids["v"], VOCAB.ids["e"]],
        [a, a + 1, a + 2, a + 3, a + 4],
    ]


@pytest.mark.parametrize("per_word", [False, True])
def test_masking_hides_eight_tenths_and_keeps_length_and_mark(per_word):
    spelled = ["##business", "ness"] * 2000
    rows = spell_rows(spelled, VOCAB, 12)
    marked = np.array([word.startswith("##") for word in spelled])
    chars = (FIRST_CHAR, VOCAB.size)
    before = rows.copy()
    got = mask_rows(rows, marked, np.random.default_rng(0), chars, Shares(0.15, 0.8, 0.1), per_word)
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(got != 0, rows != 0)
    np.testing.assert_array_equal(got[marked, :2], rows[marked, :2])
    letters = rows != 0
    letters[marked, :2] = False
    masked, same = got[letters] == MASK, got[letters] == rows[letters]
    random = ~masked & ~same
    kinds = len(VOCAB.ids)
    for share, want in ((masked, 0.8), (random, 0.1 * (1 - 1 / kinds)), (same, 0.1 * (1 + 1 / kinds))):
        assert abs(share.mean() - want) < 0.02
    assert set(np.unique(got[letters][random])) == set(range(*chars))
    whole = np.array([len(set(row[2:10] == MASK)) == 1 for row in got[marked]])
    assert whole.mean() == 1.0 if per_word else whole.mean() < 0.4


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.3, 0.6)])
def test_shares_of_hidden_characters_can_be_told(shares):
    rows = spell_rows(["##business"] * 2000, VOCAB, 10)
    chars = (VOCAB.size, VOCAB.size + 9)  # none of the spelling's
    got = mask_rows(rows, np.ones(2000, bool), np.random.default_rng(0), chars, Shares(0.15, *shares))[:, 2:]
    for share, want in zip(((got == MASK).mean(), (got >= chars[0]).mean()), shares, strict=True):
        assert share == want if want in (0, 1) else abs(share - want) < 0.02
