"""The compiled step of a run, and the placement of its state and batches on the devices.

Open it to change how the step is compiled or sharded; the step itself is in `charlm.core.step`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

import jax
import ml_collections
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from charlm.core.learning import Batch, Learning
from charlm.core.sharding import batch_sharding, place_batch, state_sharding, traced_on
from charlm.core.state import TrainState
from charlm.core.step import make_train_step, step_options

Learned = TypeVar("Learned", bound=Learning)


@dataclasses.dataclass
class Program(Generic[Learned]):
    """The functions and placements that the training loop needs.

    Attributes:
      learning: the loss and its metrics.
      train_step: the jitted step, compiled once for each shape of batches.
      place: puts a host batch, [accumulation, S', ...] with the S' shards of this process, onto the devices.
      abstract_state: shapes and placement of the state.
    """

    learning: Learned
    train_step: jax.stages.Wrapped
    place: Callable[[Batch], Batch]
    abstract_state: TrainState

    @property
    def placement(self) -> TrainState:
        """The sharding of every array of the state."""
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
      config: the run's config, of which `model`, `optim` and `train` are read.
      seed: seed of dropout.
      shards: S of a micro-batch.
      abstract: shapes of the state.
    """
    placed, spread = state_sharding(abstract, mesh), batch_sharding(mesh)
    everywhere = NamedSharding(mesh, PartitionSpec())
    # Output shardings are fixed; otherwise the first step may return other placements, and the step compiles twice.
    train_step = jax.jit(
        traced_on(
            mesh,
            make_train_step(
                learning.loss_sums,
                optimizer,
                seed,
                tuple(config.optim.freeze),
                weights=learning.weights,
                parts=learning.parts,
                threshold=config.train.spike_threshold,
            ),
        ),
        in_shardings=(placed, spread),
        out_shardings=(placed, everywhere, everywhere),
        donate_argnums=0,
        compiler_options=step_options(config.model.remat, mesh.devices.flat[0].platform),
    )
    return Program(
        learning=learning,
        train_step=train_step,
        place=lambda batch: place_batch(batch, mesh, shards),
        abstract_state=jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, placed),
    )
