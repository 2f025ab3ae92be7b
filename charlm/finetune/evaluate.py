"""What a model says of examples: rows through the compiled model, logits back to predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from charlm.core.sharding import batch_sharding, local_shards, place_batch, place_state, state_sharding
from charlm.families.pretrained import Pretrained
from charlm.families.units import Units
from charlm.finetune.batching import Batch, Group, Packer, eval_groups, grid
from charlm.tasks.base import Row, Task

SLACK = 0.25  # room of a shape beyond the text it was measured on: for other texts, and typos that part equal words


class Prepared(NamedTuple):
    """Examples with their rows and batches, made once and predicted as often as one likes."""

    examples: list[Any]
    rows: list[Row]
    groups: list[Group]


class Evaluator:
    """A model that predicts examples of a task.

    Args:
      model: with the task's head; its parameters may be missing, they are given to every call.
      batch_size: rows of a batch, rounded up to the devices it is spread over.
    """

    def __init__(self, model: Pretrained, task: Task[Any, Any], units: Units, mesh: Mesh, batch_size: int) -> None:
        self.task, self.units = task, units
        shards = mesh.shape["data"] * mesh.shape["fsdp"]
        self._batch_size = -(-batch_size // shards) * shards
        # Kept from text to text: their shapes differ little, and to compile takes longer than to run.
        self.packer = Packer(units, self._batch_size, shards=shards, slack=SLACK, local=local_shards(mesh, shards))
        spread, everywhere = batch_sharding(mesh), NamedSharding(mesh, PartitionSpec())
        self._place = lambda tree: place_state(tree, state_sharding(tree, mesh))
        self._place_batch = lambda packed: place_batch(packed.batch, mesh, shards)

        def logits(params: Any, batch: Batch) -> jax.Array:
            return units.apply(model.model, params, jax.tree.map(lambda x: x[0], batch.inputs))

        def sums(params: Any, batch: Batch) -> tuple[jax.Array, Any]:
            found = logits(params, batch)
            targets = {name: x[0].reshape(-1, *x.shape[3:]) for name, x in batch.targets.items()}
            return found, task.row_sums(found, targets)

        self._logits = jax.jit(logits, in_shardings=(None, spread), out_shardings=everywhere)
        self._sums = jax.jit(sums, in_shardings=(None, spread), out_shardings=everywhere)

    def place(self, params: Any) -> Any:
        """Returns parameters on the devices."""
        return self._place(params)

    def prepare(self, examples: Sequence[Any]) -> Prepared:
        """Returns the rows and batches of examples."""
        rows = self.task.rows(examples, self.units, training=False)
        return Prepared(list(examples), rows, self.groups(rows))

    def groups(self, rows: Sequence[Row]) -> list[Group]:
        """Returns the batches of rows; there is a shape for each afterwards."""
        groups = eval_groups(rows, grid(self.units.longest), self._batch_size)
        self.packer.measure(rows, groups)
        return groups

    def logits(self, params: Any, prepared: Prepared) -> list[np.ndarray]:
        """Returns the logits of each row, padding cut off."""
        found: list[np.ndarray] = [np.zeros(0)] * len(prepared.rows)
        for group in prepared.groups:
            batch = self._place_batch(self.packer.pack(prepared.rows, group))
            self._take(found, prepared, group, np.asarray(self._logits(params, batch)))
        return found

    def _take(self, found: list[np.ndarray], prepared: Prepared, group: Group, logits: np.ndarray) -> None:
        for index, row_logits in zip(self.packer.order(group), logits, strict=True):
            if index is not None:
                of_positions = row_logits.ndim > 1
                found[index] = row_logits[: prepared.rows[index].joined.length] if of_positions else row_logits

    def predict(self, params: Any, prepared: Prepared) -> list[Any]:
        """Returns the predictions of examples."""
        return self.task.predict(prepared.examples, prepared.rows, self.logits(params, prepared))

    def predict_with_loss(self, params: Any, prepared: Prepared) -> tuple[list[Any], np.ndarray]:
        """Returns the predictions of examples whose labels are known, and of each its loss and weight [E, 2]."""
        found: list[np.ndarray] = [np.zeros(0)] * len(prepared.rows)
        losses_E2 = np.zeros((len(prepared.examples), 2))
        for group in prepared.groups:
            batch = self._place_batch(self.packer.pack(prepared.rows, group))
            logits, sums = jax.device_get(self._sums(params, batch))
            self._take(found, prepared, group, logits)
            for index, loss, weight in zip(self.packer.order(group), sums.loss, sums.weight, strict=True):
                if index is not None:
                    losses_E2[prepared.rows[index].example] += loss, weight
        return self.task.predict(prepared.examples, prepared.rows, found), losses_E2
