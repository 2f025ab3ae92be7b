"""Flattens nested dicts of parameters, for code that looks parameters up by name, and stacks batches.

Use `flat` in all code that looks up a parameter by a path such as "bert/embed/token/embedding"; conversion, golden
checks and the start of a run from another model do. Open it when stacked batches lose what a tree holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from flax import traverse_util

from charlm.core.types import Tree

Arrays = TypeVar("Arrays")


def flat(tree: Tree) -> dict[str, Tree]:
    """Returns the leaves of nested dicts by their paths, such as "bert/embed/token/embedding".

    The leaves are untyped: they may be arrays, descriptions of arrays, or placeholders.
    """
    return traverse_util.flatten_dict(tree, sep="/")


def stack(trees: Sequence[Arrays]) -> Arrays:
    """Stacks trees of the same structure: every array gets a new leading axis, None stays None."""
    return _stacked(trees)


def _stacked(trees: Sequence[Tree]) -> Tree:
    first = trees[0]
    if isinstance(first, tuple):
        make = getattr(type(first), "_make", tuple)
        return make(_stacked(parts) for parts in zip(*trees, strict=True))
    return None if first is None else np.stack(trees)
