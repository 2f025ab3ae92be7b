"""Builds a pre-training run from config and data: its objective, batches, optimizer and compiled steps.

`charlm.training.train` calls `build` once per run; open it to see what a config becomes before the first step.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

import grain
import jax
import ml_collections
import numpy as np
import optax

from charlm.core.frozen import check_trained
from charlm.core.learning import Batch
from charlm.core.optimizer import learning_rate, make_optimizer
from charlm.core.sharding import (
    batch_sharding,
    local_shards,
    make_mesh,
    path_name,
    place_state,
    table_shards,
    traced_on,
)
from charlm.core.spikes import new_history
from charlm.core.state import TrainState, new_state, on_processor, stream_key
from charlm.core.step import Sums
from charlm.core.types import Params
from charlm.families.family import family
from charlm.families.lookup import objective_of
from charlm.families.objective import Objective, RunData
from charlm.training.program import Program, make_program

EvalStep = Callable[[Params, Batch], Sums]


def make_eval_step(objective: Objective) -> EvalStep:
    """Returns the evaluation step: parameters, batch [1, S, ...] -> sums of the batch, without dropout."""

    def eval_step(params: Params, batch: Batch) -> Sums:
        return objective.loss_sums(params, jax.tree.map(lambda x: x[0], batch), None)

    return eval_step


def count_parameters(params: Params) -> dict[str, int]:
    """Returns the number of parameters of each part (two levels of names) and in total, under "total"."""
    counts: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        part = "/".join(path_name(path).split("/")[: 2 if len(path) > 2 else 1])
        counts[part] = counts.get(part, 0) + int(np.prod(leaf.shape))
    return counts | {"total": sum(counts.values())}


@dataclasses.dataclass
class Run(Program[Objective]):
    """A pre-training run: the training program, and what evaluation and initialisation need.

    Attributes:
      empty: a host batch without text, for processes whose held-out text has ended.
      init: makes the state of step 0.
    """

    eval_step: EvalStep
    train_batches: grain.IterDataset[Batch]
    heldout_batches: grain.IterDataset[Batch]
    empty: Batch
    init: Callable[[], TrainState]

    @property
    def objective(self) -> Objective:
        """The objective of pre-training."""
        return self.learning


def rate_of(config: ml_collections.ConfigDict) -> optax.Schedule:
    """Returns the learning-rate schedule of a pre-training run."""
    return learning_rate(config.optim, config.train.steps, config.optim.warmup_steps)


def optimizer_of(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
    """Returns the optimizer of a pre-training run."""
    spared = (*family(config.family).undecayed, *objective_of(config).idle)
    return make_optimizer(config.optim, rate_of(config), spared)


def build(
    config: ml_collections.ConfigDict,
    data: RunData,
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]  # a class of C++, no stub
) -> Run:
    """Returns the run of a resolved config; nothing is compiled yet.

    Args:
      data: the result of `charlm.families.lookup.prepare`.
      devices: the devices of the mesh, which may be only described, as in `charlm.plan`; None: all that there are.

    Raises:
      ValueError: config, data and devices do not fit each other.
    """
    return built(config, data, objective_of(config), optimizer_of(config), devices)


def built(
    config: ml_collections.ConfigDict,
    data: RunData,
    kind: type[Objective],
    optimizer: optax.GradientTransformation,
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]  # a class of C++, no stub
) -> Run:
    """Returns the run of an objective, be it of a family or not; see `build`.

    Args:
      data: the result of the objective's `prepare`.
      kind: the objective.

    Raises:
      ValueError: config, data and devices do not fit each other.
    """
    mesh = make_mesh(config, devices)
    shards = table_shards(config, mesh)
    # What asks which machine it is for is told of these devices. They may be described alone: no array can be on those.
    for_them = lambda: contextlib.nullcontext() if devices is None else jax.default_device(devices[0])
    with for_them():
        objective = kind(config, data, shards)
    local = local_shards(mesh, shards)

    def first() -> TrainState:
        return new_state(objective.init_params(stream_key(config.seed, "init")), optimizer, new_history(config.train))

    init = jax.jit(first)
    with for_them():
        abstract = jax.eval_shape(init)
    if objective.trains:
        check_trained(abstract.params, config.optim.freeze, objective.trains)
    program = make_program(config, config.seed, mesh, shards, objective, optimizer, abstract)
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    in_shardings = (program.placement.params, batch_sharding(mesh))
    evaluate = traced_on(mesh, make_eval_step(objective))
    return Run(
        **vars(program),
        eval_step=jax.jit(evaluate, in_shardings=in_shardings, out_shardings=everywhere),
        train_batches=objective.train_batches(local),
        heldout_batches=objective.heldout_batches(local),
        empty=objective.empty(len(local)),
        init=lambda: place_state(on_processor(init), program.placement),
    )
