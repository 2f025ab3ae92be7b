"""Tests masks over subwords: whole words in the right share, none with noise, the same for the same seed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from charlm.families.charbert.masking import SubwordMasking, mask_subwords

MASK, RANDOM = 4, np.arange(1000, 2000, dtype=np.int32)
PAPER = SubwordMasking(0.1, 0.8, 0.1, MASK, RANDOM)
REFERENCE = dataclasses.replace(PAPER, style="reference")


def text(length=60, seed=0):
    """Returns ids, words and noise of a row of words of one to four subwords."""
    rng = np.random.default_rng(seed)
    groups_T = np.repeat(np.arange(length), rng.integers(1, 5, length))[:length]
    noised_T = rng.random(length)[groups_T] < 0.2
    return rng.integers(10, 900, length).astype(np.int32), groups_T, noised_T


@pytest.mark.parametrize("masking", [PAPER, REFERENCE], ids=["paper", "reference"])
def test_shares_whole_words_and_no_noise(masking):
    kept = hidden = random = chosen = total = 0
    for number in range(1500):
        ids_T, groups_T, noised_T = text(seed=number)
        before = ids_T.copy()
        input_T, labels_T = mask_subwords(ids_T, groups_T, noised_T, masking, (5, number))
        np.testing.assert_array_equal(ids_T, before)
        labelled_T = labels_T >= 0
        for group in np.unique(groups_T):
            assert len(set(labelled_T[groups_T == group])) == 1
        assert not (labelled_T & noised_T).any()
        np.testing.assert_array_equal(labels_T[labelled_T], ids_T[labelled_T])
        np.testing.assert_array_equal(input_T[~labelled_T], ids_T[~labelled_T])
        assert labelled_T.sum() <= masking.most(len(ids_T)) == 6
        kept += int((input_T == ids_T)[labelled_T].sum())
        hidden += int((input_T == MASK).sum())
        random += int((input_T >= 1000).sum())
        chosen, total = chosen + int(labelled_T.sum()), total + len(ids_T)
    assert chosen / total == pytest.approx(0.1, abs=0.002)
    assert [hidden / chosen, random / chosen, kept / chosen] == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@pytest.mark.parametrize("masking", [PAPER, REFERENCE], ids=["paper", "reference"])
def test_numbers_alone_decide(masking):
    first = mask_subwords(*text(), masking, (1, 2))
    for one, other in zip(first, mask_subwords(*text(), masking, (1, 2)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (mask_subwords(*text(), masking, (1, 3))[1] != first[1]).any()


def test_nothing_to_mask():
    none = np.zeros(0, np.int32)
    for masking in (PAPER, REFERENCE):
        assert [len(x) for x in mask_subwords(none, none, none.astype(bool), masking, (0,))] == [0, 0]
        ids_T, groups_T, _ = text()
        _, labels_T = mask_subwords(ids_T, groups_T, np.ones(len(ids_T), bool), masking, (0,))
        assert (labels_T == -1).all()


def test_a_short_row_is_masked_as_often_as_its_share():
    row = np.arange(10, 14, dtype=np.int32), np.arange(4), np.zeros(4, bool)
    found = [mask_subwords(*row, PAPER, (0, n))[1].max() >= 0 for n in range(2000)]
    assert np.mean(found) == pytest.approx(4 * 0.1, abs=0.03)


@pytest.mark.parametrize("shares", [(0.0, 0.8, 0.1), (1.1, 0.8, 0.1), (0.1, 0.8, 0.3), (0.1, -0.1, 0.1)])
def test_impossible_shares(shares):
    with pytest.raises(ValueError, match=r"data\.mask_rate must lie in \(0, 1\] and data\.mask_share"):
        SubwordMasking(*shares, MASK, RANDOM)
