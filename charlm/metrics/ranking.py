"""Scores of ranked passages, from 0 to 1, averaged over queries: reciprocal rank, nDCG, average precision, recall.

Open it to add a score for rankings, or to see how equal scores and queries without a right passage are treated.

Passages with equal scores have no defined order, so every metric is averaged over all their orders (McSherry and
Najork 2008, as in scikit-learn's nDCG). Taking the order of the file instead would favour data that lists the right
passage first.

A passage is right if its relevance is above 0; the gain of nDCG is the relevance itself. Queries without a right
passage have no score: they are left out of the means, as in trec_eval, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from charlm.metrics.checks import check_lengths
from charlm.metrics.classification import divide

RECALL_AT = (1, 5, 10)

_DEPTH = 10  # the depth of MRR@10 and nDCG@10


def ranking_scores(
    groups: Sequence[str],
    relevance: Sequence[float],
    scores: Sequence[float],
    recall_at: Sequence[int] = RECALL_AT,
) -> dict[str, float]:
    """Returns mrr, mrr@10, ndcg@10, map, recall@K for each K, queries (those that count) and queries_without_right.

    Args:
      groups: the query of each passage; the passages of a query need not be adjacent.
      relevance: the relevance of each passage, at least 0.
      scores: the score that the model gives to each passage.
      recall_at: the values of K.

    Raises:
      ValueError: there are no passages, the lengths differ, a score is not a number, or no query has a right passage.
    """
    rows = per_example_ranking(groups, relevance, scores, recall_at)
    if not rows[:, 0].any():
        raise ValueError(f"none of the {len(rows)} queries has a right passage (relevance above 0)")
    found = ranking_scores_from_sums(rows.sum(0)[None], recall_at)
    return {name: float(value[0]) for name, value in found.items()} | {
        "queries": float(rows[:, 0].sum()),
        "queries_without_right": float((rows[:, 0] == 0).sum()),
    }


def per_example_ranking(
    groups: Sequence[str],
    relevance: Sequence[float],
    scores: Sequence[float],
    recall_at: Sequence[int] = RECALL_AT,
) -> np.ndarray:
    """Returns a row for each query, in the order in which the queries first occur: a 1, then the query's scores.

    The row of a query without a right passage is zeros. The other arguments are those of `ranking_scores`.
    """
    check_lengths(groups, relevance, "passages")
    check_lengths(groups, scores, "passages")
    gains, values = np.asarray(relevance, np.float64), np.asarray(scores, np.float64)
    if np.isnan(values).any() or not np.isfinite(gains).all() or gains.min() < 0:
        wrong = np.isnan(values) | ~np.isfinite(gains) | (gains < 0)
        i = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"passage {i}: score {values[i]}, relevance {gains[i]}; expected numbers, relevance >= 0")
    positions: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        positions.setdefault(group, []).append(i)
    return np.array([_query(gains[i], values[i], recall_at) for i in positions.values()])


def per_query_retrieval(
    relevant: Sequence[Mapping[int, float]], scores_QN: np.ndarray, recall_at: Sequence[int] = RECALL_AT
) -> np.ndarray:
    """Returns a row for each query, as `per_example_ranking` does, where every query ranks the same N documents.

    Args:
      relevant: for each query the relevance of documents, by their columns; the others have relevance 0.
      scores_QN: the score of each document.
      recall_at: the values of K.

    Raises:
      ValueError: the lengths differ, a score is not a number, or a relevance is negative or of no such document.
    """
    check_lengths(relevant, scores_QN, "queries")
    if not np.isfinite(scores_QN).all():
        raise ValueError(f"query {int(np.argwhere(~np.isfinite(scores_QN))[0, 0])}: a score is not a finite number")
    rows = []
    for q, (found, scores_N) in enumerate(zip(relevant, scores_QN, strict=True)):
        gains_N = np.zeros(len(scores_N))
        for column, gain in found.items():
            if not 0 <= column < len(scores_N) or not 0 <= gain < np.inf:
                raise ValueError(f"query {q}: relevance {gain} of document {column}, of {len(scores_N)}")
            gains_N[column] = gain
        rows.append(_query(gains_N, np.asarray(scores_N), recall_at))
    return np.array(rows)


def _query(gains: np.ndarray, scores: np.ndarray, recall_at: Sequence[int]) -> list[float]:
    """Returns the row of one query."""
    right_gains, right_scores = gains[gains > 0], scores[gains > 0]
    right_total = len(right_gains)
    if not right_total:
        return [0.0] * (5 + len(recall_at))
    discounts = 1 / np.log2(np.arange(max(_DEPTH, right_total)) + 2)
    discounts[_DEPTH:] = 0
    reciprocal, reciprocal_at, dcg, precision = 0.0, 0.0, 0.0, 0.0
    recall = np.zeros(len(recall_at))
    right_before = 0
    for score in np.unique(right_scores)[::-1]:  # passages that are not right only take places
        right = int((right_scores == score).sum())
        before, size = int((scores > score).sum()), int((scores == score).sum())
        ranks = np.arange(before + 1, before + size + 1)
        dcg += float(right_gains[right_scores == score].sum() / size * discounts[before : before + size].sum())
        if not right_before:
            chances = _first_right(size, right)
            reciprocal = float((chances / ranks).sum())
            reciprocal_at = float((chances / ranks)[ranks <= _DEPTH].sum())
        # For a right passage at place j of the tied passages: the mean number of right passages up to it.
        up_to = right_before + 1 + np.arange(size) * ((right - 1) / max(size - 1, 1))
        precision += float((right / size * up_to / ranks).sum())
        recall += [right * min(max(k - before, 0), size) / size for k in recall_at]
        right_before += right
    ideal = float(np.sort(right_gains)[::-1] @ discounts[:right_total])
    return [1.0, reciprocal, reciprocal_at, dcg / ideal, precision / right_total, *(recall / right_total).tolist()]


def _first_right(size: int, right: int) -> np.ndarray:
    """Returns the probability of each place, from 0 on, to hold the first right passage.

    There are `size` passages in random order, and `right` of them are right.
    """
    chances, none_so_far = np.zeros(size), 1.0
    for place in range(size - right + 1):
        chance = right / (size - place)
        chances[place] = none_so_far * chance
        none_so_far *= 1 - chance
    return chances


def ranking_scores_from_sums(sums_RS: np.ndarray, recall_at: Sequence[int] = RECALL_AT) -> dict[str, np.ndarray]:
    """Returns the mean scores from sums over rows of `per_example_ranking`."""
    names = ["mrr", f"mrr@{_DEPTH}", f"ndcg@{_DEPTH}", "map", *(f"recall@{k}" for k in recall_at)]
    return {name: divide(sums_RS[:, i], sums_RS[:, 0]) for i, name in enumerate(names, 1)}
