"""Flattens nested dicts of parameters, for code that looks parameters up by name."""

from __future__ import annotations

from typing import Any

from flax import traverse_util


def flat(tree: Any) -> dict[str, Any]:
    """Returns the leaves of nested dicts by their paths, such as "bert/embed/token/embedding".

    The leaves are untyped: they may be arrays, descriptions of arrays, or placeholders.
    """
    return traverse_util.flatten_dict(tree, sep="/")
