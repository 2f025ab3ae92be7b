"""Scores of classification and regression, from 0 to 1 (correlations from -1 to 1): accuracy, F1, Matthews and others.

Open it to add a score for classes or numbers; the tasks of `charlm.tasks.classification` report what
it returns.

Undefined cases: if the classes or numbers never vary, Matthews, Pearson and Spearman are 0; a class that is never
predicted or never right has precision, recall and F1 0; if there is nothing to score, a ValueError is raised.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from charlm.core import extras
from charlm.metrics.checks import check_lengths

_NO_VARIANCE = 1e-12  # a variance below this share of the sum of squares is a rounding error


def classification_scores(
    gold: Sequence[str], predicted: Sequence[str], *, positive: str | None = None
) -> dict[str, float]:
    """Returns accuracy, macro_f1, weighted_f1, micro_f1 (= accuracy) and matthews.

    macro_f1 is the mean of F1 over the classes in `gold` or `predicted`, weighted_f1 their mean by how often each class
    is in `gold` (the scores of LinCE's language identification). The mean recall of classes weighted like this is the
    accuracy.

    Args:
      gold: the correct class of each example.
      predicted: the predicted class of each example.
      positive: a class whose precision, recall and f1 are returned as well.

    Raises:
      ValueError: there are no examples, the lengths differ, or the positive class does not occur.
    """
    check_lengths(gold, predicted)
    metrics = extras.load("scores", "sklearn.metrics")
    gold, predicted = [str(label) for label in gold], [str(label) for label in predicted]
    scores = {
        "accuracy": float(metrics.accuracy_score(gold, predicted)),
        "macro_f1": float(metrics.f1_score(gold, predicted, average="macro", zero_division=0)),
        "weighted_f1": float(metrics.f1_score(gold, predicted, average="weighted", zero_division=0)),
        "micro_f1": float(metrics.f1_score(gold, predicted, average="micro", zero_division=0)),
        "matthews": 0.0,
    }
    if len({*gold, *predicted}) > 1:
        scores["matthews"] = float(metrics.matthews_corrcoef(gold, predicted))
    if positive is not None:
        labels = sorted({*gold, *predicted})
        if positive not in labels:
            raise ValueError(f"positive class {positive!r} occurs nowhere; classes: {', '.join(labels)}")
        parts = metrics.precision_recall_fscore_support(
            gold, predicted, labels=[positive], average=None, zero_division=0
        )
        scores |= {name: float(part[0]) for name, part in zip(("precision", "recall", "f1"), parts[:3], strict=True)}
    return scores


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Returns pearson, spearman (ties have their mean rank) and mse.

    Raises:
      ValueError: there are no examples, the lengths differ, or a number is not finite.
    """
    x, y = _numbers(gold, predicted)
    scores = {"pearson": 0.0, "spearman": 0.0, "mse": float(np.mean((x - y) ** 2))}
    if np.ptp(x) > 0 and np.ptp(y) > 0:
        stats = extras.load("scores", "scipy.stats")
        with warnings.catch_warnings():  # SciPy warns of numbers that hardly vary
            warnings.simplefilter("ignore")
            scores["pearson"] = float(stats.pearsonr(x, y).statistic)
            scores["spearman"] = float(stats.spearmanr(x, y).statistic)
    return scores


def _numbers(gold: Sequence[float], predicted: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    check_lengths(gold, predicted)
    x, y = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    for name, values in (("gold", x), ("predicted", y)):
        if not np.isfinite(values).all():
            i = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"{name} number {i} is {values[i]}; expected a finite number")
    return x, y


def per_example_classes(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str] | None = None
) -> np.ndarray:
    """Returns a row for each example, whose sums give the scores of classes: [right, predicted, gold].

    Each of the three is one-hot over the classes; `right` is all zeros if the prediction is wrong.

    Args:
      gold: the correct class of each example.
      predicted: the predicted class of each example.
      labels: the classes in order; None: the classes that occur, sorted.
    """
    check_lengths(gold, predicted)
    index = _label_index(gold, predicted, labels)
    count, n = len(index), len(gold)
    rows, examples = np.zeros((n, 3, count)), np.arange(n)
    right = np.array([a == b for a, b in zip(gold, predicted, strict=True)], float)
    rows[examples, 1, [index[label] for label in predicted]] = 1
    rows[examples, 2, [index[label] for label in gold]] = 1
    rows[:, 0] = rows[:, 1] * right[:, None]
    return rows.reshape(n, 3 * count)


def _label_index(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str] | None) -> dict[str, int]:
    occurring = {*gold, *predicted}
    index = {label: i for i, label in enumerate(sorted(occurring) if labels is None else labels)}
    if unknown := occurring - {*index}:
        raise ValueError(f"class {min(unknown)!r} is none of the labels: {', '.join(map(str, index))}")
    return index


def confusion(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Returns how often each class was predicted for each, int64 [N + more, N + more]: row predicted, column gold.

    So it is laid out in Table 6 of Char2Subword (Aguilar et al., 2021).

    Args:
      labels: the classes, in the order of rows and columns; classes beyond them follow, sorted.
    """
    check_lengths(gold, predicted)
    index = {label: n for n, label in enumerate(with_others(labels, gold, predicted))}
    counts = np.zeros((len(index), len(index)), np.int64)
    np.add.at(counts, ([index[label] for label in predicted], [index[label] for label in gold]), 1)
    return counts


def with_others(labels: Sequence[str], *found: Sequence[str]) -> list[str]:
    """Returns the labels, then those among `found` that are none of them, sorted."""
    return [*labels, *sorted({label for part in found for label in part} - {*labels})]


def class_scores_from_sums(sums_RS: np.ndarray, positive: int | None = None) -> dict[str, np.ndarray]:
    """Returns the scores of `classification_scores` from sums of rows.

    Args:
      sums_RS: R sums over rows of `per_example_classes`.
      positive: the index of the positive class.
    """
    right, predicted, gold = np.moveaxis(sums_RS.reshape(len(sums_RS), 3, -1), 1, 0)
    total = gold.sum(-1)
    accuracy = divide(right.sum(-1), total)
    f1 = divide(2 * right, predicted + gold)
    occurs = (predicted + gold > 0).sum(-1)
    # Matthews' correlation for K classes, as scikit-learn defines it.
    covariance = right.sum(-1) * total - (predicted * gold).sum(-1)
    variances = (total**2 - (predicted**2).sum(-1)) * (total**2 - (gold**2).sum(-1))
    matthews = divide(covariance, np.sqrt(variances))
    scores = {
        "accuracy": accuracy,
        "macro_f1": divide(f1.sum(-1), occurs),
        "weighted_f1": divide((f1 * gold).sum(-1), total),
        "micro_f1": accuracy,
        "matthews": matthews,
    }
    if positive is not None:
        scores["precision"] = divide(right, predicted)[:, positive]
        scores["recall"] = divide(right, gold)[:, positive]
        scores["f1"] = f1[:, positive]
    return scores


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Returns the quotient, 0 where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)


def per_example_numbers(gold: Sequence[float], predicted: Sequence[float]) -> np.ndarray:
    """Returns a row for each example, whose sums give the scores of numbers.

    A row is 1, (x - y)², then x, y, x², y², xy of the values, and the same of their ranks. Values and ranks are shifted
    by their means, which changes no correlation and avoids rounding errors in the sums. Ranks are those in the whole
    set; for a resample they approximate its own ranks.
    """
    x, y = _numbers(gold, predicted)
    rank = extras.load("scores", "scipy.stats").rankdata
    columns = [np.ones_like(x), (x - y) ** 2]
    for a, b in ((x, y), (rank(x), rank(y))):
        a, b = (values - values.mean() if np.ptp(values) else np.zeros_like(values) for values in (a, b))
        columns += [a, b, a * a, b * b, a * b]
    return np.stack(columns, axis=1)


def number_scores_from_sums(sums_RS: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the scores of `regression_scores` from sums over `per_example_numbers`."""
    total = sums_RS[:, 0]
    return {
        "pearson": _correlation(total, sums_RS[:, 2:7]),
        "spearman": _correlation(total, sums_RS[:, 7:12]),
        "mse": divide(sums_RS[:, 1], total),
    }


def _correlation(n: np.ndarray, sums: np.ndarray) -> np.ndarray:
    a, b, aa, bb, ab = sums.T
    a_variance, b_variance = n * aa - a * a, n * bb - b * b
    varies = (a_variance > _NO_VARIANCE * n * aa) & (b_variance > _NO_VARIANCE * n * bb)
    product = np.where(varies, a_variance * b_variance, 0)
    return divide(n * ab - a * b, np.sqrt(product))
