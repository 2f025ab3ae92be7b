"""Compiles models of tests as one program; use it if a test applies a module, or needs parameters, outside of `jit`.

Outside of `jit`, JAX compiles every operation by itself, some 25 ms each: seconds for a single layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from charlm.core.leafwise import leafwise


@functools.lru_cache(maxsize=64)
def applied(model: nn.Module, **fixed: Any) -> Callable[..., Any]:
    """Returns `apply` as a program of parameters and inputs; `fixed` are its other arguments, such as `method`.

    The same for equal models: not for a test that changes what a model calls.
    """
    return jax.jit(lambda params, *inputs, **named: model.apply({"params": params}, *inputs, **named, **fixed))


def drawn(model: nn.Module, *inputs: Any, seed: int = 0, scale: float = 0.5) -> Any:
    """Returns parameters of a model for such inputs, float32, normal; nothing is compiled."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *inputs))["params"]
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes)


def initial(model: nn.Module, *inputs: Any, seed: int = 0) -> Any:
    """Returns the parameters that a new model of this kind begins with; equal layers are compiled once."""
    return leafwise(lambda: model.init(jax.random.key(seed), *inputs))["params"]
