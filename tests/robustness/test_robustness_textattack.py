"""Tests the comparison with TextAttack: what is counted, and, where it is installed, that both searches agree."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from charlm.core import extras
from charlm.data.examples import TextExample
from charlm.robustness import textattack
from charlm.robustness.recipes import RECIPES
from charlm.robustness.textattack import Compared, Outcome, Victim, changed, ours, table, theirs
from charlm.tasks.classification import Classification, ClassPrediction
from charlm.tasks.columns import Columns

TEXTS = ("It was a wonderful film, and music", "a dull film", "wonderful", "We don't know their wonderful plans")


class Runner:
    """Predicts "good" where "wonderful" is read, less surely the more other words of four letters are unknown."""

    def __init__(self, changes=True):
        self.changes, self.asked = changes, []

    def predict(self, examples):
        self.asked += [example.text for example in examples]
        found = []
        for example in examples:
            unknown = sum(len(word) >= 4 and word not in " ".join(TEXTS) for word in example.text.split())
            good = 0.9 - unknown / 100 if "wonderful" in example.text or not self.changes else 0.1
            found.append(ClassPrediction("good" if good > 0.5 else "bad", (1 - good, good)))
        return found

    def predict_with_loss(self, examples):
        found = self.predict(examples)
        return found, -np.log([one.probabilities[1] for one in found])


def subject_of(runner):
    return SimpleNamespace(task=Classification(Columns(), ("bad", "good")), batches=runner)


def examples_of(*texts):
    return [TextExample(str(n), f"file:{n}", text, None, "good") for n, text in enumerate(texts)]


def test_changed_words_are_counted_where_a_word_was_cut():
    assert changed("one two three four", "one two three four") == 0
    assert changed("one two three four", "one tvo three four") == 0.25
    assert changed("one two three four", "one t wo three, four!") == 0.25  # by place, three of four would differ
    assert changed("...", "..!") == 0


def test_a_row_counts_what_was_attacked():
    outcomes = (
        Outcome(True, False, 1, 0.0, ""),
        Outcome(False, True, 10, 0.5, ""),
        Outcome(False, True, 20, 0.25, ""),
        Outcome(False, False, 33, 1.0, ""),
    )
    one = Compared("deepwordbug", "charlm", outcomes, 1.6)
    assert one.row() == ("deepwordbug", "charlm", "3", "66.7", "21.0", "37.5", "2")
    assert Compared("deepwordbug", "charlm", outcomes[:1], 0).row()[2:] == ("0", "-", "-", "-", "0")
    head, line, row = table([one]).splitlines()
    assert head.count("|") == line.count("|") == row.count("|") == 8


def test_a_victim_gives_probabilities_that_sum_to_one():
    found = Victim(subject_of(Runner()), examples_of("x")[0])(["wonderful", "dull"])
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [[0.1, 0.9], [0.9, 0.1]])


def test_mistakes_are_one_line(capsys, monkeypatch, tmp_path):
    options = ["--model", str(tmp_path), "--data", "dev.tsv"]
    for given, said in (
        (["--attack", "deepwordbgu"], "did you mean deepwordbug?"),
        (["--examples", "0"], "--examples=0: expected a whole number of at least 1"),
    ):
        assert textattack.main([*options, *given]) == 1
        assert said in capsys.readouterr().err
    monkeypatch.setattr(extras, "missing", lambda *packages: f"{packages[0]} is not installed: pip install it")
    assert textattack.main(options) == 1
    assert "textattack is not installed" in capsys.readouterr().err
    with pytest.raises(ValueError, match="'own' has no counterpart"):
        theirs(subject_of(Runner()), examples_of("x"), "own")


@pytest.mark.parametrize("recipe", RECIPES)
def test_both_searches_agree(recipe):
    """On a model that they must mislead by the same word, and on one that they cannot."""
    pytest.importorskip("textattack")
    runner = Runner()
    one, other = (side(subject_of(runner), examples_of(*TEXTS), recipe) for side in (ours, theirs))
    assert [found.skipped for found in one.outcomes] == [found.skipped for found in other.outcomes]
    assert [found.succeeded for found in one.outcomes] == [True, False, True, True]
    assert [found.succeeded for found in other.outcomes] == [True, False, True, True]
    assert [found.changed for found in one.outcomes] == [found.changed for found in other.outcomes]
    stubborn = subject_of(Runner(changes=False))
    found = [side(stubborn, examples_of(*TEXTS), recipe).outcomes for side in (ours, theirs)]
    asked = [[outcome.queries for outcome in outcomes] for outcomes in found]
    # Random letters and places may give a word itself, or one twice; lookalikes are those of two different tables.
    np.testing.assert_allclose(*asked, rtol=0.15)
