"""Tests passages with one word to classify: the word is found, stays whole, and alone has a tag."""

from __future__ import annotations

import pytest

from charlm.data.examples import Skipped, TextExample
from charlm.data.passages import OUTSIDE, in_passages, places_of


def read(word, text, label="blend", group="3"):
    skipped = Skipped()
    found = list(in_passages([TextExample("1", "f:1", text, word, label, group)], skipped))
    return (found[0] if found else None), skipped.report()


@pytest.mark.parametrize(
    ("word", "text", "words", "tags"),
    [
        ("zoodle", "A Zoodle, no?", "A|Zoodle|,|no|?", "_|blend|_|_|_"),  # NYTWIT's words are in small letters
        ("un-zoodled", "the un-zoodled one", "the|un-zoodled|one", "_|blend|_"),  # the splitter would cut it
        ("zoo", "zoo's (zoo) zoodle", "zoo|'s|(|zoo|)|zoodle", "blend|_|_|blend|_|_"),  # everywhere, as a whole word
        ("a.b", "a.b axb", "a.b|axb", "blend|_"),  # no pattern
        ("ajinaat", "mu’ajinaat.", "mu’|ajinaat|.", "_|blend|_"),
    ],
)
def test_the_word_alone_has_the_class(word, text, words, tags):
    found, report = read(word, text)
    assert ("|".join(found.words), "|".join(found.tags)) == (words, tags)
    assert (found.group, found.id, found.place, report) == ("3", "1", "f:1", [])
    spaced = "".join(w + " " * space for w, space in zip(found.words, found.spaces, strict=True))
    assert spaced.rstrip() == text  # nothing is lost


def test_a_class_that_is_not_known_is_no_tag():
    found, _ = read("cat", "the cat", label=None)
    assert (found.words, found.tags) == (("the", "cat"), None)
    assert OUTSIDE == "_"


def test_what_cannot_be_read_is_counted_or_told():
    found, report = read("dog", "the cat, dogs")
    assert found is None
    assert report == ["skipped 1 x the passage lacks its word: f:1"]
    with pytest.raises(ValueError, match=r"^f:1: expected one word of the passage, got 'two words'$"):
        read("two words", "of two words")
    assert places_of("cat", "Cat cat concat") == [(0, 3), (4, 7)]
