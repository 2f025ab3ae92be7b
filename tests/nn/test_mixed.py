"""Tests products of rounded inputs among float32 states: exact in float32, correctly rounded below it."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.nn.mixed import MixedDense
from charlm.nn.products import matmul

RNG = np.random.default_rng(0)
SHAPES = [((3, 5, 8), (8, 24)), ((7, 24), (24, 8))]  # into a wider and a narrower side: their gradients differ in order


def arrays(shapes):
    return tuple(RNG.normal(size=shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("devices", [1, 8])  # gradients of kernels are summed otherwise where there are several
@pytest.mark.parametrize("shapes", SHAPES)
def test_float32_is_the_plain_product_with_its_gradients(shapes, devices, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    x, kernel = arrays(shapes)
    weight = RNG.normal(size=(*shapes[0][:-1], shapes[1][1])).astype(np.float32)
    ours = jax.value_and_grad(lambda *a: (matmul(*a, jnp.float32) * weight).sum(), argnums=(0, 1))
    plain = jax.value_and_grad(lambda x, w: ((x @ w) * weight).sum(), argnums=(0, 1))
    for got, want in zip(jax.tree.leaves(ours(x, kernel)), jax.tree.leaves(plain(x, kernel)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("shapes", SHAPES)
def test_bfloat16_rounds_the_inputs_and_nothing_else(shapes, devices, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    x, kernel = arrays(shapes)
    rounded = lambda array: np.asarray(jnp.asarray(array, jnp.bfloat16).astype(jnp.float32))
    output, backward = jax.vjp(lambda *a: matmul(*a, jnp.bfloat16), x, kernel)
    assert output.dtype == jnp.float32
    np.testing.assert_allclose(output, rounded(x) @ rounded(kernel), rtol=1e-5, atol=1e-5)
    grad = RNG.normal(size=output.shape).astype(np.float32)
    dx, dkernel = backward(grad)
    np.testing.assert_allclose(dx, rounded(grad) @ rounded(kernel).T, rtol=1e-5, atol=1e-5)
    exact = x.reshape(-1, x.shape[-1]).T @ grad.reshape(-1, grad.shape[-1])
    assert dkernel.dtype == jnp.float32
    assert np.abs(dkernel - exact).max() < 0.02 * np.abs(exact).max()
    assert not np.allclose(output, x @ kernel, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_those_of_a_dense_layer(bias):
    (x,) = arrays([(2, 3, 8)])
    ours, theirs = MixedDense(5, "lecun", jnp.float32, bias), nn.Dense(5, use_bias=bias)
    params = theirs.init(jax.random.key(0), x)["params"]
    shapes = jax.tree.map(jnp.shape, ours.init(jax.random.key(0), x)["params"])
    assert shapes == jax.tree.map(jnp.shape, params)
    params = jax.tree.map(lambda p: p + 0.5, params)
    np.testing.assert_allclose(ours.apply({"params": params}, x), theirs.apply({"params": params}, x), atol=1e-5)
