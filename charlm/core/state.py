"""The training state (step, parameters, optimizer state), its initialisation, and the random keys of each step.

Open it to see what the state in a checkpoint consists of, or how a random stream such as dropout gets its key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from charlm.core.leafwise import leafwise
from charlm.core.spikes import History
from charlm.core.types import Params

T = TypeVar("T")


class TrainState(NamedTuple):
    """Step counter (int32), parameters, optimizer state, and the history of losses that finds spikes (None: off).

    The history is stored in a checkpoint's description, not among its arrays: so a run may look for spikes from any
    checkpoint on, or no longer.
    """

    step: jax.Array
    params: Params
    opt_state: optax.OptState
    history: History | None = None


class StoredState(NamedTuple):
    """The arrays of a `TrainState` that a checkpoint stores."""

    step: jax.Array
    params: Params
    opt_state: optax.OptState


def stream_key(seed: int, name: str, step: jax.Array | int = 0) -> jax.Array:
    """Returns the key of a named random stream at one step, so that keys never repeat and need not be stored."""
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), zlib.crc32(name.encode()))
    return jax.random.fold_in(key, step)


def on_processor(make: Callable[[], T]) -> T:
    """Returns the arrays that `make` returns, computed on the CPU.

    This is for random parameters: they are then the same whatever accelerator trains them, and an accelerator's
    compiler need not see their hundreds of random generators (as one program for an NVIDIA H200, with jax 0.11.2, those
    of HLM-Base did not compile in six minutes).

    Returns:
      NumPy arrays if there is an accelerator, else JAX arrays: on CPUs, `jax.device_put` may use a NumPy array without
      a copy, and then a training step that the array is donated to cannot reuse its memory.
    """
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS excludes the CPU
        processor = None
    with jax.default_device(processor):
        made = leafwise(make)
    return jax.block_until_ready(made) if jax.default_backend() == "cpu" else jax.device_get(made)


def new_state(params: Params, optimizer: optax.GradientTransformation, history: History | None = None) -> TrainState:
    """Returns the state of step 0 with these parameters."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), history)
