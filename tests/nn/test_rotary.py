"""Tests rotary attention: equal to NumPy, distances alone count, and windows hide what they say, in blocks or not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied, drawn

from charlm.nn.kernels import PALLAS
from charlm.nn.rotary import RotaryAttention, rotated

B, L, H, K = 2, 13, 2, 6
D = H * K
MASK = np.arange(L)[None] < np.array([[L], [9]])
TEXTS = np.where(np.arange(L) < 5, 1, 2)[None].repeat(B, 0) * MASK  # two texts a row
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(B, L, D)).astype(np.float32)


def attention(**changes) -> RotaryAttention:
    return RotaryAttention(**{"heads": H, "dropout": 0.0, "initializer": "torch", "dtype": jnp.float32} | changes)


def run(module: RotaryAttention, x=STATES, mask=MASK, queries: int = L, params=None):
    return applied(module, queries=queries, deterministic=True)(PARAMS if params is None else params, x, mask)


PARAMS = drawn(attention(), STATES, MASK, L, True)


def by_numpy(visible_BQN: np.ndarray, base: float = 10_000.0) -> np.ndarray:
    """The attention written out: each pair of columns is a complex number, turned by its own angle."""
    dense = lambda name, x: x @ PARAMS[name]["kernel"] + PARAMS[name]["bias"]
    heads = lambda x: x.reshape(B, L, H, K).transpose(0, 2, 1, 3)
    query, key, value = (heads(dense(name, STATES)).astype(np.float64) for name in ("query", "key", "value"))
    turn = np.exp(1j * np.arange(L)[:, None] * base ** (-2 * np.arange(K // 2) / K))
    whole = lambda x: (x[..., : K // 2] + 1j * x[..., K // 2 :]) * turn
    scores = np.einsum("bhqk,bhnk->bhqn", whole(query), whole(key).conj()).real / np.sqrt(K)
    real = visible_BQN | ~visible_BQN.any(-1, keepdims=True)  # what padding sees has no meaning
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * real[:, None]
    mixed = np.einsum("bhqn,bhnk->bhqk", weights / weights.sum(-1, keepdims=True), value)
    return dense("output", mixed.transpose(0, 2, 1, 3).reshape(B, L, D))


def visible(mask: np.ndarray, window: int) -> np.ndarray:
    """What each position sees, by its definition."""
    near = np.abs(np.arange(L)[:, None] - np.arange(L)) <= (window or L)
    same = mask[:, :, None] == mask[:, None] if mask.dtype != bool else mask[:, None].repeat(L, 1)
    return same & near[None]


@pytest.mark.parametrize("mask", [MASK, TEXTS], ids=["mask", "texts"])
@pytest.mark.parametrize("window", [0, 3, 5])  # 3: in blocks, since a row is longer than three of them
def test_it_equals_numpy(mask, window):
    got = run(attention(window=window), STATES, mask)
    np.testing.assert_allclose(got[MASK], by_numpy(visible(mask, window))[MASK], atol=1e-5)


def test_another_base_is_another_attention():
    got = run(attention(base=50.0))
    np.testing.assert_allclose(got[MASK], by_numpy(visible(MASK, 0), base=50.0)[MASK], atol=1e-5)
    assert np.abs(got[MASK] - by_numpy(visible(MASK, 0))[MASK]).max() > 1e-3


def test_scores_depend_on_the_distance_alone():
    query, key = (RNG.normal(size=K).astype(np.float32) for _ in range(2))
    along = lambda x: rotated(jnp.tile(jnp.asarray(x), (1, 40, 1, 1)).reshape(1, 40, 1, K), 100.0)[0, :, 0]
    scores = np.asarray(along(query) @ along(key).T)
    for distance in range(-20, 21):
        np.testing.assert_allclose(np.diagonal(scores, distance), scores.diagonal(distance)[0], atol=1e-4)
    assert np.ptp([scores.diagonal(n)[0] for n in range(-20, 21)]) > 0.5


def test_the_first_queries_are_those_of_all():
    whole = run(attention())
    some = run(attention(), queries=4)
    np.testing.assert_allclose(some, whole[:, :4], atol=1e-6)


@pytest.mark.parametrize("window", [2, 5])
def test_nothing_beyond_the_window_has_any_effect(window):
    at = 6
    out = lambda x: run(attention(window=window), x, np.ones((1, L), bool))
    slope = np.abs(jax.grad(lambda x: out(x)[0, at].sum())(jnp.asarray(STATES[:1]))).sum(axis=(0, 2))
    inside = np.abs(np.arange(L) - at) <= window
    assert (slope[inside] > 1e-4).all()
    np.testing.assert_array_equal(slope[~inside], 0)


def test_tiles_compute_it_too():
    length = 40
    x, mask = RNG.normal(size=(1, length, 2 * 16)).astype(np.float32), np.arange(length)[None] < 33
    params = drawn(attention(), x, mask, length, True)
    want, got = (run(attention(kernel=kernel), x, mask, length, params) for kernel in ("einsum", PALLAS))
    np.testing.assert_allclose(got[mask], want[mask], atol=2e-5)
