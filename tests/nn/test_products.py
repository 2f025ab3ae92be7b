"""Tests products of bfloat16 where the processor has a unit for them: the same numbers, computed otherwise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.core import processor
from charlm.nn import products
from charlm.nn.embed import dense
from charlm.nn.kernels import Machine

RNG = np.random.default_rng(0)


@pytest.fixture(params=[True, False], ids=["fast", "converted"])
def unit(request, monkeypatch) -> bool:
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: request.param)
    return request.param


def test_a_layer_rounds_its_inputs_and_sums_in_float32(unit):
    x = jnp.asarray(RNG.normal(size=(4, 300, 64)), jnp.bfloat16)
    layer = dense(32, 64, "torch", jnp.bfloat16)
    params = layer.init(jax.random.key(0), x)
    kernel, bias = (np.asarray(params["params"][name]) for name in ("kernel", "bias"))
    weight = RNG.normal(size=(4, 300, 32)).astype(np.float32)

    def loss(params, x):
        y = layer.apply(params, x)
        assert y.dtype == jnp.bfloat16
        return (y.astype(jnp.float32) * weight).sum()

    rounded = lambda array: np.asarray(jnp.asarray(array, jnp.bfloat16), np.float32)
    want = rounded(rounded(x) @ rounded(kernel) + bias)
    np.testing.assert_allclose(np.asarray(layer.apply(params, x), np.float32), want, rtol=1 / 128, atol=1e-5)  # one ulp
    (of_params, of_x) = jax.grad(loss, argnums=(0, 1))(params, x)
    grad, flat = rounded(weight), rounded(x).reshape(-1, 64)
    assert of_params["params"]["kernel"].dtype == jnp.float32
    np.testing.assert_allclose(of_params["params"]["kernel"], flat.T @ grad.reshape(-1, 32), rtol=2e-2, atol=0.3)
    np.testing.assert_allclose(of_params["params"]["bias"], grad.sum((0, 1)), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(np.asarray(of_x, np.float32), grad @ rounded(kernel).T, rtol=1e-2, atol=1e-2)


def test_only_bfloat16_on_a_processor_that_multiplies_it(unit, monkeypatch):
    assert products.rounds_for_speed(jnp.bfloat16) == unit
    assert not products.rounds_for_speed(jnp.float32)
    monkeypatch.setattr(products, "this_machine", lambda: Machine("tpu"))
    assert not products.rounds_for_speed(jnp.bfloat16)


@pytest.mark.parametrize(
    ("told", "name", "sets"),
    [
        ("model name\t: Some CPU\nflags\t\t: fpu amx_bf16 avx2\n\nprocessor\t: 1\nflags\t\t: x\n", "Some CPU",
         {"fpu", "amx_bf16", "avx2"}),
        ("model name\t: Other\nflags\t\t: fpu avx512_bf16\n", "Other", {"fpu", "avx512_bf16"}),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd bf16\n", "", {"fp", "asimd", "bf16"}),
        (None, "", set()),
    ],
)  # fmt: skip
def test_what_linux_tells_of_a_processor(told, name, sets, monkeypatch):
    def read_text(*_, **__):
        if told is None:
            raise FileNotFoundError
        return told

    monkeypatch.setattr(processor.Path, "read_text", read_text)
    processor._first_lines.cache_clear()
    try:
        assert processor.model_name() == name
        assert processor.instruction_sets() == sets
        assert products.multiplies_bfloat16() == bool({"amx_bf16", "avx512_bf16"} & sets)
    finally:
        processor._first_lines.cache_clear()
