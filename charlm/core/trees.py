"""Nested dicts of parameters as flat ones, when each parameter is looked up by its name."""

from __future__ import annotations

from typing import Any

from flax import traverse_util


def flat(tree: Any) -> dict[str, Any]:
    """Returns the leaves of nested dicts by their paths, as "bert/embed/token/embedding".

    A leaf may be an array, its description, or what stands for one, so it has no type.
    """
    return traverse_util.flatten_dict(tree, sep="/")
