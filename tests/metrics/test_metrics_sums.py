"""Tests that scores from sums over examples equal those of the libraries, for all examples and for resamples."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.metrics import (
    classification_scores,
    entity_scores,
    per_example_classes,
    per_example_entities,
    per_example_numbers,
    per_example_tags,
    regression_scores,
    score_from_statistics,
    tag_scores,
)

pytest.importorskip("sklearn")
pytest.importorskip("scipy")


def random_tags(rng, tags, sentences=80):
    gold = [[tags[i] for i in rng.integers(0, len(tags), rng.integers(1, 13))] for _ in range(sentences)]
    guess = [[tag if rng.random() < 0.6 else tags[rng.integers(len(tags))] for tag in sentence] for sentence in gold]
    return gold, guess


def close(sums, scores):
    """Whether scores from sums are the library's, as far as both give them."""
    assert set(sums) <= set(scores)
    assert sums == pytest.approx({name: scores[name] for name in sums}, rel=1e-12, abs=1e-12)


def test_sums_over_examples_give_the_libraries_scores():
    rng = np.random.default_rng(1)
    for trial in range(60):
        n, kinds = int(rng.integers(1, 40)), int(rng.integers(1, 6))
        gold = [f"c{i}" for i in rng.integers(0, kinds, n)]
        predicted = [label if rng.random() < 0.5 else f"c{rng.integers(0, kinds + 1)}" for label in gold]
        labels = sorted({*gold, *predicted})
        rows = per_example_classes(gold, predicted)
        assert rows.shape == (n, 3 * len(labels))
        sums = score_from_statistics("classification", rows.sum(0), positive=labels.index(gold[0]))
        close(sums, classification_scores(gold, predicted, positive=gold[0]))

        x = rng.normal(size=n).round(int(rng.integers(0, 3))) + 100
        y = (x + rng.normal(size=n)).round(1)
        close(score_from_statistics("regression", per_example_numbers(x, y).sum(0)), regression_scores(x, y))

        tags = ["O", "B-A", "I-A", "B-B", "I-B", *(["E-A", "S-A", "S-B", "B"] if trial % 2 else [])]
        gold_tags, guess_tags = random_tags(rng, tags, n)
        close(
            score_from_statistics("entities", per_example_entities(gold_tags, guess_tags).sum(0)),
            entity_scores(gold_tags, guess_tags),
        )
        if not trial % 2:
            strict = per_example_entities(gold_tags, guess_tags, strict=True).sum(0)
            close(score_from_statistics("entities", strict), entity_scores(gold_tags, guess_tags, strict=True))
        rows = per_example_tags(gold_tags, guess_tags)
        assert len(rows) == n
        found = score_from_statistics("tags", rows.sum(0))
        assert found["accuracy"] == pytest.approx(tag_scores(gold_tags, guess_tags)["accuracy"], abs=1e-12)
        assert found["macro_f1"] == pytest.approx(tag_scores(gold_tags, guess_tags)["macro_f1"], abs=1e-12)


def test_sums_over_a_resample_give_the_libraries_scores_of_it():
    """In a resample classes and types may be missing, and numbers may not vary."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        n = int(rng.integers(2, 9))
        drawn = rng.integers(0, n, n)

        def take(values, drawn=drawn):
            return [values[i] for i in drawn]

        gold, predicted = (list(rng.choice(list("abcde"), n)) for _ in range(2))
        sums = per_example_classes(gold, predicted)[drawn].sum(0)
        close(score_from_statistics("classification", sums), classification_scores(take(gold), take(predicted)))

        x, y = rng.integers(0, 3, (2, n)).astype(float) + 0.1
        found = score_from_statistics("regression", per_example_numbers(x, y)[drawn].sum(0))
        expected = regression_scores(take(x), take(y))
        assert found["pearson"] == pytest.approx(expected["pearson"], abs=1e-9)
        assert found["mse"] == pytest.approx(expected["mse"], abs=1e-12)
        ranks = [[sum(b < a for b in values) + sum(b == a for b in values) / 2 for a in values] for values in (x, y)]
        by_ranks = regression_scores(*map(take, ranks))["pearson"]
        assert found["spearman"] == pytest.approx(by_ranks, abs=1e-9), "ranks are those in the whole set"

        gold_tags, guess_tags = random_tags(rng, ["O", "O", "B-A", "I-A", "B-B", "B-C"], n)
        sums = per_example_entities(gold_tags, guess_tags)[drawn].sum(0)
        close(score_from_statistics("entities", sums), entity_scores(take(gold_tags), take(guess_tags)))
        found = score_from_statistics("tags", per_example_tags(gold_tags, guess_tags)[drawn].sum(0))
        assert found["macro_f1"] == pytest.approx(tag_scores(take(gold_tags), take(guess_tags))["macro_f1"], abs=1e-12)


def test_many_sums_at_once_are_the_sums_one_by_one():
    rng = np.random.default_rng(2)
    rows = per_example_classes(list("aabbccdab"), list("abbbcadaa"))
    sums = rng.integers(0, 5, (6, len(rows))) @ rows
    at_once = score_from_statistics("classification", sums, positive=1)
    for i in range(6):
        alone = score_from_statistics("classification", sums[i], positive=1)
        assert alone == {name: values[i] for name, values in at_once.items()}
