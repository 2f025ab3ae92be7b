"""Tests comparisons of systems: means over runs, and paired resamples with the coverage that they claim."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from charlm.metrics import (
    compare,
    mean_and_sd,
    paired_bootstrap,
    per_example_classes,
    per_example_entities,
    per_example_numbers,
    score_from_statistics,
    score_of,
)

pytest.importorskip("scipy")


def test_mean_and_sd():
    assert mean_and_sd([80.0, 82.0, 87.0]) == (83.0, pytest.approx(math.sqrt((9 + 1 + 16) / 2)), 3)
    assert mean_and_sd([1, 2]) == (1.5, pytest.approx(math.sqrt(0.5)), 2)
    one = mean_and_sd([80.0])
    assert (one.mean, one.count) == (80.0, 1)
    assert math.isnan(one.sd)
    with pytest.raises(ValueError, match="mean_and_sd: expected at least one value"):
        mean_and_sd([])


def entity_tags(rng, sentences, right):
    gold = [["O", "B-A", "I-A", "B-B"][: rng.integers(1, 5)] for _ in range(sentences)]
    return gold, [[tag if rng.random() < right else "O" for tag in tags] for tags in gold]


def slow_bootstrap(a, b, name, samples, seed):
    """The definition: draw examples, sum their rows, score."""
    rng = np.random.default_rng(seed)
    differences = []
    for drawn in rng.integers(0, len(a), (samples, len(a))):
        scores = [score_from_statistics("entities", rows[drawn].sum(0))[name] for rows in (a, b)]
        differences.append(scores[0] - scores[1])
    return np.quantile(differences, [0.05, 0.95])


def test_interval_is_that_of_resampled_corpus_scores(monkeypatch):
    rng = np.random.default_rng(0)
    gold, good = entity_tags(rng, 50, 0.9)
    bad = [[tag if rng.random() < 0.8 else "O" for tag in tags] for tags in gold]
    a, b = per_example_entities(gold, good), per_example_entities(gold, bad)
    found = paired_bootstrap(a, b, score_of("entities", "f1"), samples=200, seed=3, confidence=0.9)
    assert found.a == score_from_statistics("entities", a.sum(0))["f1"]
    assert found.b == score_from_statistics("entities", b.sum(0))["f1"]
    assert found.difference == found.a - found.b
    assert (found.low, found.high) == pytest.approx(tuple(slow_bootstrap(a, b, "f1", 200, 3)), abs=1e-12)
    monkeypatch.setattr(compare, "_CHUNK_BYTES", 16 * 50 * 7)
    assert paired_bootstrap(a, b, score_of("entities", "f1"), samples=200, seed=3, confidence=0.9) == pytest.approx(
        found
    )
    once = paired_bootstrap(a, b, score_of("entities", "f1"), samples=1)
    assert once.low == once.high
    assert paired_bootstrap(a, b, score_of("entities", "f1"), samples=200, seed=4, confidence=0.9) != found


def test_examples_are_paired():
    """Two systems right on the same examples do not differ, however much the examples do."""
    gold = list("ab" * 200)
    guess = list("aa" * 200)
    rows = per_example_classes(gold, guess)
    found = paired_bootstrap(rows, rows, score_of("classification", "matthews"))
    assert (found.difference, found.low, found.high) == (0, 0, 0)
    better = per_example_classes(gold, gold)
    found = paired_bootstrap(better, rows, score_of("classification", "accuracy"))
    assert 0.4 < found.low < found.difference == 0.5 < found.high < 0.6


def test_interval_of_a_mean_is_the_normal_one():
    rng = np.random.default_rng(1)
    gold = ["x"] * 2000
    a, b = ([("x" if hit else "y") for hit in rng.random(2000) < share] for share in (0.8, 0.75))
    found = paired_bootstrap(
        per_example_classes(gold, a), per_example_classes(gold, b), score_of("classification", "accuracy"), 4000
    )
    gaps = np.array([(p == "x") - (q == "x") for p, q in zip(a, b, strict=True)], float)
    half = 1.96 * gaps.std() / math.sqrt(2000)
    assert found.difference == pytest.approx(gaps.mean())
    assert (found.low, found.high) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=0.1 * half)


def test_systems_may_have_other_classes_and_constant_resamples():
    gold = list("aab")
    a, b = per_example_classes(gold, list("aac")), per_example_classes(gold, list("aab"))
    assert a.shape != b.shape
    found = paired_bootstrap(a, b, score_of("classification", "macro_f1"), samples=50)
    assert found.difference == pytest.approx(1 / 3 - 1)
    numbers = per_example_numbers([1, 2, 3], [2, 1, 3])
    found = paired_bootstrap(numbers, numbers * 1.0, score_of("regression", "pearson"), samples=300)
    assert np.isfinite(found).all(), "a resample of one example has no correlation: it counts as 0"
    resample = score_from_statistics("regression", 3 * numbers[0])
    assert resample["pearson"] == 0


def test_a_thousand_resamples_of_ten_thousand_examples_are_quick():
    rng = np.random.default_rng(2)
    gold, good = entity_tags(rng, 10_000, 0.9)
    a, b = per_example_entities(gold, good), per_example_entities(gold, gold)
    x = rng.normal(size=10_000)
    numbers = [per_example_numbers(x, x + rng.normal(size=10_000) * scale) for scale in (1, 1.1)]
    for rows, metric in (((a, b), score_of("entities", "f1")), (numbers, score_of("regression", "pearson"))):
        paired_bootstrap(*rows, metric, samples=10)
        start = time.process_time()
        paired_bootstrap(*rows, metric)
        assert time.process_time() - start < 3, "about 0.1 s of an idle core"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)), np.ones((3, 3))), r"expected the same examples of both, at least one; got 2, 3"),
        ((np.ones((0, 3)), np.ones((0, 3))), r"at least one; got 0, 0"),
        ((np.ones((2, 3)), np.ones((2, 3)), 0), r"samples=0, confidence=0\.95: expected at least 1"),
        ((np.ones((2, 3)), np.ones((2, 3)), 1, 0, 1.0), r"samples=1, confidence=1\.0"),
        ((np.ones((2, 3)), np.ones((2, 3)), 1, 0, 0.0), r"samples=1, confidence=0\.0"),
    ],
)
def test_errors(arguments, message):
    a, b, *rest = arguments
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(a, b, score_of("classification", "accuracy"), *rest)
    with pytest.raises(ValueError, match=r"score 'f2' of classification: expected one of accuracy, macro_f1"):
        paired_bootstrap(np.ones((2, 3)), np.ones((2, 3)), score_of("classification", "f2"))
