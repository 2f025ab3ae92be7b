"""Tests hidden characters: shares are kept, word marks and lengths stay visible, nothing else changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_char2subword_run import small_tokenizer

from charlm.families.char2subword.masking import CharacterMasking, PieceRows, hide_characters
from charlm.families.char2subword.spelling_vocab import Entries, characters_of
from charlm.text.chars import MASK
from charlm.text.noise.keyboards import keyboard_for

MASKING = CharacterMasking(rate=0.15, mask_share=0.8, random_share=0.1, chars_end=200)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return small_tokenizer(tmp_path_factory.getbasetemp() / "small_pieces")


@pytest.fixture(scope="module")
def spelled(tokenizer):
    entries = Entries.of(tokenizer)
    vocab = characters_of(entries, keyboard_for("auto"))
    return PieceRows.of(entries, vocab, tokenizer.size, 64), vocab


def test_rows_are_the_spellings_of_what_has_one(tokenizer, spelled):
    pieces, vocab = spelled
    longest = 0
    for index in tokenizer.ids():
        token, row = tokenizer.token(index), pieces.rows_VC[index]
        if token.startswith("["):
            assert not row.any()
            continue
        continues = token.startswith("##")
        spelling = token[2:] if continues else f"##{token}"
        assert vocab.decode(row[row != 0].tolist()) == spelling
        assert pieces.marked_V[index] != continues
        longest = max(longest, len(spelling))
    assert pieces.rows_VC.shape == (tokenizer.size, longest)
    assert not pieces.rows_VC[tokenizer.special.cls].any()


def test_what_is_too_long_is_cut(tokenizer, spelled):
    short = PieceRows.of(Entries.of(tokenizer), spelled[1], tokenizer.size, 4)
    np.testing.assert_array_equal(short.rows_VC, spelled[0].rows_VC[:, :4])


def hide(ids, spelled, number=0, **changes):
    masking = dataclasses.replace(MASKING, chars_end=spelled[1].size, **changes)
    return hide_characters(ids, spelled[0], masking, (0, number))


def text_of(tokenizer, size=4000):
    return np.random.default_rng(0).integers(0, tokenizer.size, size)


@pytest.mark.parametrize("whole", [False, True])
def test_eight_tenths_of_the_characters_of_chosen_subwords_are_masked(tokenizer, spelled, whole):
    ids_T, pieces = text_of(tokenizer), spelled[0]
    rows_TC, chosen_T = hide(ids_T, spelled, rate=0.5, whole=whole)
    before_TC = pieces.rows_VC[ids_T]
    np.testing.assert_array_equal(rows_TC[~chosen_T], before_TC[~chosen_T])
    np.testing.assert_array_equal(rows_TC != 0, before_TC != 0)  # lengths
    letters_TC = (before_TC != 0) & chosen_T[:, None]
    letters_TC[pieces.marked_V[ids_T], :2] = False
    np.testing.assert_array_equal(rows_TC[~letters_TC], before_TC[~letters_TC])  # marks
    masked_TC, same_TC = rows_TC == MASK, rows_TC == before_TC
    kinds = spelled[1].size - 8
    for found_TC, share in ((masked_TC, 0.8), (~masked_TC & ~same_TC, 0.1 * (1 - 1 / kinds))):
        assert found_TC[letters_TC].mean() == pytest.approx(share, abs=0.03)
    several_T = chosen_T & (letters_TC.sum(axis=1) > 3)
    alike_T = masked_TC.sum(axis=1) % letters_TC.sum(axis=1).clip(1) == 0  # all or none
    assert alike_T[several_T].all() if whole else alike_T[several_T].mean() < 0.7


def test_the_chosen_are_a_share_of_what_has_a_spelling(tokenizer, spelled):
    ids_T = text_of(tokenizer, 37)
    candidates_T = spelled[0].rows_VC[ids_T].any(axis=1)
    assert 20 < candidates_T.sum() < 37
    counts = []
    for number in range(400):
        _, chosen_T = hide(ids_T, spelled, number)
        assert not chosen_T[~candidates_T].any()
        counts.append(chosen_T.sum())
    wanted = 0.15 * candidates_T.sum()
    assert set(counts) == {int(wanted), int(wanted) + 1}
    assert np.mean(counts) == pytest.approx(wanted, abs=0.1)
    assert max(counts) <= MASKING.most(37)


def test_the_draw_depends_on_the_numbers_alone(tokenizer, spelled):
    ids_T = text_of(tokenizer, 200)
    one, again, other = (hide(ids_T, spelled, number) for number in (3, 3, 4))
    for a, b, c in zip(one, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()
    assert not hide(ids_T, spelled, rate=0.001)[1].any()  # a share of less than one, rounded down


@pytest.mark.parametrize("shares", [(0.0, 0.8, 0.1), (0.15, 0.8, 0.3), (0.15, -0.1, 0.1)])
def test_shares_that_make_no_sense_are_named(shares):
    with pytest.raises(ValueError, match=r"data\.mask_rate must lie in \(0, 1\] and data\.mask_share"):
        CharacterMasking(*shares, 100)
