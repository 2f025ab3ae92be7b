"""Tests the losses and measures of imitating a table: golden values, exact gradients, no overflow."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.families.char2subword import imitation
from charlm.families.char2subword.imitation import imitate, log_normalizer, nearest, neighbours, precision, unit

GOLDENS = Path(__file__).parents[2] / "goldens" / "char2subword"


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDENS / "losses.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def near(golden):
    return neighbours(golden["E"], k=15, rows=16)  # 60 rows, the last of them alone in part


@pytest.mark.parametrize(("distance", "name"), [("norm", "l2"), ("mean_square", "mse")])
@pytest.mark.parametrize("rows", [7, 60, 4096])
def test_losses_are_the_golden_ones(golden, near, distance, name, rows, monkeypatch):
    monkeypatch.setattr(imitation, "ROWS_AT_ONCE", rows)
    ids = near.ids[golden["y"]][:, : golden["k"]]
    got = imitate(golden["pred"], golden["E"], golden["y"], ids, distance)
    for term, key in zip(got, ("cos", name, "nbr_self_included", "ce"), strict=True):
        np.testing.assert_allclose(term, golden[key], atol=1e-5, rtol=0)
    if distance == "norm":
        np.testing.assert_allclose(sum(term.mean() for term in got), golden["total_mean"], atol=1e-5)


def test_precision_is_the_golden_one(golden, near):
    found = precision(golden["pred"], golden["E"], golden["y"], near.ids[golden["y"]])
    np.testing.assert_array_equal(found.right_B, golden["acc"] == 1)
    np.testing.assert_allclose(found.shared_BK, golden["prec_at_k"], atol=1e-6)
    summary = found.summary()
    np.testing.assert_allclose(summary["average_precision"], golden["avg_prec"], atol=1e-6)
    assert summary["accuracy"] == 0.75
    assert summary["precision_at_1"] == 0.875
    np.testing.assert_allclose(summary["precision_at_15"], golden["prec_at_k"][:, -1].mean(), atol=1e-6)


def test_neighbours_begin_with_the_row_itself(golden, near):
    np.testing.assert_array_equal(near.ids[:, 0], np.arange(60))
    np.testing.assert_allclose(near.cosines[:, 0], 1, atol=1e-6)
    table = golden["E"].astype(np.float64)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    np.testing.assert_array_equal(near.ids, np.argsort(-table @ table.T, axis=1, kind="stable")[:, :15])
    cosines, ids = nearest(golden["E"][:3] * 7, golden["E"], 4)
    np.testing.assert_array_equal(ids, near.ids[:3, :4])
    np.testing.assert_allclose(cosines, near.cosines[:3, :4], atol=1e-6)


def test_the_table_gets_no_gradient_and_the_vectors_that_of_the_whole_softmax(golden, near, monkeypatch):
    monkeypatch.setattr(imitation, "ROWS_AT_ONCE", 16)
    ids = near.ids[golden["y"]]
    total = lambda vectors, table: sum(term.sum() for term in imitate(vectors, table, golden["y"], ids))
    assert not np.any(jax.jit(jax.grad(total, argnums=1))(golden["pred"], golden["E"]))
    pieces = lambda vectors: log_normalizer(vectors, golden["E"]).sum()
    whole = lambda vectors: jax.nn.logsumexp(vectors @ golden["E"].T, axis=-1).sum()
    read = functools.cache(lambda function: jax.jit(jax.value_and_grad(function)))
    for scale in (1.0, 300.0):  # logits in the thousands
        vectors = golden["pred"] * scale
        (got, slope), (want, right) = read(pieces)(vectors), read(whole)(vectors)
        np.testing.assert_allclose(got, want, rtol=1e-6)
        np.testing.assert_allclose(slope, right, atol=1e-5)


def test_the_cross_entropy_of_rounded_vectors_is_that_of_their_softmax():
    """Both its logits are products of bfloat16 numbers, summed in float32; the own one alone was not rounded."""
    draw = np.random.default_rng(0)
    table, ids = draw.normal(0, 1.5, (300, 24)).astype(np.float32), draw.integers(0, 300, 16)
    vectors = (table[ids] + draw.normal(0, 0.3, (16, 24))).astype(np.float32)
    entropy = lambda x, dtype: imitate(x, table, ids, ids[:, None], dtype=dtype).cross_entropy

    def expected(rounded):
        logits = rounded(vectors) @ rounded(table).T
        return np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1) - logits[np.arange(16), ids]

    for dtype in (jnp.bfloat16, jnp.float32):
        got = jax.jit(entropy, static_argnums=1)(vectors, dtype)
        right = expected(lambda x, dtype=dtype: x.astype(dtype).astype(np.float64))
        np.testing.assert_allclose(got, right, atol=2e-5)
        assert got.min() > -2e-5
    slope = jax.jit(jax.grad(lambda x, dtype: entropy(x, dtype).sum()), static_argnums=1)
    exact, near = (slope(vectors, dtype) for dtype in (jnp.float32, jnp.bfloat16))
    np.testing.assert_allclose(near, exact, atol=0.05)


@pytest.mark.parametrize("distance", ["norm", "mean_square"])
def test_a_perfect_or_empty_vector_has_finite_gradients(golden, near, distance):
    def terms(x):
        return imitate(x, golden["E"], golden["y"], near.ids[golden["y"]], distance)

    slopes = jax.jit(jax.grad(lambda x: sum(t.sum() for t in terms(x))))
    for vectors in (golden["E"][golden["y"]], np.zeros_like(golden["pred"])):
        assert np.isfinite(slopes(vectors)).all()
    perfect = jax.jit(terms)(golden["E"][golden["y"]])
    np.testing.assert_allclose([perfect.cosine, perfect.distance, perfect.neighbours], 0, atol=1e-6)


def test_unit_and_unknown_distance(golden):
    np.testing.assert_allclose(np.linalg.norm(unit(golden["pred"]), axis=1), 1, atol=1e-6)
    assert not np.any(unit(jnp.zeros((2, 3))))
    with pytest.raises(ValueError, match="distance='l3' is not one of norm, mean_square"):
        imitate(golden["pred"], golden["E"], golden["y"], golden["y"][:, None], "l3")
