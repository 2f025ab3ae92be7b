"""Tests scores of classes, numbers, tags and entities against libraries, conlleval, and sums over examples."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from charlm.data.tag_schemes import from_entities, strict_entities
from charlm.metrics import (
    classification_scores,
    entity_scores,
    per_example_classes,
    per_example_entities,
    per_example_numbers,
    per_example_tags,
    ranking_scores,
    regression_scores,
    score_from_statistics,
    tag_scores,
)
from charlm.metrics.classification import confusion

pytest.importorskip("sklearn")
pytest.importorskip("scipy")

GOLDENS = Path(__file__).parents[1] / "goldens" / "tasks"


def test_classes_by_hand():
    gold = ["a", "a", "a", "b", "b", "c"]
    predicted = ["a", "a", "b", "b", "a", "d"]
    scores = classification_scores(gold, predicted, positive="a")
    assert scores["accuracy"] == scores["micro_f1"] == pytest.approx(3 / 6)
    assert scores["precision"] == pytest.approx(2 / 3)
    assert scores["recall"] == pytest.approx(2 / 3)
    assert scores["f1"] == pytest.approx(2 / 3)
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 0 + 0) / 4)
    # Matthews of K classes: (c·s - Σ p·t) / sqrt((s² - Σ p²)(s² - Σ t²)).
    assert scores["matthews"] == pytest.approx((3 * 6 - (9 + 4)) / math.sqrt((36 - 14) * (36 - 14)))
    two = classification_scores(["1", "1", "0", "0"], ["1", "0", "0", "0"])
    assert two["matthews"] == pytest.approx(1 / math.sqrt(3))


@pytest.mark.parametrize("predicted", [["a", "a"], ["b", "b"], ["a", "b"]])
def test_classes_of_one_kind_are_defined(predicted):
    scores = classification_scores(["a", "a"], predicted)
    assert scores["matthews"] == 0
    assert scores["accuracy"] == predicted.count("a") / 2
    assert all(math.isfinite(value) for value in scores.values())
    sums = per_example_classes(["a", "a"], predicted).sum(0)
    assert score_from_statistics("classification", sums) == pytest.approx(scores, abs=1e-15)


def test_numbers_by_hand():
    scores = regression_scores([1, 2, 3, 4], [1, 3, 2, 5])
    assert scores["pearson"] == pytest.approx(5.5 / math.sqrt(5 * 8.75))
    assert scores["spearman"] == pytest.approx(0.8)
    assert scores["mse"] == pytest.approx(3 / 4)
    assert regression_scores([1, 2], [3, 3]) == {"pearson": 0, "spearman": 0, "mse": 2.5}
    assert regression_scores([0.1] * 3, [1, 2, 3])["pearson"] == 0
    assert regression_scores([5], [4]) == {"pearson": 0, "spearman": 0, "mse": 1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classification_scores([], []), "no examples to score"),
        (lambda: classification_scores(["a"], []), r"predictions: expected 1 \(one for each of the examples\), got 0"),
        (lambda: classification_scores(["a"], ["b"], positive="c"), "positive class 'c' occurs nowhere; classes: a, b"),
        (lambda: per_example_classes(["a"], []), r"predictions: expected 1"),
        (lambda: per_example_numbers([1], []), r"predictions: expected 1"),
        (lambda: per_example_entities([["O"]], []), r"predictions: expected 1"),
        (lambda: per_example_classes(["a"], ["b"], ["a"]), "class 'b' is none of the labels: a"),
        (lambda: regression_scores([], []), "no examples to score"),
        (lambda: regression_scores([1, 2], [1, math.nan]), "predicted number 1 is nan; expected a finite number"),
        (lambda: tag_scores([["a"], ["b", "c"]], [["a"], ["b"]]), "sentence 1: expected 2 predicted tags, got 1"),
        (lambda: tag_scores([["a"]], []), r"predictions: expected 1 \(one for each of the sentences\), got 0"),
        (lambda: tag_scores([[]], [[]]), "no words to score"),
        (lambda: entity_scores([["O"]], [["NOUN"]]), "tag 'NOUN' marks no entity; expected O or a tag such as B-PER"),
        (lambda: per_example_entities([["O"]], [["X"]]), "tag 'X' marks no entity"),
        (lambda: entity_scores([["S-A"]], [["O"]], strict=True), "tag 'S-A': strict scores are for IOB2"),
        (lambda: score_from_statistics("clas", np.zeros(3)), "task='clas': expected one of classification, regression"),
    ],
)  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("sklearn.metrics", lambda: classification_scores(["a"], ["a"])),
        ("scipy.stats", lambda: regression_scores([1, 2], [1, 2])),
    ],
)
def test_missing_extra_says_how_to_install_it(monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r'scores: .* pip install -e "\.\[eval\]"'):
        call()
    assert ranking_scores(["q"], [1], [0.5])["mrr"] == 1, "what needs no library does without"


def random_tags(rng, tags, sentences=80):
    gold = [[tags[i] for i in rng.integers(0, len(tags), rng.integers(1, 13))] for _ in range(sentences)]
    guess = [[tag if rng.random() < 0.6 else tags[rng.integers(len(tags))] for tag in sentence] for sentence in gold]
    return gold, guess


def conlleval(gold, predicted):
    """Counts phrases as conlleval does: it walks over the words with the state of both columns, and never lists them.

    A phrase is right when it starts and ends at the same words in both columns, with one type. Written from the
    published algorithm; after each sentence stands a word outside of all phrases.
    """

    def parts(tag):
        letter, _, kind = tag.partition("-")
        return letter, kind

    def ends(before, now):
        return before[0] in "BI" and (now[0] in "BO" or before[1] != now[1])

    def starts(before, now):
        return now[0] == "B" or (now[0] == "I" and (before[0] == "O" or before[1] != now[1]))

    correct, found, wanted = Counter(), Counter(), Counter()
    for right, guess in zip(gold, predicted, strict=True):
        under_way, last_right, last_guess = False, ("O", ""), ("O", "")
        for now_right, now_guess in zip(map(parts, [*right, "O"]), map(parts, [*guess, "O"]), strict=True):
            right_ends, guess_ends = ends(last_right, now_right), ends(last_guess, now_guess)
            if under_way and right_ends and guess_ends:
                correct[last_right[1]] += 1
                under_way = False
            elif under_way and (right_ends != guess_ends or now_right[1] != now_guess[1]):
                under_way = False
            right_starts, guess_starts = starts(last_right, now_right), starts(last_guess, now_guess)
            if right_starts and guess_starts and now_right[1] == now_guess[1]:
                under_way = True
            wanted[now_right[1]] += right_starts
            found[now_guess[1]] += guess_starts
            last_right, last_guess = now_right, now_guess
    return correct, found, wanted


def f1(correct, found, wanted):
    return 2 * correct / (found + wanted) if found + wanted else 0.0


def test_entities_equal_conlleval_on_random_tags():
    """3,200 sentences, most of them with phrases that break every scheme."""
    rng = np.random.default_rng(0)
    types = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-creative-work", "I-creative-work"]
    for _ in range(40):
        gold, predicted = random_tags(rng, types)
        correct, found, wanted = conlleval(gold, predicted)
        scores = entity_scores(gold, predicted)
        assert scores["precision"] == pytest.approx(correct.total() / found.total(), abs=1e-12)
        assert scores["recall"] == pytest.approx(correct.total() / wanted.total(), abs=1e-12)
        assert scores["f1"] == pytest.approx(f1(correct.total(), found.total(), wanted.total()), abs=1e-12)
        for kind in ("PER", "LOC", "creative-work"):
            assert scores[f"f1/{kind}"] == pytest.approx(f1(correct[kind], found[kind], wanted[kind]), abs=1e-12)
            assert scores[f"support/{kind}"] == wanted[kind]
        kinds = [
            f1(correct[kind], found[kind], wanted[kind]) for kind in {*found, *wanted} if found[kind] + wanted[kind]
        ]
        assert scores["macro_f1"] == pytest.approx(np.mean(kinds), abs=1e-12)


def test_entities_equal_the_original_conlleval():
    golden = json.loads((GOLDENS / "conlleval.json").read_text())
    gold, predicted = ([tags.split() for tags in golden[name]] for name in ("gold", "predicted"))
    counts = conlleval(gold, predicted)
    assert [part.total() for part in counts] == [golden["correct"], golden["found"], golden["phrases"]]
    scores = entity_scores(gold, predicted)
    assert scores["precision"] == golden["correct"] / golden["found"]
    assert scores["recall"] == golden["correct"] / golden["phrases"]
    for kind, values in golden["types"].items():
        for ours, theirs in (("precision", "precision"), ("recall", "recall"), ("f1", "FB1")):
            assert f"{100 * scores[f'{ours}/{kind}']:.2f}" == f"{values[theirs]:.2f}"
    row = per_example_entities(gold, predicted).sum(0)
    assert row[1] == golden["tokens"]
    assert row[2:].reshape(3, -1).sum(1).tolist() == [golden["correct"], golden["found"], golden["phrases"]]


def test_strict_entities_drop_what_breaks_iob2():
    gold, predicted = [["B-A", "I-A", "O"], ["O", "B-A"]], [["I-A", "I-A", "O"], ["I-B", "B-A"]]
    lenient, strict = entity_scores(gold, predicted), entity_scores(gold, predicted, strict=True)
    assert (lenient["precision"], lenient["recall"]) == (2 / 3, 1)
    assert (strict["precision"], strict["recall"]) == (1, 1 / 2)
    overall = {"precision", "recall", "f1", "macro_f1", "accuracy"}
    names = ("precision", "recall", "f1", "support")
    assert {*lenient} == overall | {f"{name}/{kind}" for name in names for kind in "AB"}
    assert {*strict} == overall | {f"{name}/A" for name in names}
    assert entity_scores([["I-A"]], [["I-A"]])["f1"] == 1
    assert entity_scores([["I-A"]], [["I-A"]], strict=True)["f1"] == 0


def test_other_letters_mark_the_same_entities():
    gold = [["B-A", "I-A", "E-A", "O", "S-B", "S-B"]]
    bilou = [["B-A", "I-A", "L-A", "O", "U-B", "U-B"]]
    bmes = [["B-A", "M-A", "E-A", "O", "W-B", "O"]]
    assert entity_scores(gold, bilou)["f1"] == 1
    assert entity_scores(bmes, gold)["precision"] == 2 / 3
    assert score_from_statistics("entities", per_example_entities(bmes, gold).sum(0))["precision"] == 2 / 3
    words = entity_scores([["B", "E", "S"]], [["S", "S", "B"]])
    assert (words["precision"], words["recall"]) == (1 / 3, 1 / 2)


@pytest.mark.parametrize("strict", [False, True])
def test_no_entities_score_nothing(strict):
    nothing = {"precision": 0, "recall": 0, "f1": 0, "macro_f1": 0, "accuracy": 1}
    assert entity_scores([["O", "O"]], [["O", "O"]], strict=strict) == nothing
    sums = per_example_entities([["O", "O"]], [["O", "O"]], strict=strict).sum(0)
    assert score_from_statistics("entities", sums) == nothing
    missed = entity_scores([["B-A"]], [["O"]], strict=strict)
    assert (missed["f1"], missed["precision"], missed["precision/A"], missed["f1/A"]) == (0, 0, 0, 0)
    invented = entity_scores([["O"]], [["B-A"]], strict=strict)
    assert (invented["recall"], invented["recall/A"], invented["support/A"]) == (0, 0, 0)
    assert entity_scores([["O"]], [["B-A"]], strict=strict)["f1"] == 0


def test_rows_of_sentences_are_the_sentences():
    gold, predicted = [["x", "y"], [], ["y"]], [["x", "x"], [], ["y"]]
    rows = per_example_tags(gold, predicted)
    assert rows.tolist() == [[1, 0, 2, 0, 1, 1], [0] * 6, [0, 1, 0, 1, 0, 1]]
    assert tag_scores(gold, predicted)["accuracy"] == 2 / 3
    entities = per_example_entities([["B-A", "O"], ["B-B", "B-B"]], [["B-A", "B-A"], ["O", "B-B"]])
    assert entities.tolist() == [[1, 2, 1, 0, 2, 0, 1, 0], [1, 2, 0, 1, 0, 1, 0, 2]]


def test_strict_scores_are_those_of_the_repaired_tags():
    rng = np.random.default_rng(3)
    gold, predicted = random_tags(rng, ["O", "B-A", "I-A", "B-B", "I-B"])
    kept = [[from_entities(strict_entities(tags), len(tags)) for tags in part] for part in (gold, predicted)]
    strict = entity_scores(gold, predicted, strict=True)
    again = entity_scores(*kept)
    assert strict["f1"] == again["f1"]
    assert strict["macro_f1"] == again["macro_f1"]


def test_weighted_f1_and_the_confusion_by_hand():
    gold, predicted = ["a", "a", "a", "b"], ["a", "a", "b", "c"]
    scores = classification_scores(gold, predicted)
    assert scores["weighted_f1"] == pytest.approx((3 * (2 * 1 * 2 / 3 / (1 + 2 / 3)) + 1 * 0) / 4)
    assert tag_scores([gold], [predicted])["weighted_f1"] == scores["weighted_f1"]
    rows = ([2, 0, 0], [1, 0, 0], [0, 1, 0])  # predicted a, b and c for gold a, b and c
    assert confusion(gold, predicted, ["a", "b"]).tolist() == [*rows]
