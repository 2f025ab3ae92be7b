"""Tests the measurement of defences word by word, on defences whose results are known."""

from __future__ import annotations

import pytest

from charlm.text.defences import Defence
from charlm.text.noise import Noise
from charlm.wordrec.measure import NONE, Counts, measure, sentences_of, table

SENTENCES = [("The", "quick", "brown", "fox", "24", "!"), ("Lazy", "dogs", "Lazy", "dogs")]


class Knows(Defence):
    """Corrects by a table, and breaks one word."""

    version = "knows"

    def __init__(self, table):
        self._table = table

    def edits(self, text):
        return []

    def corrected(self, words):
        return [self._table.get(word, word) for word in words]


def test_words_with_letters_are_counted_each_behind_its_defence():
    swap = Noise("swap", 0.5)
    nothing = measure(SENTENCES, Noise("swap", 0.0), {NONE: []})[NONE]
    assert nothing == (8, 8, 0, 0)  # numbers and marks do not count
    found = measure(SENTENCES, swap, {NONE: [], "breaks": [Knows({"The": "a", "fox": "b"})]}, seed=3)
    assert found[NONE].misspelled == found["breaks"].misspelled > 0
    assert found[NONE].misspelled_right == 0
    assert found[NONE].right == 8 - found[NONE].misspelled
    assert found["breaks"].right <= found[NONE].right


def test_what_a_defence_brings_back_and_breaks_is_told_apart():
    upper = Noise("case", 1.0)  # words do not differ by their case
    defences = {"one": [Knows({"tHE": "thee"})], "two": [Knows({"tHE": "thee"}), Knows({"thee": "THE"})]}
    found = measure(SENTENCES, upper, defences)
    assert found["one"] == (8, 7, 0, 0)
    assert found["two"] == (8, 8, 0, 0)


def test_shares():
    counts = Counts(words=10, right=7, misspelled=4, misspelled_right=2)
    assert (counts.accuracy, counts.of_misspelled, counts.of_others) == (0.7, 0.5, 5 / 6)
    lines = table({NONE: counts, "symspell": counts}, Noise("drop", 0.1))
    assert lines[0] == "noise drop:0.1: 10 words with letters, 4 of them misspelled"
    assert lines[2].split() == ["none", "70.0", "50.0", "83.3"]
    assert lines[3].split() == ["symspell", "70.0", "50.0", "83.3"]


def test_noise_that_joins_words_is_refused():
    with pytest.raises(ValueError, match=r"noise spaces:1\.0: it joins or cuts words"):
        measure(SENTENCES, Noise("spaces", 1.0), {NONE: []})


def test_sentences_are_those_of_the_corpus(tmp_path):
    path = tmp_path / "text.txt"
    documents = [f"The cat no {n} sat. It slept!" for n in range(60)]
    path.write_text("\n".join(documents) + "\n", encoding="utf-8")
    everything = list(sentences_of(str(path), 0.0, 0))
    assert everything[:2] == [("The", "cat", "no", "0", "sat", "."), ("It", "slept", "!")]
    assert len(everything) == 120
    held = list(sentences_of(str(path), 0.2, 0))
    assert 0 < len(held) < 60
    assert set(held) < set(everything)
    assert len(list(sentences_of(str(path), 0.0, 10))) == 3
