"""A run: what config and data say, built once: objective, batches, optimizer, compiled steps and their placement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import grain
import jax
import ml_collections
import numpy as np

from charlm.core.frozen import check_trained
from charlm.core.optimizer import make_optimizer
from charlm.core.sharding import (
    batch_sharding,
    local_shards,
    make_mesh,
    path_name,
    place_batch,
    place_state,
    state_sharding,
    table_shards,
)
from charlm.core.state import TrainState, new_state, on_processor, stream_key
from charlm.core.step import Sums, TrainStep, make_train_step, step_options
from charlm.families.objective import Batch, Objective
from charlm.families.registry import objective_of

EvalStep = Callable[[Any, Batch], Sums]


def make_eval_step(objective: Objective) -> EvalStep:
    """Returns parameters and a batch [1, S, ...] -> its sums, without dropout."""

    def eval_step(params: Any, batch: Batch) -> Sums:
        return objective.loss_sums(params, jax.tree.map(lambda x: x[0], batch), None)

    return eval_step


def count_parameters(params: Any) -> dict[str, int]:
    """Returns the number of parameters of each part (two levels of names) and in total, under "total"."""
    counts: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        part = "/".join(path_name(path).split("/")[: 2 if len(path) > 2 else 1])
        counts[part] = counts.get(part, 0) + int(np.prod(leaf.shape))
    return counts | {"total": sum(counts.values())}


@dataclasses.dataclass
class Run:
    """A run: what is built once from config and data, and what changes with every step.

    Attributes:
      objective: what is learned. place: puts a host batch, [accumulation, S', ...] with the S' shards of this process,
        onto the devices. empty: such a batch without text, for evaluation. init: makes the state of step 0.
    """

    objective: Objective
    place: Callable[[Batch], Batch]
    train_step: TrainStep
    eval_step: EvalStep
    train_batches: grain.IterDataset[Batch]
    heldout_batches: grain.IterDataset[Batch]
    empty: Batch
    init: Callable[[], TrainState]
    abstract_state: TrainState


def build(config: ml_collections.ConfigDict, data: Any) -> Run:
    """Compiles nothing yet: returns the run of a resolved config.

    Args:
      data: what `charlm.families.registry.prepare` returned.

    Raises:
      ValueError: when config, data and devices do not fit each other.
    """
    mesh = make_mesh(config)
    shards = table_shards(config, mesh)
    objective = objective_of(config)(config, data, shards)
    optimizer = make_optimizer(config)
    local = local_shards(mesh, shards)

    init = lambda: new_state(objective.init_params(stream_key(config.seed, "init")), optimizer)
    abstract = jax.eval_shape(init)
    if objective.trains:
        check_trained(abstract.params, config.optim.freeze, objective.trains)
    placed = state_sharding(abstract, mesh)
    spread = batch_sharding(mesh)
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    # Pinned outputs: left to themselves, the first step returns other placements and the step compiles twice.
    train_step = jax.jit(
        make_train_step(
            objective.loss_sums, optimizer, config.seed, tuple(config.optim.freeze), weights=objective.weights
        ),
        in_shardings=(placed, spread),
        out_shardings=(placed, everywhere, everywhere),
        donate_argnums=0,
        compiler_options=step_options(config.model.remat),
    )
    eval_step = jax.jit(make_eval_step(objective), in_shardings=(placed.params, spread), out_shardings=everywhere)
    return Run(
        objective=objective,
        place=lambda batch: place_batch(batch, mesh, shards),
        train_step=train_step,
        eval_step=eval_step,
        train_batches=objective.train_batches(local),
        heldout_batches=objective.heldout_batches(local),
        empty=objective.empty(len(local)),
        init=lambda: place_state(on_processor(init), placed),
        abstract_state=jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, placed),
    )
