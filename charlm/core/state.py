"""What a training run carries from step to step, and the randomness of each step."""

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
    """Returns the key of one random stream at one step, so that no key is used twice and none is stored."""
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
    return jax.random.fold_in(key, step)


def on_processor(make: Callable[[], T]) -> T:
    """Returns what a function of arrays makes, computed by this machine's processor.

    For random parameters: they are the same whatever accelerator trains them, and compiling their hundreds of
    generators takes seconds; for an NVIDIA H200 (jax 0.11.2), HLM-Base's did not end in six minutes.

    Returns:
      Where accelerators are, numpy arrays; else JAX's own: `jax.device_put` of a numpy array may take it as it is, and
      a step that it is donated to cannot use its memory.
    """
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        processor = None
    with jax.default_device(processor):
        made = jax.jit(make)()
    return jax.block_until_ready(made) if jax.default_backend() == "cpu" else jax.device_get(made)


def init_state(model: nn.Module, optimizer: optax.GradientTransformation, batch: WordBatch, seed: int) -> TrainState:
    """Returns the state of step 0; trace it (`on_processor`, `jax.eval_shape`) with a micro-batch [S, ...]."""
    return new_state(model.init(stream_key(seed, "init"), batch)["params"], optimizer)


def new_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the state of step 0."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
