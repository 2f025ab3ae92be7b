"""Tests what all layers share: parameters that exist are read without a look at how they were initialised."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamNotFoundError, ScopeParamShapeError

from charlm.nn.embed import Dense, Embed, Held, LayerNorm, kernel_init, layer_norm, table_init

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (3, 8))


class Layers(nn.Module):
    """A table, a Dense layer and a LayerNorm: ours, or those of flax."""

    ours: bool

    @nn.compact
    def __call__(self, x):
        table = (Embed if self.ours else nn.Embed)(5, 8, name="table")
        x = x + table(jnp.array([0, 4, 2]))
        if self.ours:
            x = Dense(8, jnp.float32, nn.initializers.lecun_normal(), name="dense")(x)
        else:
            x = nn.Dense(8, name="dense")(x)
        return (LayerNorm if self.ours else nn.LayerNorm)(epsilon=1e-6, use_fast_variance=False, name="norm")(x)


def test_layers_have_the_parameters_and_values_of_flax():
    ours, theirs = Layers(True), Layers(False)
    params = ours.init(KEY, X)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, theirs.init(KEY, X))
    jax.tree.map(np.testing.assert_array_equal, params, theirs.init(KEY, X))
    np.testing.assert_allclose(ours.apply(params, X), theirs.apply(params, X), atol=1e-6)


def test_a_table_whose_rows_predict_begins_with_logits_of_about_one():
    states = jax.random.normal(KEY, (50, 192))
    logits = lambda init: states @ init(KEY, (3000, 192)).T
    assert 0.9 < float(logits(table_init("lecun", 192)).std()) < 1.1
    assert 13 < float(logits(table_init("lecun")).std()) < 15
    assert 0.2 < float(logits(table_init("bert", 192)).std()) < 0.4


def test_initialisers_are_called_once():
    calls = []

    def counted(key, shape, dtype=jnp.float32):
        calls.append(shape)
        return kernel_init("bert")(key, shape, dtype)

    layer = Dense(4, jnp.float32, counted)
    params = layer.init(KEY, X)
    layer.apply(params, X)
    jax.grad(lambda params: layer.apply(params, X).sum())(params)
    assert calls == [(8, 4)]


def test_another_shape_and_a_missing_parameter_are_told():
    layer = Dense(4, jnp.float32, kernel_init("bert"))
    params = layer.init(KEY, X)
    with pytest.raises(ScopeParamShapeError, match=r'"kernel".*\(8, 5\).*\(8, 4\)'):
        Dense(5, jnp.float32, kernel_init("bert")).apply(params, X)
    norm = layer_norm(1e-6, jnp.float32)
    with pytest.raises(ScopeParamShapeError):
        norm.apply(norm.init(KEY, X), X[:, :4])
    with pytest.raises(ScopeParamNotFoundError, match="kernel"):
        layer.apply({"params": {"bias": params["params"]["bias"]}}, X)


def test_a_name_is_used_once():
    class Twice(Held, nn.Module):
        @nn.compact
        def __call__(self):
            one = self.param("a", nn.initializers.zeros, (2,))
            return one + self.param("a", nn.initializers.zeros, (2,))

    for call in (lambda: Twice().init(KEY), lambda: Twice().apply({"params": {"a": jnp.zeros(2)}})):
        with pytest.raises(ValueError, match="Duplicate use of scope name"):
            call()
