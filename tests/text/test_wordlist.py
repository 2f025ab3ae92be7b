"""Tests that words are ranked by their characters exactly as by trying every word."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from charlm.text.chars import FIRST_CHAR, CharVocab
from charlm.text.wordlist import WordList, best_spellings


def brute_force(log_probs_CV, top):
    """Returns the scores of the likeliest words, by trying them all."""
    C, V = log_probs_CV.shape
    scores = [sum(log_probs_CV[c, v] for c, v in enumerate(ids)) for ids in itertools.product(range(V), repeat=C)]
    return sorted((score for score in scores if score > -np.inf), reverse=True)[:top]


@pytest.mark.parametrize(("C", "V", "top"), [(1, 5, 3), (3, 4, 10), (4, 3, 81), (2, 6, 100), (5, 2, 7)])
def test_best_spellings_are_the_best_of_all(C, V, top):
    rng = np.random.default_rng(C)
    log_probs = np.log(rng.dirichlet(np.ones(V), C))
    found = list(best_spellings(log_probs, top))
    np.testing.assert_allclose([score for score, _ in found], brute_force(log_probs, top), rtol=1e-9)
    assert len({tuple(ids) for _, ids in found}) == len(found) == min(top, V**C)
    for score, ids in found:
        assert score == pytest.approx(log_probs[np.arange(C), ids].sum())


def test_equal_probabilities_give_every_word_once():
    found = [tuple(ids) for _, ids in best_spellings(np.zeros((3, 3)), 100)]
    assert sorted(found) == list(itertools.product(range(3), repeat=3))


def test_what_is_impossible_is_never_proposed():
    with np.errstate(divide="ignore"):
        log_probs = np.log([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.9, 0.1, 0.0]])
    found = list(best_spellings(log_probs, 20))
    assert {tuple(ids) for _, ids in found} == {(0, 2, 0), (1, 2, 0), (0, 2, 1), (1, 2, 1)}
    np.testing.assert_allclose([score for score, _ in found], brute_force(log_probs, 20))


def test_word_list_ranks_its_words_of_one_length():
    vocab = CharVocab("abc")
    words = WordList(["ab", "ba", "abc", "ab", "", "cc", "aé"], vocab)
    assert len(words) == 4  # once each; without "" and what has an unknown character
    log_probs = np.full((2, vocab.size), -9.0)
    log_probs[0, FIRST_CHAR : FIRST_CHAR + 3] = -1.0, -2.0, -3.0
    log_probs[1, FIRST_CHAR : FIRST_CHAR + 3] = -4.0, -0.5, -0.25
    assert words.best(log_probs, 5) == [(-1.5, "ab"), (-3.25, "cc"), (-6.0, "ba")]
    assert words.best(log_probs, 1) == [(-1.5, "ab")]
    assert words.best(log_probs[:1], 5) == []
    assert [word for _, word in words.best(np.concatenate([log_probs, log_probs[:1]]), 5)] == ["abc"]
