"""Fresh arrays computed leaf by leaf: equal to one program's to the bit, equal leaves compiled once."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.core import leafwise as module
from charlm.core.leafwise import leafwise


class Tower(nn.Module):
    """Layers of equal shapes under other names, one below a `remat`, one that is drawn otherwise."""

    @nn.compact
    def __call__(self, x):
        for place in range(3):
            x = jnp.tanh(nn.Dense(6, name=f"layer_{place}")(x))
        x = nn.remat(nn.Dense)(6, kernel_init=nn.initializers.truncated_normal(0.02), name="kept")(x)
        return x @ self.param("table", nn.initializers.normal(1.0), (6, 6), jnp.bfloat16).astype(x.dtype)


def equal(ours, theirs) -> bool:
    """Whether two trees hold the same bytes."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    return all(
        a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    )


@pytest.fixture
def kept(monkeypatch):
    """The programs of this test alone."""
    found = {}
    monkeypatch.setattr(module, "_programs", found)
    return found


def test_parameters_equal_those_of_one_program_to_the_bit(kept):
    make = lambda: Tower().init(jax.random.key(3), jnp.ones((2, 6)))["params"]
    made = leafwise(make)
    assert equal(made, jax.jit(make)())
    assert not equal(made["layer_0"], made["layer_1"])  # each has its own key
    assert len(kept) == 5  # kernels of the layers, their biases, those of the `remat`, the table


def test_what_is_no_parameter_is_computed_as_well():
    held = np.arange(4.0, dtype=np.float32)

    def make():
        key = jax.random.key(1)
        params = {"a": jax.random.normal(key, (4,)), "b": jax.random.uniform(jax.random.split(key)[1], (4,))}
        summed = params["a"] + params["b"] * held
        counted = jax.lax.fori_loop(0, 3, lambda i, x: x * 2 + i, params["b"])
        return {"params": params, "both": summed, "again": summed, "loop": counted, "step": jnp.int32(0), "held": held}

    assert equal(leafwise(make), jax.jit(make)())


def test_arrays_that_differ_in_values_alone_do_not_share_a_program(kept):
    """As text, two long arrays look alike."""
    first, second = np.arange(5_000.0, dtype=np.float32), np.arange(5_000.0, dtype=np.float32)
    second[2_500] = -1

    def make():
        inner = lambda table: jax.jit(lambda x: x + table)(jax.random.normal(jax.random.key(0), (5_000,)))
        return inner(first), inner(second)

    assert equal(leafwise(make), jax.jit(make)())


def test_programs_that_are_kept_are_bounded(kept, monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 2)
    make = lambda: [jnp.full((n,), 2.0) for n in range(1, 6)]
    assert equal(leafwise(make), jax.jit(make)())
    assert len(kept) <= 2
