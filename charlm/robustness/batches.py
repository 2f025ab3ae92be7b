"""Computes predictions, losses and hidden states of one model for many versions of the same text.

Every measurement runs a model through it. Open it to change how predictions or states are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from charlm.core.types import Params, Tree
from charlm.finetune.predictor import FineTuned
from charlm.tasks.base import AnyExample, AnyPrediction, Row


class ModelRunner:
    """Runs one model, on one device."""

    def __init__(self, model: FineTuned) -> None:
        self._model, self._evaluator = model, model.evaluator
        units, config = model.evaluator.units, model.pretrained.config

        def states(params: Params, inputs: Tree) -> jax.Array:
            return units.states(config, params, jax.tree.map(lambda x: x[0], inputs))  # the only micro-batch

        self._states = jax.jit(states)

    def read(self, examples: Sequence[AnyExample]) -> list[AnyExample]:
        """Returns the examples as the model reads them; a defence in front of it corrects them."""
        return list(examples)

    def predict(self, examples: Sequence[AnyExample]) -> list[AnyPrediction]:
        """Returns the model's predictions."""
        if not examples:
            return []
        return self._evaluator.predict(self._model.params, self._evaluator.prepare(examples))

    def predict_with_loss(self, examples: Sequence[AnyExample]) -> tuple[list[AnyPrediction], np.ndarray]:
        """Returns the predictions and the mean loss of each example, [E]; the labels must be known."""
        if not examples:
            return [], np.zeros(0)
        prepared = self._evaluator.prepare(examples)
        predictions, losses_E2 = self._evaluator.predict_with_loss(self._model.params, prepared)
        return predictions, losses_E2[:, 0] / np.maximum(losses_E2[:, 1], 1)

    def states(self, rows: Sequence[Row], take: Callable[[Row, np.ndarray], None]) -> None:
        """Calls `take` with every row and its last hidden states, float32 [L, D], in any order."""
        packer = self._evaluator.packer
        for group in self._evaluator.groups(rows):
            states = np.asarray(self._states(self._model.params, packer.inputs(rows, group)), np.float32)
            for row, strip, start in packer.places(rows, group):
                take(rows[row], states[strip, start : start + rows[row].joined.length])
