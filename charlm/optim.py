"""The optimizer: AdamW with linear warm-up, decay and gradient clipping (HLM, section 3.5)."""

from __future__ import annotations

from typing import Any

import jax
import ml_collections
import optax

from charlm.sharding import path_name


def learning_rate(config: ml_collections.ConfigDict) -> optax.Schedule:
    """Returns the schedule step -> learning rate of `config.optim` over `config.train.steps`."""
    optim, steps = config.optim, config.train.steps
    warmup = optax.linear_schedule(0.0, optim.learning_rate, max(optim.warmup_steps, 1))
    if optim.schedule == "constant":
        after = optax.constant_schedule(optim.learning_rate)
    else:
        after = optax.linear_schedule(optim.learning_rate, 0.0, max(steps - optim.warmup_steps, 1))
    return after if optim.warmup_steps == 0 else optax.join_schedules([warmup, after], [optim.warmup_steps])


def decayed(params: Any) -> Any:
    """Returns a tree of bools: True where weight decay applies.

    Matrices and embedding tables, never biases and LayerNorms (as the released training does), and never the pooler:
    pre-training gives it no gradient, and decay alone would only shrink what fine-tuning starts from.
    """

    def decays(path: Any, leaf: jax.Array) -> bool:
        return leaf.ndim >= 2 and "pooler" not in path_name(path)

    return jax.tree_util.tree_map_with_path(decays, params)


def make_optimizer(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
    """Returns clipping followed by AdamW."""
    optim = config.optim
    clip = optax.clip_by_global_norm(optim.clip_norm) if optim.clip_norm else optax.identity()
    adamw = optax.adamw(
        learning_rate(config), optim.b1, optim.b2, optim.eps, weight_decay=optim.weight_decay, mask=decayed
    )
    return optax.chain(clip, adamw)
