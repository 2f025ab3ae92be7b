"""Tests that `charlm.nn.apply` does the same as flax's own `Module.apply`."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from charlm.nn.apply import applied


class Halves(nn.Module):
    """Dropout behind a table of one number."""

    def setup(self) -> None:
        self.factor = self.param("factor", nn.initializers.constant(3.0), ())
        self.drop = nn.Dropout(0.5)

    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        return self.drop(self.factor * x, deterministic=deterministic)

    def plus(self, x: jax.Array, y: int) -> jax.Array:
        return self.factor * x + y


def test_inputs_methods_and_randomness_reach_the_model():
    model, x = Halves(), jnp.arange(8.0)
    variables = model.init(jax.random.key(0), x)
    np.testing.assert_array_equal(applied(model, variables)(x), 3 * x)
    rngs = {"dropout": jax.random.key(1)}
    dropped = applied(model, variables, rngs)(x, deterministic=False)
    np.testing.assert_array_equal(dropped, model.apply(variables, x, deterministic=False, rngs=rngs))
    assert (np.asarray(dropped) != 3 * x).any()
    np.testing.assert_array_equal(applied(model, variables, method="plus")(x, y=2), 3 * x + 2)
    np.testing.assert_array_equal(applied(model, variables, method=Halves.plus)(x, 2), 3 * x + 2)
    np.testing.assert_array_equal(applied(model, variables, method=lambda model: model.plus(x, 1))(), 3 * x + 1)
