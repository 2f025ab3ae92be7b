"""What a training run carries from step to step, and the randomness of each step."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from charlm.batch import WordBatch


class TrainState(NamedTuple):
    """Step counter (int32), parameters and optimizer state."""

    step: jax.Array
    params: Any
    opt_state: Any


def stream_key(seed: int, name: str, step: jax.Array | int = 0) -> jax.Array:
    """Returns the key of one random stream at one step, so that no key is used twice and none is stored."""
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
    return jax.random.fold_in(key, step)


def init_state(model: nn.Module, optimizer: optax.GradientTransformation, batch: WordBatch, seed: int) -> TrainState:
    """Returns the state before the first step; trace it (`jax.jit`, `jax.eval_shape`) with a micro-batch [S, ...]."""
    return new_state(model.init(stream_key(seed, "init"), batch)["params"], optimizer)


def new_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the state before the first step."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
