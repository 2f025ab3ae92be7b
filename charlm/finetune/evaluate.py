"""Predicts examples with a model: packs their rows, runs the compiled model, and turns logits into predictions.

Evaluation during training and prediction with a fine-tuned model both go through it. Open it to change how examples are
batched for prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from charlm.core.sharding import batch_sharding, local_shards, place_batch, place_state, state_sharding, traced_on
from charlm.core.types import Params
from charlm.families.pretrained import Pretrained
from charlm.families.units import Units
from charlm.finetune.batching import Group, Packer, TaskBatch, eval_groups, grid
from charlm.tasks.base import AnyExample, AnyPrediction, AnyTask, Row, TaskSums

# Share of room that a shape has beyond the text it was measured on: for other texts, and for typos, which turn
# occurrences of one word into different words.
EVALUATION_SLACK = 0.25
# Rows of the batch where there are so few: one sentence need not cost as much as a whole batch. Each is compiled.
FEW_ROWS = (1, 4, 16)


class Prepared(NamedTuple):
    """Examples with their rows and batches, prepared once and predicted any number of times."""

    examples: list[AnyExample]
    rows: list[Row]
    groups: list[Group]


class Evaluator:
    """Predicts examples of a task with a model.

    Args:
      model: a model with the task's head; its own parameters are not used, every call gets parameters.
      batch_size: rows of a batch, rounded up to a multiple of the devices it is sharded over.
    """

    def __init__(self, model: Pretrained, task: AnyTask, units: Units, mesh: Mesh, batch_size: int) -> None:
        self.task, self.units = task, units
        shards = mesh.shape["data"] * mesh.shape["fsdp"]
        self._batch_size, *few = (-(-size // shards) * shards for size in (batch_size, *FEW_ROWS))
        self._few = [size for size in few if size < self._batch_size]
        # One packer for all texts, so that they share shapes: compiling a shape takes longer than running it.
        self.packer = Packer(
            units, self._batch_size, shards=shards, slack=EVALUATION_SLACK, local=local_shards(mesh, shards)
        )
        spread, everywhere = batch_sharding(mesh), NamedSharding(mesh, PartitionSpec())
        self._place = lambda tree: place_state(tree, state_sharding(tree, mesh))
        self._place_batch = lambda packed: place_batch(self._with_words(packed.batch), mesh, shards)
        self._words: Callable[[np.ndarray], np.ndarray] | None = None

        def logits(params: Params, batch: TaskBatch) -> jax.Array:
            return units.apply(model.model, params, jax.tree.map(lambda x: x[0], batch.inputs))

        def sums(params: Params, batch: TaskBatch) -> tuple[jax.Array, TaskSums]:
            found = logits(params, batch)
            targets = {name: x[0].reshape(-1, *x.shape[3:]) for name, x in batch.targets.items()}
            return found, task.row_sums(found, targets)

        self._logits = jax.jit(traced_on(mesh, logits), in_shardings=(None, spread), out_shardings=everywhere)
        self._sums = jax.jit(traced_on(mesh, sums), in_shardings=(None, spread), out_shardings=everywhere)

    def take_words(self, vectors: Callable[[np.ndarray], np.ndarray]) -> None:
        """Makes predictions take the vectors of words from a function instead of computing them.

        Args:
          vectors: returns [..., U, D] for the characters of words, uint16 [..., U, C]; zeros pad. The vectors must be
            those of the parameters that predictions are asked with.
        """
        self._words = vectors

    def _with_words(self, batch: TaskBatch) -> TaskBatch:
        """Returns a batch whose tables hold vectors in place of characters, if they are taken from elsewhere."""
        if self._words is None:
            return batch
        tables = tuple(map(self._words, batch.inputs.chars))
        return batch._replace(inputs=batch.inputs._replace(chars=tables))

    def place(self, params: Params) -> Params:
        """Puts parameters onto the devices."""
        return self._place(params)

    def prepare(self, examples: Sequence[AnyExample]) -> Prepared:
        """Returns the rows and batches of examples."""
        rows = self.task.rows(examples, self.units, training=False)
        return Prepared(list(examples), rows, self.groups(rows))

    def groups(self, rows: Sequence[Row]) -> list[Group]:
        """Returns the batches of rows, and adds shapes for them to the packer."""
        size = next((few for few in self._few if len(rows) <= few), self._batch_size)
        groups = eval_groups(rows, grid(self.units.longest), size)
        self.packer.measure(rows, groups)
        return groups

    def logits(self, params: Params, prepared: Prepared) -> list[np.ndarray]:
        """Returns the logits of each row, without padding."""
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

    def predict(self, params: Params, prepared: Prepared) -> list[AnyPrediction]:
        """Returns the predictions of examples."""
        return self.task.predict(prepared.examples, prepared.rows, self.logits(params, prepared))

    def predict_with_loss(self, params: Params, prepared: Prepared) -> tuple[list[AnyPrediction], np.ndarray]:
        """Returns the predictions of labelled examples, and the loss and weight of each, [E, 2]."""
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
