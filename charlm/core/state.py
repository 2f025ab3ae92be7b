"""The training state (step, parameters, optimizer state), its initialisation, and the random keys of each step."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from charlm.core.batch import WordBatch

T = TypeVar("T")


class TrainState(NamedTuple):
    """Step counter (int32), parameters and optimizer state."""

    step: jax.Array
    params: Any
    opt_state: Any


def stream_key(seed: int, name: str, step: jax.Array | int = 0) -> jax.Array:
    """Returns the key of a named random stream at one step, so that keys never repeat and need not be stored."""
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
    return jax.random.fold_in(key, step)


def on_processor(make: Callable[[], T]) -> T:
    """Returns the arrays that `make` returns, computed on the CPU.

    This is for random parameters: they are then the same whatever accelerator trains them, and compiling their hundreds
    of random generators takes seconds (on an NVIDIA H200 with jax 0.11.2, it did not end in six minutes for HLM-Base).

    Returns:
      NumPy arrays if there is an accelerator, else JAX arrays: on CPUs, `jax.device_put` may use a NumPy array without
      a copy, and then a training step that the array is donated to cannot reuse its memory.
    """
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS excludes the CPU
        processor = None
    with jax.default_device(processor):
        made = jax.jit(make)()
    return jax.block_until_ready(made) if jax.default_backend() == "cpu" else jax.device_get(made)


def init_state(model: nn.Module, optimizer: optax.GradientTransformation, batch: WordBatch, seed: int) -> TrainState:
    """Returns the state of step 0; to be traced (`on_processor`, `jax.eval_shape`) with a micro-batch [S, ...]."""
    return new_state(model.init(stream_key(seed, "init"), batch)["params"], optimizer)


def new_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the state of step 0 with these parameters."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
