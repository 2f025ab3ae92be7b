"""Flattens nested dicts of parameters, for code that looks parameters up by name.

Use it in all code that looks up a parameter by a path such as "bert/embed/token/embedding"; conversion, golden checks
and the start of a run from another model do.
"""

from __future__ import annotations

from flax import traverse_util

from charlm.core.types import Tree


def flat(tree: Tree) -> dict[str, Tree]:
    """Returns the leaves of nested dicts by their paths, such as "bert/embed/token/embedding".

    The leaves are untyped: they may be arrays, descriptions of arrays, or placeholders.
    """
    return traverse_util.flatten_dict(tree, sep="/")
