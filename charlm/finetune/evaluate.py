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

from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.core.sharding import batch_sharding, local_shards, place_batch, place_state, state_sharding, traced_on
from charlm.core.types import Params, Tree
from charlm.families.pretrained import Pretrained
from charlm.families.units import Units
from charlm.families.windows import rows_a_call
from charlm.finetune.batching import Packer, targets_of
from charlm.finetune.sharing import may_share
from charlm.finetune.strips import Group, Sharing, eval_groups, grid, shared_groups
from charlm.tasks.base import AnyExample, AnyPrediction, AnyTask, Row

# Share of room that a shape has beyond the text it was measured on: for other texts, and for typos, which turn
# occurrences of one word into different words.
EVALUATION_SLACK = 0.25
# Rows of the batch where there are so few: one sentence need not cost as much as a whole batch. Each is compiled.
FEW_ROWS = (1, 4, 16)
LOSS_ROWS = 32  # rows whose losses are computed at a time


class Prepared(NamedTuple):
    """Examples with their rows and batches, prepared once and predicted any number of times."""

    examples: list[AnyExample]
    rows: list[Row]
    groups: list[Group]


class Evaluator:
    """Predicts examples of a task with a model.

    Where rows share strips, hardly any padding is computed.

    Args:
      model: a model with the task's head; its own parameters are not used, every call gets parameters.
      batch_size: rows of a batch, rounded up to a multiple of the devices it is sharded over.
      sharing: whether rows share strips, see `may_share`.

    Raises:
      ValueError: as `may_share`.
    """

    def __init__(
        self,
        model: Pretrained,
        task: AnyTask,
        units: Units,
        mesh: Mesh,
        batch_size: int,
        sharing: Sharing = "auto",
    ) -> None:
        self.task, self.units = task, units
        self._shards = shards = mesh.shape["data"] * mesh.shape["fsdp"]
        self._batch_size, *few = (-(-size // shards) * shards for size in (batch_size, *FEW_ROWS))
        self._few = [size for size in few if size < self._batch_size]
        self._shares = may_share(sharing, model, units, mesh)
        self._by_row = model.head == SEQUENCE_CLASSIFICATION
        # One packer for all texts, so that they share shapes: compiling a shape takes longer than running it.
        local = local_shards(mesh, shards)
        self.packer = Packer(
            units, self._batch_size, shards=shards, slack=EVALUATION_SLACK, local=local, shares=self._shares
        )
        spread, everywhere = batch_sharding(mesh), NamedSharding(mesh, PartitionSpec())
        self._place = lambda tree: place_state(tree, state_sharding(tree, mesh))
        self._place_inputs = lambda inputs: place_batch(self._with_words(inputs), mesh, shards)
        self._words: Callable[[np.ndarray], np.ndarray] | None = None

        def logits(params: Params, inputs: Tree) -> jax.Array:
            return units.apply(model.model, params, jax.tree.map(lambda x: x[0], inputs))

        self._logits = jax.jit(traced_on(mesh, logits), in_shardings=(None, spread), out_shardings=everywhere)
        self._sums = jax.jit(task.row_sums)

    def take_words(self, vectors: Callable[[np.ndarray], np.ndarray]) -> None:
        """Makes predictions take the vectors of words from a function instead of computing them.

        Args:
          vectors: returns [..., U, D] for the characters of words, uint16 [..., U, C]; zeros pad. The vectors must be
            those of the parameters that predictions are asked with.
        """
        self._words = vectors

    def _with_words(self, inputs: Tree) -> Tree:
        """Returns inputs whose tables hold vectors in place of characters, if they are taken from elsewhere."""
        return inputs if self._words is None else inputs._replace(chars=tuple(map(self._words, inputs.chars)))

    def place(self, params: Params) -> Params:
        """Puts parameters onto the devices."""
        return self._place(params)

    def prepare(self, examples: Sequence[AnyExample]) -> Prepared:
        """Returns the rows and batches of examples."""
        rows = self.task.rows(examples, self.units, training=False)
        return Prepared(list(examples), rows, self.groups(rows))

    def groups(self, rows: Sequence[Row]) -> list[Group]:
        """Returns the batches of rows, and adds shapes for them to the packer."""
        lengths = grid(self.units.longest)
        if self._shares:
            most = lambda length: rows_a_call(self._batch_size, length)
            groups = shared_groups(rows, lengths, most, self._shards)
        else:
            size = next((few for few in self._few if len(rows) <= few), self._batch_size)
            groups = eval_groups(rows, lengths, size)
        self.packer.measure(rows, groups)
        return groups

    def logits(self, params: Params, prepared: Prepared) -> list[np.ndarray]:
        """Returns the logits of each row, without padding."""
        found: list[np.ndarray] = [np.zeros(0)] * len(prepared.rows)
        for group in prepared.groups:
            inputs = self._place_inputs(self.packer.inputs(prepared.rows, group))
            logits = np.asarray(self._logits(params, inputs))
            for row, strip, start in self.packer.places(prepared.rows, group):
                found[row] = self._of_row(logits[strip], prepared.rows[row], start)
        return found

    def _of_row(self, logits: np.ndarray, row: Row, start: int) -> np.ndarray:
        """Returns the logits of a row, given those of its strip."""
        if self._by_row:
            return logits[start + row.joined.whole] if self._shares else logits
        return logits[start : start + row.joined.length]

    def predict(self, params: Params, prepared: Prepared) -> list[AnyPrediction]:
        """Returns the predictions of examples."""
        return self.task.predict(prepared.examples, prepared.rows, self.logits(params, prepared))

    def predict_with_loss(self, params: Params, prepared: Prepared) -> tuple[list[AnyPrediction], np.ndarray]:
        """Returns the predictions of labelled examples, and the loss and weight of each, [E, 2]."""
        found = self.logits(params, prepared)
        losses_E2 = np.zeros((len(prepared.examples), 2))
        for group in eval_groups(prepared.rows, grid(self.units.longest), LOSS_ROWS):
            rows = [prepared.rows[index] for index in group.rows]
            targets = targets_of(rows, LOSS_ROWS, group.length, rows[0])
            sums = jax.device_get(self._sums(self._padded([found[index] for index in group.rows], group), targets))
            for row, loss, weight in zip(rows, sums.loss, sums.weight, strict=False):
                losses_E2[row.example] += loss, weight
        return self.task.predict(prepared.examples, prepared.rows, found), losses_E2

    def _padded(self, logits: Sequence[np.ndarray], group: Group) -> np.ndarray:
        """Returns the logits of some rows as one array of `LOSS_ROWS` rows."""
        shape = logits[0].shape if self._by_row else (group.length, logits[0].shape[-1])
        whole = np.zeros((LOSS_ROWS, *shape), logits[0].dtype)
        for of_row, one in zip(whole, logits, strict=False):
            of_row[: len(one)] = one
        return whole
