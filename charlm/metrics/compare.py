"""Compares systems: means over several runs, and confidence intervals from resampled examples (bootstrap).

The robustness report uses it for its intervals and the fine-tuning command for means over seeds. Scores such as entity
F1 or Matthews are not means over examples, but functions of sums over examples. The functions `per_example_*` return
the contribution of each example to these sums, and `score_from_statistics` computes scores from the sums. So all
resamples are scored with one matrix product. Open it to give a new score an interval, or to change how examples are
resampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from charlm.core.types import Option
from charlm.metrics.answers import answer_scores_from_sums
from charlm.metrics.classification import class_scores_from_sums, number_scores_from_sums
from charlm.metrics.ranking import ranking_scores_from_sums
from charlm.metrics.tagging import entity_scores_from_sums

Scores: TypeAlias = dict[str, Any]  # by name: numbers, or arrays [R] for R resamples
Metric = Callable[[np.ndarray], np.ndarray]

_TASKS: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "classification": class_scores_from_sums,  # rows of per_example_classes; option: positive
    "regression": number_scores_from_sums,  # per_example_numbers
    "tags": class_scores_from_sums,  # per_example_tags
    "entities": entity_scores_from_sums,  # per_example_entities
    "squad": answer_scores_from_sums,  # per_example_answers
    "ranking": ranking_scores_from_sums,  # per_example_ranking; option: recall_at
}
_CHUNK_BYTES = 64 << 20  # memory for the examples that are drawn at a time


class MeanAndSd(NamedTuple):
    """Mean and sample standard deviation (divided by count - 1; NaN for a single value)."""

    mean: float
    sd: float
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]  # replaces the method `count` of tuples


class Difference(NamedTuple):
    """The scores of two systems on the same examples, their difference a - b, and its bootstrap interval."""

    a: float
    b: float
    difference: float
    low: float
    high: float


def mean_and_sd(values: Sequence[float]) -> MeanAndSd:
    """Returns mean and standard deviation of the scores of several runs; raises ValueError if there are none."""
    if not len(values):
        raise ValueError("mean_and_sd: expected at least one value")
    array = np.asarray(values, np.float64)
    return MeanAndSd(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else float("nan"), len(array))


def score_from_statistics(task: str, sums: np.ndarray, **options: Option) -> Scores:
    """Returns the scores of a task from sums of its `per_example_*` rows.

    Args:
      task: "classification", "regression", "tags", "entities", "squad" or "ranking".
      sums: [S], or [R, S] for R resamples; then every score is an array [R].
      options: `positive` (classification: index of the positive class), `recall_at` (ranking).

    Raises:
      ValueError: the task does not exist.
    """
    if task not in _TASKS:
        raise ValueError(f"task={task!r}: expected one of {', '.join(_TASKS)}")
    sums = np.asarray(sums, np.float64)
    scores = _TASKS[task](np.atleast_2d(sums), **options)
    return {name: float(value[0]) for name, value in scores.items()} if sums.ndim == 1 else scores


def score_of(task: str, name: str, **options: Option) -> Metric:
    """Returns one score of a task as a function of sums, for `paired_bootstrap`: `score_of("entities", "f1")`."""

    def metric(sums_RS: np.ndarray) -> np.ndarray:
        scores = score_from_statistics(task, sums_RS, **options)
        if name not in scores:
            raise ValueError(f"score {name!r} of {task}: expected one of {', '.join(scores)}")
        return scores[name]

    return metric


def paired_bootstrap(
    per_example_a: np.ndarray,
    per_example_b: np.ndarray,
    metric: Metric,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Compares two systems on the same examples with a paired bootstrap: both are scored on the same resamples.

    Args:
      per_example_a: the rows of `per_example_*` for system a, one for each example.
      per_example_b: the same for system b, in the same order; the columns may differ (classes, types).
      metric: a function from sums [R, S] to scores [R], such as `score_of("entities", "f1")`.
      samples: the number of resamples; each draws as many examples as there are, with replacement.
      seed: the seed of the draws.
      confidence: the share of resamples whose difference lies in the interval; both tails have equal shares.

    Raises:
      ValueError: there are no examples, the systems have different numbers of them, or a setting is out of range.
    """
    a, b = np.asarray(per_example_a, np.float64), np.asarray(per_example_b, np.float64)
    if len(a) != len(b) or not len(a):
        raise ValueError(f"paired_bootstrap: expected the same examples of both, at least one; got {len(a)}, {len(b)}")
    if samples < 1 or not 0 < confidence < 1:
        raise ValueError(f"samples={samples}, confidence={confidence}: expected at least 1, and between 0 and 1")
    rng, n = np.random.default_rng(seed), len(a)
    both, differences = np.concatenate([a, b], axis=1), []
    chunk = max(1, _CHUNK_BYTES // (16 * n))
    for start in range(0, samples, chunk):
        rows = min(chunk, samples - start)
        drawn = rng.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        sums = times @ both
        differences.append(metric(sums[:, : a.shape[1]]) - metric(sums[:, a.shape[1] :]))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(differences), [tail, 1 - tail])
    score_a, score_b = (float(metric(part.sum(0)[None])[0]) for part in (a, b))
    return Difference(score_a, score_b, score_a - score_b, float(low), float(high))
