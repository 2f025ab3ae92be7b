"""Tests the initial state: parameters drawn on the CPU equal those that the default device would draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.core.state import on_processor, stream_key
from charlm.nn.kernels import this_machine


def draw():
    return {"table": jax.random.normal(stream_key(7, "init"), (5, 3)), "step": jnp.zeros((), jnp.int32)}


@pytest.mark.parametrize(("here", "default"), [(True, "cpu"), (True, "gpu"), (False, "gpu")])
def test_the_processor_draws_the_same_numbers(here, default, monkeypatch):
    want = jax.jit(draw)()
    if not here:  # JAX_PLATFORMS=cuda leaves JAX without a processor
        monkeypatch.setattr(jax, "local_devices", lambda backend: jax.devices("no such platform"))
    monkeypatch.setattr(jax, "default_backend", lambda: default)
    got = on_processor(draw)
    assert all(isinstance(x, jax.Array if default == "cpu" else np.ndarray) for x in jax.tree.leaves(got))
    jax.tree.map(np.testing.assert_array_equal, got, jax.device_get(want))


def test_programs_of_the_processor_are_made_for_it():
    other = jax.devices()[3]
    with jax.default_device(other):
        seen = []
        on_processor(lambda: seen.append((this_machine().platform, jax.config.jax_default_device)) or jnp.zeros(()))
    (platform, device), *_ = seen
    assert platform == "cpu"
    assert device == jax.local_devices(backend="cpu")[0] != other
