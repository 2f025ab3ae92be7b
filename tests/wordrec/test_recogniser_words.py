"""Tests the words of a recogniser: what is read of a word, which words and characters are known, and their file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm.wordrec.words import OTHER, UNKNOWN, WORDS_FILE, KnownWords

KNOWN = KnownWords(["the", "cat"], "tehca", "rules")


def test_a_word_is_its_ends_and_the_bag_between():
    first_W, inner_WA, last_W = KNOWN.read(["Teehc", "a", "th", "xtty"])
    numbers = {char: n for n, char in enumerate(KNOWN.characters, OTHER + 1)}
    assert first_W.tolist() == [numbers["t"], numbers["a"], numbers["t"], OTHER]
    assert last_W.tolist() == [numbers["c"], numbers["a"], numbers["h"], OTHER]
    expected = np.zeros((4, KNOWN.alphabet), np.uint8)
    expected[0, numbers["e"] - 1], expected[0, numbers["h"] - 1], expected[3, numbers["t"] - 1] = 2, 1, 2
    np.testing.assert_array_equal(inner_WA, expected)


def test_inner_characters_have_no_order_and_the_ends_have():
    one, other, third = (KNOWN.read([word]) for word in ("tehac", "tahec", "ctehat"))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(one, third, strict=True))


def test_a_very_long_word_is_read():
    assert KNOWN.read(["t" + "e" * 1000 + "h"]).inner.max() == 255


def test_the_most_frequent_words_are_known_in_lower_case():
    counts = {"The": 3, "the": 4, "CAT": 5, "dog": 5, "zebra": 1, "Δ": 6}
    known = KnownWords.build(counts, 4, 6, "rules", "en")
    assert known.words == ("the", "Δ".lower(), "cat", "dog")
    assert known.characters == ("t", "e", "h", "δ", "a", "c")
    assert known.labels(["DOG", "the", "zebra", "THE"]).tolist() == [4, 1, UNKNOWN, 1]
    assert [known.word(label) for label in (0, 1, 4)] == ["", "the", "dog"]
    assert (known.size, known.alphabet) == (5, 7)


def test_the_file_holds_all_of_it(tmp_path):
    path = tmp_path / WORDS_FILE
    known = KnownWords(["naïve", "'", "\u2028x"], "né\u2028", "spacy", "de")
    known.save(path)
    again = KnownWords.load(path)
    assert vars(again) == vars(known)
    assert again.digest() == known.digest() != KnownWords(["naïve", "'"], "né", "spacy", "de").digest()


@pytest.mark.parametrize(
    ("words", "characters", "message"),
    [
        ([], "a", "expected words, none empty, got 0"),
        (["a", ""], "a", "none empty"),
        (["a", "b", "a"], "a", "distinct words, got 'a' twice"),
        (["a"], "aba", "distinct characters, got 'a' twice"),
    ],
)
def test_wrong_words_are_refused(words, characters, message):
    with pytest.raises(ValueError, match=message):
        KnownWords(words, characters, "rules")


def test_another_file_is_refused(tmp_path):
    path = tmp_path / WORDS_FILE
    path.write_text(json.dumps({"words": ["a"]}), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{WORDS_FILE} does not hold the words of a recogniser: KeyError"):
        KnownWords.load(path)
