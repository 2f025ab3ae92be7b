"""Tests models behind defences, which read corrected text and answer for the text before, and published attacks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from render_cases import BERT, HLM, HOSTILE, full
from render_reading import written

from charlm.data.examples import TaggedExample, TextExample
from charlm.robustness.defended import DefendedRunner
from charlm.robustness.recipe_search import search
from charlm.robustness.recipes import RECIPES, STOP_WORDS, AttackedWords, distance
from charlm.robustness.settings import ReportSettings
from charlm.tasks.classification import Classification, ClassPrediction
from charlm.tasks.columns import Columns
from charlm.tasks.tagging import Tagging
from charlm.text.defences import defence_of
from charlm.text.noise import Edit
from charlm.text.noise.edits import NoisedWords
from charlm.text.words import split


class Echo:
    """Stands for a model's evaluator: what it reads is what it predicts."""

    units = None

    def __init__(self, predict):
        self._predict, self.texts = predict, []

    def prepare(self, examples):
        return list(examples)

    def predict(self, params, examples):
        return [self._predict(example) for example in examples]

    def predict_with_loss(self, params, examples):
        self.texts += [example.text for example in examples]
        found = self.predict(params, examples)
        return found, np.array([[1 - prediction.probabilities[0], 1] for prediction in found])


def runner(task, predict, *defences):
    pretrained = SimpleNamespace(config=None)
    model = SimpleNamespace(task=task, evaluator=Echo(predict), pretrained=pretrained, params=None)
    return DefendedRunner(model, [defence_of(name) for name in defences])


def test_a_model_reads_corrected_text():
    task = Classification(Columns(), ("bad", "good"))
    example = TextExample("1", "file:1", "p\u0430ypal", "f\u200bine", "good")
    batches = runner(task, lambda one: ClassPrediction(f"{one.text} {one.pair}", (1.0,)), "nfkc")
    assert batches.predict([example]) == [ClassPrediction("paypal fine", (1.0,))]
    assert batches.read([example])[0].text == "paypal"
    assert batches.predict_with_loss([example])[1].tolist() == [0]
    assert "nfkc" in batches.versions[0]


class _Joining:
    """Joins the first two words, as no defence of charlm does."""

    version = "joining"

    def words(self, words, key, spaces=True):
        place = len(words[0])
        return NoisedWords.of(words, [Edit(place, place + 1, "")])


def test_tags_are_those_of_the_words_before():
    batches = runner(Tagging(labels=("O",)), lambda one: tuple(one.words))
    example = TaggedExample("1", "file:1", ("a", "b", "c"), ("O", "O", "O"))
    assert batches.predict([example]) == [("a", "b", "c")]
    batches._defences = [_Joining(), defence_of("nfkc")]
    assert batches.predict([example]) == [("ab", "ab", "c")]


# ---- Published attacks ----

GOOD, BAD = ClassPrediction("good", (0.9, 0.1)), ClassPrediction("bad", (0.1, 0.9))


def by_word(example):
    """Predicts "good" from the word "wonderful"; the loss grows with every other word that is unknown."""
    known = {"it", "was", "wonderful", "film", "and", "music"}
    unknown = sum(word not in known for word in example.text.split())
    if "wonderful" in example.text:
        return ClassPrediction("good", (0.9 - unknown / 100, 0.1))
    return BAD


def example_of(text, number=0):
    return TextExample(f"{number}", "file:1", text, None, "good")


@pytest.mark.parametrize("recipe", RECIPES)
def test_attacks_change_the_word_that_matters_and_count_what_they_ask(recipe):
    task = Classification(Columns(), ("bad", "good"))
    batches = runner(task, by_word)
    texts = ["it was a wonderful film and music", "it was a film"]
    won, skipped = search(task, batches, [example_of(text, n) for n, text in enumerate(texts)], recipe)
    assert (won.succeeded, won.skipped) == (True, False)
    assert (won.attacked.prediction.label, won.attacked.attacked_prediction.label) == ("good", "bad")
    assert [edit.before for edit in won.attacked.edits] == ["wonderful"]
    assert won.attacked.example.text.startswith("it was a ")
    assert won.attacked.example.text.endswith(" film and music")
    assert won.words == 7
    asked = [text for text in batches._model.evaluator.texts if text != texts[1]]
    assert won.queries == len(asked)
    assert (skipped.succeeded, skipped.skipped, skipped.queries) == (False, True, 1)
    assert skipped.attacked.edits == ()
    again = search(task, runner(task, by_word), [example_of(texts[0])], recipe)
    assert again == [won]


@pytest.mark.parametrize("recipe", RECIPES)
def test_attacks_keep_their_budgets(recipe):
    """Against a model that always loses more with each edit and never changes its answer."""
    words = [f"word{chr(97 + n)}{chr(98 + n)}" for n in range(24)] + ["the", "was", "not", "cat"]
    original = " ".join(words)
    changed = lambda text: len(set(words) - set(text.split()))
    worse = lambda one: ClassPrediction("good", (0.9 - changed(one.text) / 1000, 0.1))
    task = Classification(Columns(), ("bad", "good"))
    (found,) = search(task, runner(task, worse), [example_of(original)], recipe)
    edits = found.attacked.edits
    assert not found.succeeded
    assert len({edit.word for edit in edits}) == len(edits) > 0
    assert not {edit.before for edit in edits} & STOP_WORDS
    if recipe == "pruthi2019":
        assert len(edits) == 1
        assert edits[0].before.startswith("word")
    if recipe == "deepwordbug":
        assert 25 < sum(distance(edit.before, edit.after) for edit in edits) <= 30
    if recipe == "textbugger":
        assert len(edits) > 20
    assert found.queries > len(edits)


def test_the_edits_of_an_attack():
    draw = np.random.default_rng(0)
    assert len(RECIPES["deepwordbug"].variants("word", draw)) == 4
    assert RECIPES["deepwordbug"].variants("a", draw) == []
    space, deleted, swapped, *alike = RECIPES["textbugger"].variants("word", draw)
    assert space.replace(" ", "") == "word"
    assert (len(deleted), sorted(swapped)) == (3, sorted("word"))
    assert (deleted[0], deleted[-1], swapped[0], swapped[-1]) == ("w", "d", "w", "d")
    assert [one[n].isascii() for one in alike for n in range(4)] == [n != m for m in range(4) for n in range(4)]
    words = "I don't like 'well-known' stuff, _e.g._ 3.5"
    assert split(words, AttackedWords()).words == ("I", "don't", "like", "well-known", "stuff", "e", "g", "3", "5")
    found = RECIPES["pruthi2019"].variants("word", draw)
    assert all(one[0] == "w" and one[-1] == "d" for one in found)
    assert {"wrod", "wod", "wird"} <= set(found)
    assert [RECIPES[name].variants("a", draw) for name in ("pruthi2019", "textbugger")] == [[], ["ɑ"]]


def test_unknown_defences_and_attacks_are_refused():
    with pytest.raises(ValueError, match="--defence=nfkd: 'nfkd' is not one of"):
        ReportSettings(("m",), ("d",), "o", defence=("nfkd",))
    with pytest.raises(ValueError, match=r"--attack=textfooler: expected one of deepwordbug, .*; did you mean"):
        ReportSettings(("m",), ("d",), "o", attack=("textfooler",))
    assert ReportSettings(("m",), ("d",), "o", defence=["nfkc", "nfkc"]).defence == ("nfkc",)


def test_the_report_names_defences_and_attacks(tmp_path):
    results = full()
    for model, defence in zip(results["models"], ("", "nfkc", ""), strict=True):
        model["defence"] = defence
    entry = {"model": BERT, "recipe": "deepwordbug", "examples": 10, "clean": 0.9, "attacked": 0.25, "skipped": 1}
    results["adversarial"].append(entry | {"success": 0.75, "queries": 31.25, "words": 0.125})
    page, markdown = written(results, tmp_path)
    tables = page.tables
    assert "reads text that was corrected before" in markdown
    assert "reads text that was corrected before" not in written(full(), tmp_path / "plain")[1]
    assert [(row[0], row[-1]) for row in tables["table-models"][1:]] == [
        (HLM, "none"),
        (BERT, "nfkc"),
        (HOSTILE, "none"),
    ]
    assert tables["table-attacks"][1:] == [["deepwordbug", BERT, "10", "1", "90.0", "25.0", "75.0 %", "31.2", "12.5 %"]]
    assert len(tables["table-adversarial"]) == 4
