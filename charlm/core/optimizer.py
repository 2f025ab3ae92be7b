"""The optimizer of every run: AdamW with warm-up and linear decay (HLM, section 3.5), and gradient clipping.

Open it to change the learning-rate schedules, or which parameters have weight decay or are frozen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import jax
import ml_collections
import optax
from jax.tree_util import KeyPath

from charlm.core.packing import packing
from charlm.core.sharding import path_name
from charlm.core.types import Params, Tree


def learning_rate(
    optim: ml_collections.ConfigDict, steps: int, warmup: int, peak: float | None = None
) -> optax.Schedule:
    """Returns the schedule step -> learning rate.

    Args:
      optim: the config's section.
      steps: length of the whole run.
      warmup: steps in which the rate rises from 0.
      peak: the rate after warm-up; None: `optim.learning_rate`.
    """
    peak = float(optim.learning_rate) if peak is None else peak
    left = max(steps - warmup, 1)
    if optim.schedule == "constant":
        after = optax.constant_schedule(peak)
    elif optim.schedule == "cosine":
        after = optax.cosine_decay_schedule(peak, left)
    elif optim.schedule == "wsd":  # warm-up, stable, decay (MiniCPM, Hu et al. 2024): a longer run has the same start
        falling = min(max(round(optim.cooldown_share * steps), 1), left)
        stable = left - falling
        after = optax.join_schedules(
            [optax.constant_schedule(peak), optax.linear_schedule(peak, 0.0, falling)], [stable]
        )
    else:
        after = optax.linear_schedule(peak, 0.0, left)
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup]) if warmup else after


def decayed(params: Params, spared: Iterable[str] = ()) -> Tree:
    """Returns a tree of bools: True where weight decay applies.

    Matrices and embedding tables decay; biases and LayerNorms never do (as in the released training).

    Args:
      spared: regular expressions; a parameter also does not decay if one of them is found in its name. This is for
        parameters without a gradient, for example, which would only shrink.
    """

    def decays(path: KeyPath, leaf: jax.Array) -> bool:
        return leaf.ndim >= 2 and not any(re.search(pattern, path_name(path)) for pattern in spared)

    return jax.tree_util.tree_map_with_path(decays, params)


def frozen(params: Params, patterns: Iterable[str]) -> Tree:
    """Returns a tree of bools: True for the parameters that are frozen.

    Args:
      patterns: regular expressions; a parameter is frozen if one of them is found in its name, "a/b/c".

    Raises:
      ValueError: a pattern is not a regular expression, or is found in no name.
    """
    names = [path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for pattern in patterns:
        try:
            known = any(re.search(pattern, name) for name in names)
        except re.error as error:
            raise ValueError(f"optim.freeze={pattern!r} is not a regular expression: {error}") from None
        if not known:
            raise ValueError(f"optim.freeze={pattern!r} is found in no name of a parameter, such as {names[0]}")
    is_frozen = lambda path, _: any(re.search(pattern, path_name(path)) for pattern in patterns)
    return jax.tree_util.tree_map_with_path(is_frozen, params)


def without_frozen(params: Tree, patterns: Iterable[str]) -> Tree:
    """Returns the tree with None in place of frozen parameters, so that gradients are computed only for the rest."""
    drop = lambda is_frozen, x: None if is_frozen else x
    return jax.tree.map(drop, frozen(params, patterns), params) if patterns else params


def with_frozen(trained: Tree, params: Tree) -> Tree:
    """Returns `trained`, a tree from `without_frozen`, with its Nones replaced by the leaves of `params`."""
    return jax.tree.map(lambda x, other: other if x is None else x, trained, params, is_leaf=lambda x: x is None)


def make_optimizer(
    optim: ml_collections.ConfigDict,
    rate: optax.Schedule,
    spared: Iterable[str] = (),
    new: Collection[str] = (),
    new_rate: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Returns gradient clipping followed by AdamW; frozen parameters (`optim.freeze`) have no moments and no updates.

    Args:
      optim: the config's section.
      rate: the learning rate.
      spared: see `decayed`.
      new: names of parameters with a learning rate of their own.
      new_rate: that learning rate; None: there are no such parameters.
    """
    spared = tuple(spared)

    def adamw(schedule: optax.Schedule) -> optax.GradientTransformation:
        mask = lambda params: decayed(params, spared)
        return optax.adamw(schedule, optim.b1, optim.b2, optim.eps, weight_decay=optim.weight_decay, mask=mask)

    def is_new(params: Params) -> Tree:
        return jax.tree_util.tree_map_with_path(lambda path, _: "new" if path_name(path) in new else "known", params)

    clip = optax.clip_by_global_norm(optim.clip_norm) if optim.clip_norm else optax.identity()
    moved = (
        adamw(rate)
        if new_rate is None
        else optax.multi_transform({"known": adamw(rate), "new": adamw(new_rate)}, is_new)
    )
    trained = optax.chain(clip, moved)

    def labels(params: Params) -> Tree:
        return jax.tree.map(lambda stays: "frozen" if stays else "trained", frozen(params, optim.freeze))

    if optim.freeze:
        trained = optax.multi_transform({"trained": trained, "frozen": optax.set_to_zero()}, labels)
    return packing(trained, lambda name: (name in new, *(bool(re.search(pattern, name)) for pattern in optim.freeze)))
