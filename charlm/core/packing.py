"""An optimizer that moves all biases and LayerNorm vectors of a model as a few long arrays.

Open it when a training step with many layers compiles slowly. Most arrays of a deep model are vectors of some hundred
numbers, and an optimizer needs dozens of operations for each array, however small: for a model of 24 layers more than
the model itself. So vectors are put side by side before the optimizer, and taken apart after it. The state keeps an
array for each parameter, so checkpoints do not depend on this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from charlm.core.sharding import copied, is_split, path_name
from charlm.core.types import Tree

Groups = Sequence[Sequence[int]]  # the numbers of parameters, in the order of the tree, that are moved as one


def packing(optimizer: optax.GradientTransformation, kind: Callable[[str], Hashable]) -> optax.GradientTransformation:
    """Returns the optimizer with vectors moved together; its state, and its updates but for rounding, are the same.

    Vectors that the mesh splits over devices stay by themselves.

    Args:
      optimizer: moves each number by its own gradient and moments, and by sums over all gradients. It must treat all
        vectors of a kind alike, whatever their names.
      kind: from a parameter's name, "a/b/c", to what decides how it is moved, such as whether it is frozen.
    """

    def update(updates: Tree, state: Tree, params: optax.Params | None = None) -> tuple[Tree, Tree]:
        assert params is not None  # AdamW reads them
        groups = _groups(params, kind)
        if not groups:
            return optimizer.update(updates, state, params)
        pack, own = (lambda tree: _packed(tree, groups)), _leaves(params)[1]
        is_like = lambda x: _leaves(x)[1] == own  # moments have the tree of the parameters
        within = lambda change, *trees: jax.tree.map(
            lambda x, *more: change(x, *more) if is_like(x) else x, *trees, is_leaf=is_like
        )
        moved, after = optimizer.update(pack(updates), within(pack, state), pack(params))
        unpack = lambda tree, before: _unpacked(tree, before, groups)
        return unpack(moved, updates), within(unpack, after, state)

    return optax.GradientTransformation(optimizer.init, update)


def _groups(params: Tree, kind: Callable[[str], Hashable]) -> Groups:
    groups: dict[Hashable, list[int]] = {}
    for number, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(params)):
        name = path_name(path)
        if leaf.ndim == 1 and not is_split(name, leaf.shape):
            groups.setdefault((leaf.dtype, kind(name)), []).append(number)
    return [members for members in groups.values() if len(members) > 1]


def _is_masked(x: Any) -> bool:  # Any: an array, or what optax puts in its place
    return x is None or isinstance(x, optax.MaskedNode)


def _leaves(tree: Tree) -> tuple[list[Any], Any]:  # Any: arrays or what stands in their place; a treedef has no type
    """Returns one leaf for each parameter, which may be one of optax's nodes for those that are masked out."""
    return jax.tree.flatten(tree, is_leaf=_is_masked)


def _packed(tree: Tree, groups: Groups) -> Tree:
    """Returns a tree with the vectors of each group, one after the other, in the place of the group's first."""
    leaves, treedef = _leaves(tree)
    for first, *rest in groups:
        if not _is_masked(leaves[first]):
            leaves[first] = copied(jnp.concatenate([copied(leaves[n]) for n in (first, *rest)]))
        for n in rest:
            leaves[n] = None
    return jax.tree.unflatten(treedef, leaves)


def _unpacked(tree: Tree, before: Tree, groups: Groups) -> Tree:
    """Returns a tree of `_packed` with the vectors in the places that they have in `before`."""
    leaves, (wanted, treedef) = _leaves(tree)[0], _leaves(before)
    for group in groups:
        whole, start = leaves[group[0]], 0
        for n in group:
            if _is_masked(whole):
                leaves[n] = wanted[n]
                continue
            leaves[n] = whole[start : start + wanted[n].size]
            start += wanted[n].size
    return jax.tree.unflatten(treedef, leaves)
