"""Finds loss spikes inside the training step: a loss or gradient norm far above those of the steps before.

The step itself decides, so that no process waits for another and all decide alike. It compares with the mean and the
standard deviation of the last steps that were no spikes, as OLMo's optimizer and Levanter do; a value that is not
finite is always a spike. `charlm.core.step` leaves the update of such a step out, `charlm.training.spikes` decides what
else a run does about it. Open it to change what counts as a spike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from charlm.core.types import JsonObject, Tree


class History(NamedTuple):
    """What a step is compared with; a part of the training state, saved with checkpoints.

    Attributes:
      losses: float32 [window]; the newest stands last, and only the last `known` are set.
      norms: float32 [window], the gradient norms of the same steps.
      known: int32, steps that are kept here.
      in_row: int32, spikes up to the last step without another step between them.
      total: int32, spikes of the run.
    """

    losses: jax.Array
    norms: jax.Array
    known: jax.Array
    in_row: jax.Array
    total: jax.Array


class Seen(NamedTuple):
    """What the step found out, scalars on the devices.

    Attributes:
      norm: float32, the gradient norm.
      spike: bool, whether the step is a spike, so that its update was left out.
      loss_limit, norm_limit: float32, what loss and gradient norm had to stay below or reach at most; infinite as long
        as too few steps are known.
      in_row, total: as in `History`, with this step.
    """

    norm: jax.Array
    spike: jax.Array
    loss_limit: jax.Array
    norm_limit: jax.Array
    in_row: jax.Array
    total: jax.Array


def new_history(train: ml_collections.ConfigDict) -> History | None:
    """Returns the history of a new run, or None where the policy is off; `train` is the config's section."""
    if not train.spike_policy:
        return None
    losses, norms = (jnp.zeros((train.spike_window,), jnp.float32) for _ in range(2))
    return History(losses, norms, *(jnp.zeros((), jnp.int32) for _ in range(3)))  # arrays of their own, to be donated


def judged(history: History, loss: jax.Array, norm: jax.Array, threshold: float) -> tuple[History, Seen]:
    """Returns the history after a step with this loss and gradient norm (float32 scalars), and what was found.

    Args:
      threshold: standard deviations above the mean from which on a value is a spike. As long as less than half the
        window is known, only values that are not finite are spikes.
    """
    window = history.losses.shape[0]
    held = jnp.arange(window) >= window - history.known
    enough = history.known >= (window + 1) // 2

    def limit(values: jax.Array) -> jax.Array:
        mean = jnp.sum(values, where=held) / jnp.maximum(history.known, 1)
        variance = jnp.sum((values - mean) ** 2, where=held) / jnp.maximum(history.known, 1)
        return jnp.where(enough, mean + threshold * jnp.sqrt(variance), jnp.inf)

    loss_limit, norm_limit = limit(history.losses), limit(history.norms)
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    spike = ~(finite & (loss <= loss_limit) & (norm <= norm_limit))
    in_row, total = jnp.where(spike, history.in_row + 1, 0), history.total + spike
    # A spike is not compared with later: otherwise one would hide the next.
    add = lambda values, value: jnp.where(spike, values, jnp.concatenate([values[1:], value[None]]))
    after = History(
        add(history.losses, loss),
        add(history.norms, norm),
        jnp.where(spike, history.known, jnp.minimum(history.known + 1, window)),
        in_row,
        total,
    )
    return after, Seen(norm, spike, loss_limit, norm_limit, in_row, total)


def unless(spike: jax.Array, new: Tree, old: Tree) -> Tree:
    """Returns `new`, parameters or optimizer state after an update, or `old`, those before it, if a step is a spike.

    The schedule of the learning rate counts the step in any case: the rate belongs to the step, as the log says it.
    """
    counts = lambda x: isinstance(x, optax.ScaleByScheduleState)

    def choose(after: Tree, before: Tree) -> Tree:
        return after if counts(after) else jnp.where(spike, before, after)

    return jax.tree.map(choose, new, old, is_leaf=counts)


def to_json(history: History) -> JsonObject:
    """Returns a history as JSON-able values, from which `from_json` makes the same bits."""
    held = jax.device_get(history)
    row = lambda values: [float(x) for x in values[len(values) - int(held.known) :]]
    return {
        "losses": row(held.losses), "norms": row(held.norms), "in_row": int(held.in_row), "total": int(held.total)
    }  # fmt: skip


def from_json(stored: JsonObject | None, window: int) -> History:
    """Returns a stored history as far as it fits into a window; None: nothing was stored."""
    stored = stored or {"losses": [], "norms": [], "in_row": 0, "total": 0}
    count = min(len(stored["losses"]), window)

    def row(values: list[float]) -> jax.Array:
        return jnp.asarray([0.0] * (window - count) + values[len(values) - count :], jnp.float32)

    numbers = (jnp.int32(x) for x in (count, stored["in_row"], stored["total"]))
    return History(row(stored["losses"]), row(stored["norms"]), *numbers)
