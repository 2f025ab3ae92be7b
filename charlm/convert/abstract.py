"""The parameters that a model has, without their numbers: they are traced once, however often they are asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax


def abstract_params(module: nn.Module, smallest: Callable[[nn.Module], tuple[Any, ...]]) -> Any:
    """Returns the tree of a model's parameters, of `jax.ShapeDtypeStruct`; computes nothing.

    Tracing a model takes up to seconds, and loading one, giving it a head and saving it again each ask for it.

    Args:
      module: the model.
      smallest: a function of a file, not a lambda, since results are kept by it: takes the model, returns what
        `module.init` reads after the key, as small as it may be.
    """
    return jax.tree.map(lambda leaf: leaf, _traced(module, smallest))  # a copy: the caller may change its own


@functools.lru_cache(maxsize=64)
def _traced(module: nn.Module, smallest: Callable[[nn.Module], tuple[Any, ...]]) -> Any:
    return jax.eval_shape(lambda: module.init(jax.random.key(0), *smallest(module)))["params"]
