"""Comparisons of trees of arrays: parameters, states and batches."""

from __future__ import annotations

import jax
import numpy as np

from charlm.core.types import Tree


def assert_same_trees(found: Tree, wanted: Tree) -> None:
    """Checks that two trees have the same structure, and leaves that are the same to the bit."""
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
