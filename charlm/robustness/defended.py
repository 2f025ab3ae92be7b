"""Runs a model behind defences: it reads corrected text, and its predictions are those for the text before.

Open it to change what stands between a text and a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from charlm.finetune.predictor import FineTuned
from charlm.robustness.batches import ModelRunner
from charlm.tasks.base import AnyExample, AnyPrediction, Trace
from charlm.text.defences import Defence


class DefendedRunner(ModelRunner):
    """Runs one model behind defences, which correct one after the other the texts that noise may change.

    Attributes:
      versions: those of the defences; other versions may correct otherwise.
    """

    def __init__(self, model: FineTuned, defences: Sequence[Defence]) -> None:
        super().__init__(model)
        self._task, self._defences = model.task, defences
        self.versions = [defence.version for defence in defences]

    def read(self, examples: Sequence[AnyExample]) -> list[AnyExample]:
        """Returns the corrected examples."""
        return [self._corrected(example)[0] for example in examples]

    def predict(self, examples: Sequence[AnyExample]) -> list[AnyPrediction]:
        """Returns the predictions for corrected examples, as ones for the examples before."""
        pairs = [self._corrected(example) for example in examples]
        return self._restored(super().predict([example for example, _ in pairs]), [traces for _, traces in pairs])

    def predict_with_loss(self, examples: Sequence[AnyExample]) -> tuple[list[AnyPrediction], np.ndarray]:
        """Returns the same predictions, and the mean loss of each corrected example, [E]; the labels must be known."""
        pairs = [self._corrected(example) for example in examples]
        predictions, losses_E = super().predict_with_loss([example for example, _ in pairs])
        return self._restored(predictions, [traces for _, traces in pairs]), losses_E

    def _corrected(self, example: AnyExample) -> tuple[AnyExample, list[Trace]]:
        traces = []
        for defence in self._defences:
            example, trace = self._task.noised(example, defence, "")
            traces.append(trace)
        return example, traces

    def _restored(self, predictions: Sequence[AnyPrediction], traces: Sequence[Sequence[Trace]]) -> list[AnyPrediction]:
        found = []
        for prediction, made in zip(predictions, traces, strict=True):
            for trace in reversed(made):
                prediction = self._task.restored(prediction, trace)
            found.append(prediction)
        return found
