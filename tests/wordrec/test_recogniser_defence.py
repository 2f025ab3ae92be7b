"""Tests a recogniser as a defence: which words it replaces, the three backoffs, and that words keep their places."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from charlm.data.examples import TaggedExample, TextExample
from charlm.robustness.defended import DefendedRunner
from charlm.tasks.classification import Classification, ClassPrediction
from charlm.tasks.columns import Columns
from charlm.tasks.tagging import Tagging
from charlm.wordrec.defence import WordRecognition
from charlm.wordrec.words import KnownWords

TABLE = {"teh": "the", "caat": "cat", "the": "the", "satt": "sat", "2nd": "and", "!": "the", "dno't": "don't"}


class Fake:
    """Recognises words by a table, and keeps what it was asked."""

    def __init__(self, found, digest="0" * 64):
        self.known = KnownWords(["the"], "the", "spaces")
        self.digest, self._found, self.asked = digest, found, []

    def recognise(self, words):
        self.asked.append(tuple(words))
        return tuple(self._found.get(word.lower(), "") for word in words)


def test_words_are_replaced_one_by_one_in_their_case():
    fake = Fake(TABLE)
    words = ["Teh", "CAAT", "satt", "on", "2nd", "!", "Dno't", "the"]
    found = WordRecognition(fake).words(words, 0)
    assert found.words == ("The", "CAT", "sat", "on", "2nd", "!", "Don't", "the")
    assert found.first == found.origin == tuple(range(8))
    assert fake.asked == [tuple(words)]  # together, since each is recognised from all


def test_texts_are_corrected_between_their_gaps():
    text = "Teh  caat\nsatt , unknwon"
    found = WordRecognition(Fake(TABLE)).text(text, 0)
    assert found.text == "The  cat\nsat , unknwon"
    assert found.text[slice(*found.move(5, 9))] == "cat"
    assert found.back(9, 12) == (10, 14)
    assert WordRecognition(Fake(TABLE)).text("", 0).edits == ()


def test_protected_spans_stay_where_they_are():
    found = WordRecognition(Fake(TABLE)).text("teh caat", 0, protected=[(2, 5)])
    assert found.text == "teh caat"  # both words lie across a border of the span


def test_backoffs():
    words = ["Teh", "Unknwon", "dog", "7"]
    background = Fake({"unknwon": "unknown"}, digest="1" * 64)
    one = WordRecognition(Fake(TABLE))
    neutral = WordRecognition(Fake(TABLE), neutral="a")
    other = WordRecognition(Fake(TABLE), background=background)
    assert one.words(words, 0).words == ("The", "Unknwon", "dog", "7")  # they pass through
    assert neutral.words(words, 0).words == ("The", "A", "a", "7")
    assert other.words(words, 0).words == ("The", "Unknown", "dog", "7")
    assert background.asked == [tuple(words)]
    assert len({one.version, neutral.version, other.version}) == 3
    assert one.version != WordRecognition(Fake(TABLE, digest="2" * 64)).version


def test_the_background_is_asked_only_where_it_is_needed():
    background = Fake({})
    WordRecognition(Fake(TABLE), background=background).words(["teh", "caat"], 0)
    assert background.asked == []


def test_words_of_a_sentence_are_recognised_together():
    assert WordRecognition(Fake(TABLE)).corrected(["teh", "caat"]) == ["the", "cat"]


def runner(task, predict, defence):
    evaluator = SimpleNamespace(
        units=None, prepare=list, predict=lambda params, examples: [predict(example) for example in examples]
    )
    model = SimpleNamespace(task=task, evaluator=evaluator, pretrained=SimpleNamespace(config=None), params=None)
    return DefendedRunner(model, [defence])


def test_tags_and_classes_are_those_of_the_text_before():
    defence = WordRecognition(Fake(TABLE))
    tagger = runner(Tagging(labels=("O",)), lambda one: tuple(one.words), defence)
    example = TaggedExample("1", "file:1", ("Teh", "caat", "x"), ("O", "O", "O"))
    assert tagger.predict([example]) == [("The", "cat", "x")]
    classifier = runner(
        Classification(Columns(), ("bad", "good")),
        lambda one: ClassPrediction(f"{one.text}|{one.pair}", (1.0,)),
        defence,
    )
    assert classifier.predict([TextExample("1", "file:1", "teh x", "satt", "good")])[0].label == "the x|sat"
    assert classifier.versions == [defence.version]


@pytest.mark.parametrize("words", [[], ["a"]])
def test_few_words(words):
    assert list(WordRecognition(Fake(TABLE)).words(words, 0).words) == words
