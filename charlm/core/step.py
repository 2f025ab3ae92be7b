"""The optimizer step of every training: gradients of loss sums, added over micro-batches and divided once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from charlm.core.optimizer import with_frozen, without_frozen
from charlm.core.state import TrainState, stream_key

# A NamedTuple of float32 scalars: for each part of the loss its sum and weight (its divisor), then any other counts.
Sums = Any
LossSums = Callable[[Any, Any, jax.Array], Sums]  # parameters, micro-batch, dropout key -> sums
Weights = Callable[[Any], Sequence[jax.Array]]  # batch [accumulation, ...] -> weight of each part over all of it
TrainStep = Callable[[TrainState, Any], tuple[TrainState, Sums, jax.Array]]


def mean_loss(sums: Sums, parts: int = 1) -> float:
    """Returns the loss from sums on the host: the sum of each part's mean, where a part without labels counts 0."""
    return float(sum(sums[2 * i] / max(sums[2 * i + 1], 1) for i in range(parts)))


def step_options(remat: bool) -> dict[str, str]:
    """Returns compiler options for a step, without which rematerialisation saves no memory on CPUs.

    `jax.checkpoint` ties the recomputation to the gradient that needs it by a barrier. With jax 0.10, XLA for CPUs
    removed barriers before it scheduled the operations, so everything was recomputed early and kept as long as without
    `jax.checkpoint`; with later versions the option changes nothing. For this program it overrides any list that the
    user gave in the option of that name.

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
    """Returns the training step: state, batch [accumulation, ...] -> next state, sums of the batch, gradient norm.

    Args:
      weights: for a loss of several parts, each of which is a mean over its own labels. A part's gradient must be
        divided by its weight before the parts are added, so the weights of the whole batch are computed first; they
        depend only on the labels. None: the loss has one part.
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
        shares = [divisors[0] / divisor for divisor in divisors[1:]]  # the final division is by the first part's weight
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
        # Sums over the whole batch, divided once: the gradient does not depend on the number of micro-batches.
        grads = jax.tree.map(lambda g: g / jnp.maximum(sums[1], 1), grads)
        none = jax.tree.map(jnp.zeros_like, state.params)  # stands in for frozen gradients; the compiler removes it
        updates, opt_state = optimizer.update(with_frozen(grads, none), state.opt_state, state.params)
        # Frozen parameters are left out of the update, because even adding 0 changes them: it turns -0 into 0.
        moved = optax.apply_updates(trained, without_frozen(updates, freeze))
        return TrainState(state.step + 1, with_frozen(moved, state.params), opt_state), sums, optax.tree.norm(grads)

    return train_step
