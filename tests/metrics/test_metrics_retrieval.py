"""Tests scores of dense retrieval: against ranked lists of passages, ranx's figures, and ranx if it is there."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.metrics import per_example_ranking, per_query_retrieval, score_from_statistics

RECALL_AT = (5, 20)
# What ranx 0.3.21 says of `case`, in the order of `NAMES`.
OF_RANX = [
    [0.125, 0.125, 0.1450984151, 0.1412173203, 0, 0.5],
    [0.5, 0.5, 0.1527331112, 0.2222222222, 0.3333333333, 0.3333333333],
    [0.5, 0.5, 0.6309297536, 0.5, 1, 1],
    [0.0666666667, 0, 0, 0.0938279626, 0, 0.5],
    [0.0263157895, 0, 0, 0.0263157895, 0, 0],
    [0.0454545455, 0, 0, 0.0454545455, 0, 0],
]
NAMES = ("mrr", "mrr@10", "ndcg@10", "map", "recall@5", "recall@20")


def case():
    """Six queries over 40 documents with one to four right ones; no two scores of a query are equal."""
    rng = np.random.default_rng(7)
    scores = np.round(rng.normal(size=(6, 40)), 4)
    return scores, [
        {int(c): int(rng.integers(1, 4)) for c in rng.choice(40, int(rng.integers(1, 5)), replace=False)}
        for _ in range(6)
    ]


def test_dense_scores_are_those_of_ranked_lists():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (20, 30)).astype(float)  # many are equal
    relevant = [{int(c): float(rng.integers(0, 3)) for c in rng.choice(30, 5, replace=False)} for _ in range(20)]
    groups = [f"q{q}" for q in range(20) for _ in range(30)]
    gains = [relevant[q].get(c, 0.0) for q in range(20) for c in range(30)]
    expected = per_example_ranking(groups, gains, scores.ravel(), RECALL_AT)
    np.testing.assert_allclose(per_query_retrieval(relevant, scores, RECALL_AT), expected, atol=1e-12)


def test_more_right_documents_than_the_depth():
    scores = np.arange(30, 0, -1.0)[None]
    relevant = [dict.fromkeys(range(0, 30, 2), 1.0)]
    found = score_from_statistics("ranking", per_query_retrieval(relevant, scores).sum(0))
    discounts = 1 / np.log2(np.arange(2, 12))
    assert found["ndcg@10"] == pytest.approx(discounts[::2].sum() / discounts.sum())
    assert found["recall@10"] == pytest.approx(5 / 15)


@pytest.mark.parametrize(
    ("relevant", "scores", "message"),
    [
        ([{0: 1}], np.zeros((2, 3)), "queries"),
        ([{3: 1}], np.zeros((1, 3)), "document 3, of 3"),
        ([{0: -1}], np.zeros((1, 3)), "relevance -1"),
        ([{0: 1}], np.full((1, 3), np.nan), "query 0: a score is not"),
    ],
)
def test_wrong_values_are_refused(relevant, scores, message):
    with pytest.raises(ValueError, match=message):
        per_query_retrieval(relevant, scores)


def test_figures_of_ranx():
    scores, relevant = case()
    np.testing.assert_allclose(per_query_retrieval(relevant, scores, RECALL_AT)[:, 1:], OF_RANX, atol=1e-9)


def test_ranx_says_the_same():
    ranx = pytest.importorskip("ranx")
    scores, relevant = case()
    qrels = ranx.Qrels({f"q{q}": {f"d{c}": gain for c, gain in found.items()} for q, found in enumerate(relevant)})
    run = ranx.Run({f"q{q}": {f"d{c}": float(s) for c, s in enumerate(row)} for q, row in enumerate(scores)})
    theirs = ranx.evaluate(qrels, run, list(NAMES), return_mean=False)
    rows = per_query_retrieval(relevant, scores, RECALL_AT)
    np.testing.assert_allclose(rows[:, 1:], np.stack([theirs[name] for name in NAMES], axis=1), atol=1e-9)
