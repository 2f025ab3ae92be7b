"""Tests the bidirectional GRU against a loop over PyTorch's equations, with padding that must have no effect."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from charbert_equations import bigru
from programs import applied, drawn

from charlm.nn.recurrent import BiGRU

LENGTHS = (7, 4, 1)


def made(rows, units=5, width=3):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(rows, width)).astype(np.float32)
    ids = rng.integers(0, rows, (len(LENGTHS), 7)).astype(np.int32)
    params = drawn(BiGRU(units, jnp.float32), table, ids)
    return table, ids, params


@pytest.mark.parametrize("rows", [6, 40], ids=["projects the table", "projects the sequence"])
def test_states_are_those_of_a_loop(rows):
    table, ids, params = made(rows)
    states = applied(BiGRU(5, jnp.float32))(params, table, ids)
    double = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    for got, row in zip(states, ids, strict=True):
        np.testing.assert_allclose(got, bigru(double, table[row].astype(np.float64)), atol=1e-6)
    assert np.abs(states).max() > 0.1


@pytest.mark.parametrize("rows", [6, 40])
def test_backward_begins_at_the_last_real_character(rows):
    table, ids, params = made(rows)
    gru = BiGRU(5, jnp.float32)
    mask = np.arange(7)[None] < np.array(LENGTHS)[:, None]
    states = applied(gru)(params, table, ids, mask)
    for b, length in enumerate(LENGTHS):
        alone = applied(gru)(params, table, ids[b : b + 1, :length])
        np.testing.assert_allclose(states[b, :length], alone[0], atol=1e-6)
    grown = np.concatenate([np.where(mask, ids, 3), np.full((3, 4), 2)], axis=1).astype(np.int32)
    more = applied(gru)(params, table, grown, np.pad(mask, ((0, 0), (0, 4))))
    np.testing.assert_allclose(np.where(mask[..., None], more[:, :7] - states, 0), 0, atol=1e-6)


def plain(table, params, ids, mask):
    """Returns the states by a loop that JAX takes the gradient of itself."""

    def direction(name, ids_BN, mask_BN):
        wi, bi, wh, bh = (
            params[f"{name}_{part}"] for part in ("input_kernel", "input_bias", "state_kernel", "state_bias")
        )
        K, h, states = len(wh), jnp.zeros((len(ids_BN), len(wh))), []
        for n in range(ids_BN.shape[1]):
            i, s = table[ids_BN[:, n]] @ wi + bi[None], h @ wh + bh[None]
            r, z = jax.nn.sigmoid(i[:, :K] + s[:, :K]), jax.nn.sigmoid(i[:, K : 2 * K] + s[:, K : 2 * K])
            new = jnp.tanh(i[:, 2 * K :] + r * s[:, 2 * K :])
            h = ((1 - z) * new + z * h) * mask_BN[:, n : n + 1]
            states.append(h)
        return jnp.stack(states, axis=1)

    every = np.ones_like(mask)
    backward = direction("backward", ids[:, ::-1], mask[:, ::-1])[:, ::-1]
    return jnp.concatenate([direction("forward", ids, every), backward], axis=-1)


@pytest.mark.parametrize("rows", [6, 40])
def test_gradients_are_those_of_a_plain_loop(rows):
    table, ids, params = made(rows)
    mask = (np.arange(7)[None] < np.array(LENGTHS)[:, None]).astype(np.float32)
    weight = np.random.default_rng(2).normal(size=(3, 7, 10)).astype(np.float32)
    gru = BiGRU(5, jnp.float32)
    ours = lambda table, params: (gru.apply({"params": params}, table, ids, mask > 0) * weight).sum()
    theirs = lambda table, params: (plain(table, params, ids, mask) * weight).sum()
    got, want = (jax.jit(jax.grad(loss, (0, 1)))(table, params) for loss in (ours, theirs))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), got, want)
    assert all(np.abs(x).max() > 1e-3 for x in jax.tree.leaves(got))


def test_sums_over_steps_are_taken_once_not_in_the_loop():
    table, ids, params = made(6)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    loss = lambda p, t, i: BiGRU(5, jnp.float32).apply({"params": p}, t, i).sum()
    ids = jax.device_put(np.tile(ids[:1], (8, 1)), spread)
    program = jax.jit(jax.grad(loss, (0, 1))).lower(params, table, ids).compile().as_text()
    reduced = [part for part in program.split("\n\n") if re.search(r"= .* all-reduce(-start)?\(", part)]
    assert len(reduced) == 1
    assert "ENTRY" in reduced[0]
    assert " while(" in program


def test_bfloat16_products_stay_near():
    table, ids, params = made(6)
    full, half = (applied(BiGRU(5, dtype))(params, table, ids) for dtype in (jnp.float32, jnp.bfloat16))
    assert half.dtype == jnp.float32
    assert 0 < np.abs(full - half).max() < 0.02
