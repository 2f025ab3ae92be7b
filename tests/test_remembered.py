"""Tests that what is asked once is answered as if asked anew: shapes of parameters, memory of programs."""

from __future__ import annotations

from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamShapeError
from remembered import made_of

X = np.ones((2, 3), np.float32)
PARAMS = {"kernel": np.ones((3, 4), np.float32), "bias": np.ones(4, np.float32)}


def test_an_initializer_is_traced_once_for_each_shape():
    traced = mock.Mock()

    def ones(key, shape, dtype):
        traced(shape)
        return jnp.ones(shape, dtype)

    for _ in range(3):
        nn.Dense(4, kernel_init=ones).apply({"params": PARAMS}, X)
    nn.Dense(4, kernel_init=ones).apply({"params": PARAMS | {"kernel": np.ones((2, 4))}}, X[:, :2])
    assert traced.mock_calls == [mock.call((3, 4)), mock.call((2, 4))]


@pytest.mark.parametrize(("name", "shape"), [("kernel", (3, 5)), ("kernel", (4, 3)), ("bias", (5,))])
def test_a_parameter_of_another_shape_is_refused(name, shape):
    nn.Dense(4).apply({"params": PARAMS}, X)  # what is kept by now
    with pytest.raises(ScopeParamShapeError, match=f'"{name}"'):
        nn.Dense(4).apply({"params": PARAMS | {name: np.ones(shape, np.float32)}}, X)


def test_functions_differ_by_what_they_hold():
    def make(size, default=1):
        return lambda x=default: (x, size)

    assert made_of(make(1)) == made_of(make(1))
    assert len({made_of(make(1)), made_of(make(2)), made_of(make(1, 2)), made_of(make((1,)))}) == 4
    assert made_of(lambda: made_of) != made_of(lambda: make)
    with pytest.raises(TypeError, match="unhashable"):
        hash(made_of(make(np.ones(2))))


def test_each_program_has_its_own_memory():
    compiled = [jax.jit(lambda x: (x @ x).sum()).lower(np.ones((n, n), np.float32)).compile() for n in (8, 64)]
    small, large = (program.memory_analysis() for program in compiled)
    assert small.argument_size_in_bytes == 4 * 8**2
    assert large.argument_size_in_bytes == 4 * 64**2
    assert compiled[0].memory_analysis() is small
