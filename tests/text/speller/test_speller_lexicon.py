"""Tests the known words: their probabilities, and which of them lie near a typed word."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from charlm.text.speller import Lexicon, mixed
from charlm.text.speller.lexicon import LONGEST, MOST_LONGER

WORDS = {"the": 30, "then": 5, "thee": 1, "cat": 2, "subscription": 1, "a": 20, "b2b": 1, "x" * (LONGEST + 1): 1}


def near(lexicon, typed, most):
    return lexicon.of_rows(lexicon.nearest(typed, most))[0]


def test_probabilities_are_shares_of_the_counts():
    lexicon = Lexicon(WORDS)
    assert len(lexicon) == len(WORDS)
    assert math.exp(lexicon.log_prior["the"]) == pytest.approx(30 / sum(WORDS.values()))
    assert sum(map(math.exp, lexicon.log_prior.values())) == pytest.approx(1)
    assert "b2b" in lexicon
    assert "dog" not in lexicon


def test_the_nearest_words_have_the_most_letters_in_common():
    lexicon = Lexicon(WORDS)
    assert set(near(lexicon, "teh", 3)) == {"the", "thee", "then"}
    assert near(lexicon, "subscirption", 1) == ["subscription"]
    assert near(lexicon, "zzz", 5) == []
    assert near(lexicon, "日本", 5) == []


def test_the_nearest_of_many_words_are_those_of_the_definition():
    """The measure by its definition, word by word; words that are equally near may stand for each other."""
    rng = np.random.default_rng(0)
    words = sorted({"".join(rng.choice([*"eeeettaaoinshrdlxq"], rng.integers(2, 12))) for _ in range(800)})
    lexicon = Lexicon(dict.fromkeys(words, 1))

    def features(word):
        ended = f"^{word}$"
        return Counter([*word, *map("".join, itertools.pairwise(ended)), *zip(ended, ended[2:], strict=False)])

    def nearness(typed, word):
        one, other = features(typed), features(word)
        shared = sum(count * other[name] for name, count in one.items())
        return shared / math.hypot(*other.values()) if abs(len(word) - len(typed)) <= MOST_LONGER else 0.0

    for typed in ("tehsar", "xq", "interation", "aaaa"):
        measured = sorted((nearness(typed, word) for word in words), reverse=True)
        found = sorted((nearness(typed, word) for word in near(lexicon, typed, 50)), reverse=True)
        np.testing.assert_allclose(found, measured[:50], rtol=1e-5)


def test_single_letters_words_with_digits_and_endless_ones_are_known_but_nothing_is_corrected_to_them():
    lexicon = Lexicon(WORDS)
    assert not {"a", "b2b", "x" * (LONGEST + 1)} & {*near(lexicon, "ab2bx" + "x" * LONGEST, 100)}
    only = Lexicon({"a": 1})
    assert only.nearest("ab", 5).size == 0


def test_rows_come_with_letters_and_probabilities():
    lexicon = Lexicon(WORDS)
    words, codes_KC, prior_K = lexicon.of_rows(np.array([3, 0]))
    assert words == ["cat", "the"]
    assert ["".join(map(chr, row)) for row in codes_KC.tolist()] == ["cat", "the"]
    np.testing.assert_allclose(prior_K, [lexicon.log_prior["cat"], lexicon.log_prior["the"]])


def test_a_mixture_has_the_words_of_both_at_their_shares():
    found = mixed({"a": 1, "b": 3}, {"b": 1}, 0.5)
    assert found == pytest.approx({"a": 0.125, "b": 0.875})


@pytest.mark.parametrize("counts", [{}, {"a": 0}, {"a": -1.0}, {"a": math.nan}, {"a": math.inf}])
def test_other_counts_are_refused(counts):
    with pytest.raises(ValueError, match="expected words with positive counts"):
        Lexicon(counts)
