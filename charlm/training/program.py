"""The compiled step of a run, and where its state and batches lie on the devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

import jax
import ml_collections
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from charlm.core.learning import Batch, Learning
from charlm.core.sharding import batch_sharding, place_batch, state_sharding
from charlm.core.state import TrainState
from charlm.core.step import make_train_step, step_options

Learned = TypeVar("Learned", bound=Learning)


@dataclasses.dataclass
class Program(Generic[Learned]):
    """What the loop runs.

    Attributes:
      learning: what is learned. train_step: compiled for each shape of batches that it meets.
      place: puts a host batch, [accumulation, S', ...] with the S' shards of this process, onto the devices.
      abstract_state: shapes and placement of the state.
    """

    learning: Learned
    train_step: jax.stages.Wrapped
    place: Callable[[Batch], Batch]
    abstract_state: TrainState

    @property
    def placement(self) -> TrainState:
        """Where every array of the state lies."""
        return jax.tree.map(lambda x: x.sharding, self.abstract_state)


def make_program(
    config: ml_collections.ConfigDict,
    seed: int,
    mesh: Mesh,
    shards: int,
    learning: Learned,
    optimizer: optax.GradientTransformation,
    abstract: TrainState,
) -> Program[Learned]:
    """Returns the program of a run; nothing is compiled yet.

    Args:
      config: of the run; its sections `model` and `optim` are read. seed: of dropout. shards: S of a micro-batch.
      abstract: shapes of the state.
    """
    placed, spread = state_sharding(abstract, mesh), batch_sharding(mesh)
    everywhere = NamedSharding(mesh, PartitionSpec())
    # Pinned outputs: left to themselves, the first step returns other placements and the step compiles twice.
    train_step = jax.jit(
        make_train_step(learning.loss_sums, optimizer, seed, tuple(config.optim.freeze), weights=learning.weights),
        in_shardings=(placed, spread),
        out_shardings=(placed, everywhere, everywhere),
        donate_argnums=0,
        compiler_options=step_options(config.model.remat),
    )
    return Program(
        learning=learning,
        train_step=train_step,
        place=lambda batch: place_batch(batch, mesh, shards),
        abstract_state=jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, placed),
    )
