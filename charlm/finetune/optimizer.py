"""AdamW for fine-tuning: a learning rate of its own for what was not pre-trained."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import ml_collections
import optax

from charlm.core.optimizer import frozen
from charlm.core.sharding import path_name


def learning_rate(config: ml_collections.ConfigDict, steps: int, peak: float) -> optax.Schedule:
    """Returns the schedule step -> learning rate over so many steps."""
    warmup = round(config.optim.warmup_share * steps)
    if config.optim.schedule == "constant":
        after = optax.constant_schedule(peak)
    else:
        after = optax.linear_schedule(peak, 0.0, max(steps - warmup, 1))
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup]) if warmup else after


def make_optimizer(config: ml_collections.ConfigDict, steps: int, new: Collection[str]) -> optax.GradientTransformation:
    """Returns clipping followed by AdamW; matrices decay, biases and LayerNorms do not.

    Args:
      steps: of the whole run. new: names of the parameters that begin at random.
    """
    optim = config.optim

    def adamw(peak: float) -> optax.GradientTransformation:
        decayed = lambda params: jax.tree.map(lambda x: x.ndim >= 2, params)
        rate = learning_rate(config, steps, peak)
        return optax.adamw(rate, optim.b1, optim.b2, optim.eps, weight_decay=optim.weight_decay, mask=decayed)

    kinds = {"pretrained": adamw(optim.learning_rate), "frozen": optax.set_to_zero()}
    if optim.head_learning_rate:
        kinds["new"] = adamw(optim.head_learning_rate)

    def labels(params: Any) -> Any:
        stays = frozen(params, optim.freeze)

        def kind(path: Any, is_frozen: bool) -> str:
            own = optim.head_learning_rate and path_name(path) in new
            return "frozen" if is_frozen else "new" if own else "pretrained"

        return jax.tree_util.tree_map_with_path(kind, stays)

    clip = optax.clip_by_global_norm(optim.clip_norm) if optim.clip_norm else optax.identity()
    return optax.chain(clip, optax.multi_transform(kinds, labels))
