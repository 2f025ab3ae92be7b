"""Scores texts with a causal model; texts longer than the model are scored in overlapping windows.

`SubwordPredictor.score` uses it; open it to change how much context a piece has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import AnyModel, Params


class Stretch(NamedTuple):
    """A window [start, end) of a sequence, in which the pieces from index `first` on are scored."""

    start: int
    first: int
    end: int


def stretches(length: int, longest: int) -> list[Stretch]:
    """Returns windows that together score every piece of a sequence, except the first one, exactly once.

    A window begins every `longest // 2` pieces, so a scored piece has seen all pieces before it, or at least half a
    window of them.

    Args:
      length: pieces of the sequence.
      longest: the most pieces that the model reads.

    Raises:
      ValueError: the model reads one piece at a time, so that no piece has one before it.
    """
    if longest < 2 <= length:
        raise ValueError(f"a model of {longest} position scores nothing: expected at least 2")
    found, scored = [], 1
    for start in range(0, length, max(1, longest // 2)):
        end = min(start + longest, length)
        if end > scored:
            found.append(Stretch(start, scored, end))
            scored = end
    return found


def scorer(model: AnyModel) -> Callable[[Params, np.ndarray, np.ndarray], jax.Array]:
    """Returns a compiled function (parameters, ids [B, L], mask [B, L]) -> log-probs [B, L - 1] of ids[:, 1:]."""

    def log_probs(params: Params, ids_BL: jax.Array, mask_BL: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, ids_BL, mask_BL).logits[:, :-1]
        chosen_BL = jnp.take_along_axis(logits, ids_BL[:, 1:, None], axis=-1)[..., 0]
        return chosen_BL - jax.nn.logsumexp(logits, axis=-1)

    return jax.jit(log_probs)
