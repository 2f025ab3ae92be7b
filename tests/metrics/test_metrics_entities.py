"""Tests that entities are scored as seqeval scores them, to the last bit.

charlm does not depend on seqeval, which is published without a wheel. If it is installed (`pip install seqeval`), these
tests compare with it; `test_metrics.py` compares with the original conlleval's counts and needs nothing.
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.metrics import entity_scores

with_seqeval = pytest.mark.skipif(
    find_spec("seqeval") is None, reason="the oracle of this test is not installed: pip install seqeval"
)
LETTERS = {"iob": "BI", "iobes": "BIES", "bilou": "BILU", "bmes": "BMEW"}
TYPES = ["", "-A", "-B", "-x-y", "-creative work", *(f"-t{n}" for n in range(12))]
TO_IOBES = {"L": "E", "U": "S", "M": "I", "W": "S"}  # seqeval's conlleval mode knows these letters alone


def of(letters):
    """Returns a strategy of gold and predicted tags of some sentences, empty ones and broken schemes among them."""
    tag = st.one_of(st.just("O"), st.tuples(st.sampled_from(letters), st.sampled_from(TYPES)).map("".join))
    sentence = st.lists(st.tuples(tag, tag, st.booleans()), max_size=9)
    parted = lambda rows: ([gold for gold, _, _ in rows], [gold if same else guess for gold, guess, same in rows])
    several = st.lists(sentence.map(parted), min_size=1, max_size=8).filter(lambda pairs: any(g for g, _ in pairs))
    return several.map(lambda pairs: ([gold for gold, _ in pairs], [guess for _, guess in pairs]))


def seqeval_scores(gold, predicted, **options):
    """Returns the report of seqeval under our names."""
    from seqeval.metrics import accuracy_score, classification_report

    scores = dict.fromkeys(("precision", "recall", "f1", "macro_f1"), 0.0)
    scores["accuracy"] = accuracy_score(gold, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            report = classification_report(gold, predicted, output_dict=True, zero_division=0, **options)
        except ValueError:  # numpy's, of the mean of no types
            report = {}
    report.pop("weighted avg", None)
    for kind, values in report.items():
        if kind == "macro avg":
            scores["macro_f1"] = values["f1-score"]
            continue
        values = {name.removesuffix("-score"): float(value) for name, value in values.items()}
        if kind == "micro avg":
            scores |= {name: values[name] for name in ("precision", "recall", "f1")}
        else:
            scores |= {f"{name}/{kind}": value for name, value in values.items()}
    return {name: 0.0 if np.isnan(value) else float(value) for name, value in scores.items()}


@with_seqeval
@pytest.mark.parametrize("scheme", LETTERS)
def test_entities_are_scored_as_seqeval_does(scheme):
    @settings(max_examples=150, deadline=None)
    @given(of(LETTERS[scheme]))
    def check(pair):
        known = [[[TO_IOBES.get(tag[0], tag[0]) + tag[1:] for tag in tags] for tags in part] for part in pair]
        assert entity_scores(*pair) == seqeval_scores(*known)

    check()


@with_seqeval
@settings(max_examples=150, deadline=None)
@given(of("BI"))
def test_strict_entities_are_scored_as_seqeval_does(pair):
    from seqeval.scheme import IOB2

    assert entity_scores(*pair, strict=True) == seqeval_scores(*pair, mode="strict", scheme=IOB2)


@with_seqeval
def test_many_sentences_of_many_types_are_scored_as_seqeval_does():
    rng = np.random.default_rng(0)
    tags = ["O", "O", *(letter + kind for letter in "BI" for kind in TYPES)]
    for _ in range(20):
        gold = [[tags[i] for i in rng.integers(0, len(tags), rng.integers(1, 20))] for _ in range(60)]
        guess = [[tag if rng.random() < 0.7 else tags[rng.integers(len(tags))] for tag in one] for one in gold]
        assert entity_scores(gold, guess) == seqeval_scores(gold, guess)


def test_entities_need_no_library(monkeypatch):
    for name in ("seqeval", "seqeval.metrics", "sklearn", "sklearn.metrics", "scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    gold, predicted = [["B-A", "I-A", "O", "B-B"], ["B", "O"]], [["B-A", "I-A", "B-B", "I-B"], ["I", "B-B"]]
    assert entity_scores(gold, predicted) == {
        "precision": 2 / 4, "recall": 2 / 3, "f1": 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3), "macro_f1": 2 / 3,
        "precision/A": 1.0, "recall/A": 1.0, "f1/A": 1.0, "support/A": 1.0,
        "precision/B": 0.0, "recall/B": 0.0, "f1/B": 0.0, "support/B": 1.0,
        "precision/_": 1.0, "recall/_": 1.0, "f1/_": 1.0, "support/_": 1.0, "accuracy": 2 / 6,
    }  # fmt: skip
    strict = entity_scores(gold, predicted, strict=True)
    assert (strict["precision"], strict["recall"], strict["f1/_"]) == (1 / 3, 1 / 3, 0.0)
