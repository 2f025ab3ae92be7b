"""The optimizer step of every training: gradients of loss sums, added over micro-batches and divided once.

Open it to change what happens between a batch and the updated parameters; `charlm.training.program` compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from charlm.core.hashed_keys import hashed
from charlm.core.optimizer import with_frozen, without_frozen
from charlm.core.spikes import Seen, judged, unless
from charlm.core.state import TrainState, stream_key
from charlm.core.types import Params, Tree

# A NamedTuple of float32 scalars, of another class for each loss: for each part of the loss its sum and weight (its
# divisor), then any other counts.
Sums: TypeAlias = Any
LossSums = Callable[[Params, Tree, jax.Array], Sums]  # parameters, micro-batch, dropout key -> sums
Weights = Callable[[Tree], Sequence[jax.Array]]  # batch [accumulation, ...] -> weight of each part over all of it
TrainStep = Callable[[TrainState, Tree], tuple[TrainState, Sums, jax.Array | Seen]]


def mean_loss(sums: Sums, parts: int = 1) -> float:
    """Returns the loss from sums on the host: the sum of each part's mean, where a part without labels counts 0."""
    return float(sum(sums[2 * i] / max(sums[2 * i + 1], 1) for i in range(parts)))


def step_options(remat: bool, platform: str) -> dict[str, str]:
    """Returns compiler options for a step, without which rematerialisation saves no memory on CPUs.

    `jax.checkpoint` ties the recomputation to the gradient that needs it by a barrier. With jax 0.10, XLA for CPUs
    removed barriers before it scheduled the operations, so everything was recomputed early and kept as long as without
    `jax.checkpoint`; with later versions the option changes nothing. For this program it overrides any list that the
    user gave in the option of that name.

    Args:
      remat: whether the model recomputes activations. platform: of the devices, "cpu", "gpu" or "tpu".
    """
    return {"xla_disable_hlo_passes": "cse_barrier_expander"} if remat and platform == "cpu" else {}


def make_train_step(
    loss_sums: LossSums,
    optimizer: optax.GradientTransformation,
    seed: int,
    freeze: tuple[str, ...] = (),
    weights: Weights | None = None,
    parts: int = 1,
    threshold: float = 0.0,
) -> TrainStep:
    """Returns the training step: state, batch [accumulation, ...] -> next state, sums of the batch, gradient norm.

    With a state that has a history, the update of a spike is left out, and `Seen` takes the norm's place.

    Args:
      weights: for a loss of several parts, each of which is a mean over its own labels. A part's gradient must be
        divided by its weight before the parts are added, so the weights of the whole batch are computed first; they
        depend only on the labels. None: the loss has one part.
      parts: number of parts of the loss.
      threshold: see `charlm.core.spikes.judged`; read only for states with a history.
    """

    def loss(
        trained: Params, params: Params, micro_batch: Tree, key: jax.Array, shares: Sequence[jax.Array]
    ) -> tuple[jax.Array, Sums]:
        sums = loss_sums(with_frozen(trained, params), micro_batch, key)
        total = sums[0]
        for i, share in enumerate(shares, start=1):
            total += share * sums[2 * i]
        return total, sums

    def train_step(state: TrainState, batch: Tree) -> tuple[TrainState, Sums, jax.Array | Seen]:
        key = hashed(stream_key(seed, "dropout", state.step))
        divisors = [jnp.maximum(weight, 1) for weight in weights(batch)] if weights else []
        shares = [divisors[0] / divisor for divisor in divisors[1:]]  # the final division is by the first part's weight
        trained = without_frozen(state.params, freeze)

        def gradient(i: jax.Array | int, micro_batch: Tree) -> tuple[Params, Sums]:
            (_, sums), grads = jax.value_and_grad(loss, has_aux=True)(
                trained, state.params, micro_batch, jax.random.fold_in(key, i), shares
            )
            return grads, sums

        grads, sums = _accumulated(gradient, batch)
        # Sums over the whole batch, divided once: the gradient does not depend on the number of micro-batches.
        weight = jnp.maximum(sums[1], 1)
        grads = jax.tree.map(lambda g: g / weight, grads)
        none = jax.tree.map(jnp.zeros_like, state.params)  # stands in for frozen gradients; the compiler removes it
        updates, opt_state = optimizer.update(with_frozen(grads, none), state.opt_state, state.params)
        # Frozen parameters are left out of the update, because even adding 0 changes them: it turns -0 into 0.
        moved = optax.apply_updates(trained, without_frozen(updates, freeze))
        new, norm = TrainState(state.step + 1, with_frozen(moved, state.params), opt_state), optax.tree.norm(grads)
        if state.history is None:
            return new, sums, norm
        means = [sums[2 * i] / jnp.maximum(sums[2 * i + 1], 1) for i in range(parts)]
        history, seen = judged(state.history, sum(means, jnp.zeros(())), norm, threshold)
        params = unless(seen.spike, new.params, state.params)
        return TrainState(new.step, params, unless(seen.spike, opt_state, state.opt_state), history), sums, seen

    return train_step


def _accumulated(gradient: Callable[[jax.Array | int, Tree], tuple[Params, Sums]], batch: Tree) -> tuple[Params, Sums]:
    """Returns the sums of gradients and loss sums over the micro-batches of a batch, [accumulation, ...].

    Args:
      gradient: takes the number of a micro-batch and the micro-batch.
    """

    def add(carry: Tree, item: tuple[jax.Array, Tree]) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, carry, gradient(*item)), None

    micro_batches = jax.tree.leaves(batch)[0].shape[0]
    first = jax.tree.map(lambda x: x[0], batch)
    if micro_batches == 1:
        return gradient(0, first)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, 0, first))
    total, _ = jax.lax.scan(add, zero, (jnp.arange(micro_batches), batch))
    return total
