"""The optimizer step, the same for every objective: gradients of sums over micro-batches, divided once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from charlm.core.optimizer import with_frozen, without_frozen
from charlm.core.state import TrainState, stream_key

# A NamedTuple of float32 scalars: loss and weight (what it is divided by) of each part, then what else is counted.
Sums = Any
LossSums = Callable[[Any, Any, jax.Array], Sums]  # parameters, micro-batch, key of dropout -> sums
Weights = Callable[[Any], Sequence[jax.Array]]  # batch [accumulation, ...] -> weight of each part, of all micro-batches
TrainStep = Callable[[TrainState, Any], tuple[TrainState, Sums, jax.Array]]


def mean_loss(sums: Sums, parts: int = 1) -> float:
    """Returns the loss of sums on the host: of each part its mean, 0 where nothing was asked; the parts added up."""
    return float(sum(sums[2 * i] / max(sums[2 * i + 1], 1) for i in range(parts)))


def step_options(remat: bool) -> dict[str, str]:
    """Returns the compiler's options for a step: what recomputation needs to save memory on CPUs.

    `jax.checkpoint` ties the recomputation to the gradient that asks for it by a barrier. XLA for CPUs took barriers
    away before it ordered the operations (with jax 0.10), so everything was computed again early, and kept as long as
    before; with later versions this changes nothing. For this program it replaces a user's own list of that name.

    Args:
      remat: whether the model recomputes activations.
    """
    return {"xla_disable_hlo_passes": "cse_barrier_expander"} if remat and jax.default_backend() == "cpu" else {}


def make_train_step(
    loss_sums: LossSums,
    optimizer: optax.GradientTransformation,
    seed: int,
    freeze: tuple[str, ...] = (),
    weights: Weights | None = None,
) -> TrainStep:
    """Returns the step: state, batch [accumulation, ...] -> next state, sums of the batch, norm of its gradient.

    Args:
      weights: for a loss of several parts, each the mean over a number of labels of its own. A part's gradient must be
        divided by its weight before the parts are added, so all weights of the batch are counted first: the labels
        alone decide them. None: one part.
    """

    def loss(
        trained: Any, params: Any, micro_batch: Any, key: jax.Array, shares: Sequence[Any]
    ) -> tuple[jax.Array, Sums]:
        sums = loss_sums(with_frozen(trained, params), micro_batch, key)
        total = sums[0]
        for i, share in enumerate(shares, start=1):
            total += share * sums[2 * i]
        return total, sums

    def train_step(state: TrainState, batch: Any) -> tuple[TrainState, Sums, jax.Array]:
        key = stream_key(seed, "dropout", state.step)
        divisors = [jnp.maximum(weight, 1) for weight in weights(batch)] if weights else []
        shares = [divisors[0] / divisor for divisor in divisors[1:]]  # of the division that comes last
        trained = without_frozen(state.params, freeze)

        def gradient(i: jax.Array | int, micro_batch: Any) -> tuple[Any, Sums]:
            (_, sums), grads = jax.value_and_grad(loss, has_aux=True)(
                trained, state.params, micro_batch, jax.random.fold_in(key, i), shares
            )
            return grads, sums

        def accumulate(carry: Any, item: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, carry, gradient(*item)), None

        micro_batches = jax.tree.leaves(batch)[0].shape[0]
        first = jax.tree.map(lambda x: x[0], batch)
        if micro_batches == 1:
            grads, sums = gradient(0, first)
        else:
            zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, 0, first))
            (grads, sums), _ = jax.lax.scan(accumulate, zero, (jnp.arange(micro_batches), batch))
        # Sums over the whole batch, divided once: the same gradient however the batch is cut.
        grads = jax.tree.map(lambda g: g / jnp.maximum(sums[1], 1), grads)
        none = jax.tree.map(jnp.zeros_like, state.params)  # the compiler drops what stays of these
        updates, opt_state = optimizer.update(with_frozen(grads, none), state.opt_state, state.params)
        # Adding 0 is not enough for frozen parameters to stay as they are: it makes 0 of -0.
        moved = optax.apply_updates(trained, without_frozen(updates, freeze))
        return TrainState(state.step + 1, with_frozen(moved, state.params), opt_state), sums, optax.tree.norm(grads)

    return train_step
