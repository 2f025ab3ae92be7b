"""The optimizer: AdamW with linear warm-up, decay and gradient clipping (HLM, section 3.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jax
import ml_collections
import optax

from charlm.core.sharding import path_name


def learning_rate(config: ml_collections.ConfigDict) -> optax.Schedule:
    """Returns the schedule step -> learning rate of `config.optim` over `config.train.steps`."""
    optim, steps = config.optim, config.train.steps
    warmup = optax.linear_schedule(0.0, optim.learning_rate, max(optim.warmup_steps, 1))
    if optim.schedule == "constant":
        after = optax.constant_schedule(optim.learning_rate)
    elif optim.schedule == "cosine":
        after = optax.cosine_decay_schedule(optim.learning_rate, max(steps - optim.warmup_steps, 1))
    else:
        after = optax.linear_schedule(optim.learning_rate, 0.0, max(steps - optim.warmup_steps, 1))
    return after if optim.warmup_steps == 0 else optax.join_schedules([warmup, after], [optim.warmup_steps])


def decayed(params: Any) -> Any:
    """Returns a tree of bools: True where weight decay applies.

    Matrices and embedding tables, never biases and LayerNorms (as the released training does), and never the pooler:
    pre-training gives it no gradient, and decay alone would only shrink what fine-tuning starts from. Nor CharBERT's
    table of characters, whose first row stays as it began.
    """

    def decays(path: Any, leaf: jax.Array) -> bool:
        return leaf.ndim >= 2 and not re.search(r"(^|/)pooler/|(^|/)char/table/", path_name(path))

    return jax.tree_util.tree_map_with_path(decays, params)


def frozen(params: Any, patterns: Iterable[str]) -> Any:
    """Returns a tree of bools: True for the parameters that stay as they are.

    Args:
      patterns: regular expressions; a parameter is frozen when one of them is found in its name, "a/b/c".

    Raises:
      ValueError: when one is no regular expression, or is found in no name.
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


def without_frozen(params: Any, patterns: Iterable[str]) -> Any:
    """Returns the same tree with None in place of the frozen parameters: what a gradient is computed for."""
    drop = lambda is_frozen, x: None if is_frozen else x
    return jax.tree.map(drop, frozen(params, patterns), params) if patterns else params


def with_frozen(trained: Any, params: Any) -> Any:
    """Returns a tree of `without_frozen` with the leaves of another tree where it has None."""
    return jax.tree.map(lambda x, other: other if x is None else x, trained, params, is_leaf=lambda x: x is None)


def make_optimizer(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
    """Returns clipping followed by AdamW; what `optim.freeze` names has no moments and is neither moved nor decayed."""
    optim = config.optim
    clip = optax.clip_by_global_norm(optim.clip_norm) if optim.clip_norm else optax.identity()
    adamw = optax.adamw(
        learning_rate(config), optim.b1, optim.b2, optim.eps, weight_decay=optim.weight_decay, mask=decayed
    )
    trained = optax.chain(clip, adamw)
    if not optim.freeze:
        return trained

    def labels(params: Any) -> Any:
        return jax.tree.map(lambda stays: "frozen" if stays else "trained", frozen(params, optim.freeze))

    return optax.multi_transform({"trained": trained, "frozen": optax.set_to_zero()}, labels)
