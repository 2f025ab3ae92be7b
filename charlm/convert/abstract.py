"""Returns the names, shapes and dtypes of a model's parameters without computing them; each model is traced once.

Import and export use it to know what a model needs before any weights are read. Open it when tracing a model for them
fails or takes long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax

from charlm.core.types import Params, Tree


def abstract_params(module: nn.Module, smallest: Callable[[nn.Module], tuple[Tree, ...]]) -> Params:
    """Returns the tree of a model's parameters as `jax.ShapeDtypeStruct`; computes no values.

    Results are cached, because tracing a model may take seconds, and loading it, giving it another head and saving it
    each need the tree.

    Args:
      module: the model.
      smallest: takes the model and returns the smallest possible arguments of `module.init` after the key. It is part
        of the cache key, so it must be a function of a module, not a lambda.
    """
    return jax.tree.map(lambda leaf: leaf, _traced(module, smallest))  # a copy, because the caller may change it


@functools.lru_cache(maxsize=64)
def _traced(module: nn.Module, smallest: Callable[[nn.Module], tuple[Tree, ...]]) -> Params:
    return jax.eval_shape(lambda: module.init(jax.random.key(0), *smallest(module)))["params"]
