"""Tests shapes of parameters: they equal those of `init`, are traced once for each model, and belong to the caller."""

from __future__ import annotations

import flax.linen as nn
import jax
import numpy as np

from charlm.convert.abstract import abstract_params

TRACED = []


class Layer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, inputs):
        TRACED.append(self.width)
        return nn.Dense(self.width)(inputs)


def smallest(module):
    return (np.zeros((1, 3), np.float32),)


def test_a_model_is_traced_once_and_every_caller_has_a_tree_of_its_own():
    TRACED.clear()
    first = abstract_params(Layer(5), smallest)
    want = jax.eval_shape(Layer(5).init, jax.random.key(0), *smallest(None))["params"]
    assert first == want
    assert TRACED == [5, 5]  # one by `want`
    del first["Dense_0"]["bias"]
    assert abstract_params(Layer(5), smallest) == want
    assert TRACED == [5, 5]
    assert abstract_params(Layer(4), smallest)["Dense_0"]["kernel"].shape == (3, 4)
    assert TRACED == [5, 5, 4]
