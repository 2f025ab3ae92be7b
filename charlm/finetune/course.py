"""The course of a fine-tuning run: evaluates on development examples after each epoch, and keeps the best model.

Open it to change when a run stops, or what counts as the best model.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path

import ml_collections
import optax

from charlm.core import hosts
from charlm.core.state import TrainState
from charlm.core.types import JsonObject
from charlm.families.pretrained import Pretrained
from charlm.finetune.epochs import EpochBatches
from charlm.finetune.evaluate import Evaluator
from charlm.tasks.base import AnyExample, AnyTask
from charlm.training.best_model import keep_best
from charlm.training.course import Course, Judgement
from charlm.training.progress import read_metrics

log = logging.getLogger("charlm")


class Epochs(Course):
    """Trains for `train.epochs` epochs, or fewer if the score does not improve for `train.patience` epochs.

    Args:
      steps: steps of all epochs.
      rate: learning-rate schedule.
      batches: the run's batches.
      evaluator: predicts the development examples.
      dev: development examples.
      model: the model to save, without parameters.
      metadata: the metadata saved with it.
      folder: the run's folder.
    """

    judged_on = "development"
    rate_key = "optim.learning_rate"

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        steps: int,
        rate: optax.Schedule,
        batches: EpochBatches,
        evaluator: Evaluator,
        dev: list[AnyExample],
        model: Pretrained,
        metadata: JsonObject,
        folder: Path,
    ) -> None:
        train = config.train
        self.steps, self.log_every, self.checkpoint_every = steps, train.log_every, train.checkpoint_every
        self.stall_minutes = train.stall_minutes
        self.rate, self.peak_rate = rate, config.optim.learning_rate
        self.dtype, self.freeze = config.model.dtype, tuple(config.optim.freeze)
        self._epochs, self._patience = train.epochs, train.patience
        self._may_return = train.spike_policy == "restore"
        self._batches, self._evaluator, self._dev = batches, evaluator, evaluator.prepare(dev)
        self._model, self._metadata, self._folder = model, metadata, folder
        self._score = f"dev_{self._task.metric}"
        self.went_back(0)
        self._seconds = 0.0  # duration of the last evaluation

    @property
    def _task(self) -> AnyTask:
        return self._evaluator.task

    def went_back(self, step: int) -> None:
        """Takes the best score back to what it was at `step`, to which the run has returned."""
        read = read_metrics(self._folder) if hosts.is_primary() else []
        evaluated = [metrics for metrics in read if "dev_loss" in metrics]
        past = hosts.from_primary([[metrics["step"], metrics[self._score]] for metrics in evaluated])
        self._evaluated = max((int(at) for at, _ in past), default=0)  # the step at which the last epoch ended
        self._best = self._batches.position.best_among(score for _, score in past)

    def earliest(self) -> int | None:
        """Returns the last step of the epoch before: no epoch may end without its evaluation; see `Course.earliest`."""
        return None if self._batches.epoch_ended else self._evaluated

    def over(self, step: int) -> bool:
        """Returns whether all epochs are done, or the patience has run out."""
        return self._batches.position.place.epoch >= self._epochs or self._out_of_patience

    @property
    def _out_of_patience(self) -> bool:
        return bool(self._patience) and self._best.since >= self._patience

    def evaluates(self, step: int) -> bool:
        """Returns whether an epoch has ended."""
        return step > 0 and self._batches.epoch_ended

    def reports(self, step: int) -> bool:
        """Returns whether to log a progress line: every `log_every` steps, and at the end of an epoch."""
        return step % self.log_every == 0 or self._batches.epoch_ended

    def evaluate(self, step: int, state: TrainState) -> tuple[Judgement, dict[str, float]]:
        """Predicts the development examples, and tunes the task's settings on their labels.

        The state of every epoch is worth saving.
        """
        started = time.perf_counter()
        predictions, losses_E2 = self._evaluator.predict_with_loss(state.params, self._dev)
        total, weight = losses_E2.sum(axis=0).tolist()
        self._task.tune(self._dev.examples, predictions)
        found = {"loss": total / max(weight, 1.0)} | self._task.scores(self._dev.examples, predictions)
        self._seconds = time.perf_counter() - started
        return Judgement(found["loss"], worth_saving=True), {f"dev_{name}": value for name, value in found.items()}

    def judged(self, step: int, state: TrainState, metrics: dict[str, float]) -> None:
        """Logs the scores, and saves the model if it is the best so far."""
        epoch, _, _ = self._batches.taken
        self._evaluated = step
        scores = {name.removeprefix("dev_"): value for name, value in metrics.items() if name != "dev_loss"}
        log.info("epoch %d  dev loss %.4f  %s  (%.0f s)", epoch, metrics["dev_loss"], shown(scores), self._seconds)
        if self._best.add(hosts.from_primary(metrics[self._score])):
            metadata = self._metadata | {"task": self._task.settings()}
            model = dataclasses.replace(self._model, metadata=metadata)
            keep_best(self._folder, step, model, state.params, anew=self._may_return)
        if self._out_of_patience and epoch < self._epochs:
            log.info("no better score in %d epochs: training ends", self._patience)

    def scalars(self, step: int, scalars: dict[str, float]) -> dict[str, float]:
        """Returns the metrics of a progress line, with the prefix "train_", and the number of epochs done."""
        epoch, at, of = self._batches.taken
        return {f"train_{name}": value for name, value in scalars.items()} | {"train_epoch": epoch - 1 + at / of}

    def where(self, step: int) -> str:
        """Returns "epoch E/N  batch B/M"."""
        epoch, at, of = self._batches.taken
        return f"epoch {epoch}/{self._epochs}  batch {at}/{of}"


def shown(scores: dict[str, float]) -> str:
    """Returns scores as readable text."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if isinstance(value, int | float))
