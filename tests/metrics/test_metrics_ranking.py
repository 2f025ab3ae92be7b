"""Tests scores of ranked passages: by hand, over all orders of ties, and against scikit-learn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from charlm.metrics import per_example_ranking, ranking_scores, score_from_statistics


def test_scores_by_hand():
    # a: ranks of the right ones 2 and 4 of 4; b: 1 of 1; c: none right.
    groups = ["a", "b", "a", "c", "a", "a", "c"]
    relevance = [0, 1, 1, 0, 0, 2, 0]
    scores = [0.9, -5, 0.8, 3, 0.7, 0.6, 4]
    found = ranking_scores(groups, relevance, scores, recall_at=(1, 2, 10))
    dcg = 1 / math.log2(3) + 2 / math.log2(5)
    ideal = 2 + 1 / math.log2(3)
    assert found == pytest.approx(
        {
            "mrr": (1 / 2 + 1) / 2,
            "mrr@10": (1 / 2 + 1) / 2,
            "ndcg@10": (dcg / ideal + 1) / 2,
            "map": ((1 / 2 + 2 / 4) / 2 + 1) / 2,
            "recall@1": 1 / 2,
            "recall@2": (1 / 2 + 1) / 2,
            "recall@10": 1,
            "queries": 2,
            "queries_without_right": 1,
        }
    )


def test_ranks_beyond_ten():
    for rank, at_ten in ((10, 1 / 10), (11, 0)):
        relevance = [float(i == rank) for i in range(1, 21)]
        found = ranking_scores(["q"] * 20, relevance, [-i for i in range(20)])
        assert found["mrr"] == pytest.approx(1 / rank)
        assert found["mrr@10"] == pytest.approx(at_ten)
        assert found["map"] == pytest.approx(1 / rank)
        assert found["ndcg@10"] == pytest.approx(1 / math.log2(11) if rank == 10 else 0)
        assert found["recall@10"] == (rank == 10)


def test_equal_scores_favour_nobody():
    first = ranking_scores(["q"] * 4, [1, 0, 0, 0], [0.5] * 4)
    last = ranking_scores(["q"] * 4, [0, 0, 0, 1], [0.5] * 4)
    assert first == last
    assert [name for name in first if "recall" in name] == ["recall@1", "recall@5", "recall@10"]
    assert first["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert first["recall@1"] == 1 / 4


def one_order(relevance, order, recall_at):
    """Scores of one order, from their definitions."""
    ranked = [relevance[i] for i in order]
    ranks = [rank for rank, gain in enumerate(ranked, 1) if gain > 0]
    ideal = sorted(relevance, reverse=True)
    dcg, best = (sum(gain / math.log2(i + 2) for i, gain in enumerate(part[:10])) for part in (ranked, ideal))
    return [
        1 / ranks[0],
        1 / ranks[0] if ranks[0] <= 10 else 0,
        dcg / best,
        sum(hits / rank for hits, rank in enumerate(ranks, 1)) / len(ranks),
        *(sum(rank <= k for rank in ranks) / len(ranks) for k in recall_at),
    ]


def test_ties_are_the_mean_over_all_their_orders():
    rng = np.random.default_rng(0)
    for _ in range(60):
        size = int(rng.integers(1, 7))
        relevance = rng.integers(0, 3, size).astype(float)
        relevance[rng.integers(size)] = 1
        scores = rng.integers(0, 3, size).astype(float)
        orders = [sorted(order, key=lambda i: -scores[i]) for order in itertools.permutations(range(size))]
        expected = np.mean([one_order(relevance, order, (1, 2, 3)) for order in orders], axis=0)
        row = per_example_ranking(["q"] * size, relevance, scores, (1, 2, 3))[0]
        assert row == pytest.approx([1, *expected], abs=1e-12)


def test_ndcg_is_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    for _ in range(100):
        queries, size = int(rng.integers(1, 6)), int(rng.integers(2, 25))
        relevance = rng.integers(0, 4, (queries, size)).astype(float)
        relevance[:, 0] = 1
        scores = rng.normal(size=(queries, size)).round(int(rng.integers(0, 3)))
        groups = np.repeat(np.arange(queries), size).tolist()
        found = ranking_scores(groups, relevance.ravel(), scores.ravel())["ndcg@10"]
        assert found == pytest.approx(metrics.ndcg_score(relevance, scores, k=10), abs=1e-12)


def test_sums_over_queries_give_the_scores():
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 30, 300).tolist()
    relevance, scores = (rng.random(300) < 0.2).astype(float), rng.normal(size=300).round(1)
    rows = per_example_ranking(groups, relevance, scores, recall_at=(3,))
    assert len(rows) == len({*groups})
    found = ranking_scores(groups, relevance, scores, recall_at=(3,))
    assert found["queries"] + found["queries_without_right"] == len(rows)
    sums = score_from_statistics("ranking", rows.sum(0), recall_at=(3,))
    assert sums == {name: found[name] for name in sums}
    assert len(sums) == len(found) - 2


def test_infinite_scores_have_a_rank():
    assert ranking_scores(["q"] * 3, [0, 1, 0], [-math.inf, 0, math.inf])["mrr"] == 1 / 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], []), "no passages to score"),
        ((["q"], [1], []), r"predictions: expected 1 \(one for each of the passages\), got 0"),
        ((["q"], [1, 2], [1]), r"predictions: expected 1 \(one for each of the passages\), got 2"),
        ((["q", "q"], [0, 1], [1, math.nan]), r"passage 1: score nan, relevance 1\.0; expected numbers"),
        ((["q", "q"], [0, -1], [1, 1]), r"passage 1: score 1\.0, relevance -1\.0; expected numbers, relevance >= 0"),
        ((["q", "r"], [0, 0], [1, 2]), "none of the 2 queries has a right passage"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        ranking_scores(*arguments)
