"""Batches of few shapes for many versions of the same text: a shape that still fits is used again, not compiled anew.

Every version of a text has rows of slightly other lengths and, for an HLM, other distinct words. Shapes measured for
each version would have every one of them compiled, which takes longer than the predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from charlm.finetune.batching import MEASURED, Batch, Group, Packer, eval_groups
from charlm.finetune.evaluate import Prepared
from charlm.predictors.fine_tuned import FineTuned
from charlm.tasks.base import Row
from charlm.units.base import Units

SLACK = 0.4  # room of a shape beyond what it was measured on: typos make distinct words of equal ones


def grid(longest: int) -> tuple[int, ...]:
    """Returns the lengths that rows are padded to: powers of two and what lies halfway between, up to `longest`."""
    powers = [2**n for n in range(4, longest.bit_length() + 1)]
    lengths = sorted({*powers, *(3 * power // 2 for power in powers if power >= 32)})
    return (*(length for length in lengths if length < longest), longest)


class ShapeKeeper(Packer):
    """A packer that measures a new shape only where none of those before holds the batches."""

    def __init__(self, units: Units, batch_size: int) -> None:
        super().__init__(units, batch_size)
        self._known: dict[int, list[Any]] = {}

    def measure(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Chooses for each length the first shape that the batches fit, or makes one."""
        for length in {group.length for group in groups}:
            chosen = [group for group in groups if group.length == length][:MEASURED]
            parts = [[row.joined for row in part] for group in chosen for part in self._cut(rows, group)]
            known = self._known.setdefault(length, [])
            fits = lambda shape, parts=parts: all(self._units.pack(part, shape) is not None for part in parts)
            shape = next(filter(fits, known), None)
            if shape is None:
                shape = self._units.measure(parts, self._rows, length, SLACK)
                known.append(shape)
            self._shapes[length] = shape


class Batches:
    """Makes and runs the batches of one model.

    Args:
      model: on one device. batch_size: rows of a batch.
    """

    def __init__(self, model: FineTuned, batch_size: int) -> None:
        self._model, self._batch_size = model, batch_size
        self._units = model.evaluator.units
        self._packer = ShapeKeeper(self._units, batch_size)
        config = model.pretrained.config
        first = lambda batch: jax.tree.map(lambda x: x[0], batch.inputs)  # of a single micro-batch
        self._states = jax.jit(lambda params, batch: self._units.states(config, params, first(batch)))

    def prepare(self, examples: Sequence[Any]) -> Prepared:
        """Returns the rows and batches of examples of the model's task."""
        rows = self._model.task.rows(examples, self._units, training=False)
        return Prepared(list(examples), rows, self._groups(rows), self._packer)

    def _groups(self, rows: Sequence[Row]) -> list[Group]:
        groups = eval_groups(rows, grid(self._units.longest), self._batch_size)
        self._packer.measure(rows, groups)
        return groups

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Returns the model's predictions."""
        return self._model.evaluator.predict(self._model.params, self.prepare(examples)) if examples else []

    def predict_with_loss(self, examples: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
        """Returns predictions and the mean loss of each example [E], whose labels are known."""
        if not examples:
            return [], np.zeros(0)
        predictions, losses_E2 = self._model.evaluator.predict_with_loss(self._model.params, self.prepare(examples))
        return predictions, losses_E2[:, 0] / np.maximum(losses_E2[:, 1], 1)

    def states(self, rows: Sequence[Row], take: Callable[[Row, np.ndarray], None]) -> None:
        """Gives every row with its last states [L, D] to `take`, in any order."""
        for group in self._groups(rows):
            states = np.asarray(self._states(self._model.params, self.pack(rows, group)), np.float32)
            for index, states_LD in zip(self._packer.order(group), states, strict=True):
                if index is not None:
                    take(rows[index], states_LD[: rows[index].joined.length])

    def pack(self, rows: Sequence[Row], group: Group) -> Batch:
        """Returns a batch."""
        return self._packer.pack(rows, group)
