"""What the training loop asks of the run that it trains: its schedule, its evaluation and its batches.

`charlm.training.train` has the course of pre-training, `charlm.finetune.course` that of fine-tuning. Open this module
to see what a course decides.
"""

from __future__ import annotations

import abc
from typing import NamedTuple, Protocol

import optax

from charlm.core.learning import Batch
from charlm.core.state import TrainState
from charlm.core.types import JsonObject


class Judgement(NamedTuple):
    """The result of an evaluation.

    Attributes:
      loss: the loss on text that is not trained on.
      worth_saving: whether to save the state now.
      metrics: metrics saved with the checkpoint, by which the best checkpoint is chosen.
    """

    loss: float
    worth_saving: bool
    metrics: dict[str, float] | None = None


class Course(abc.ABC):
    """The schedule of a run: when to report, evaluate and end, and how to evaluate.

    Attributes:
      steps: number of planned steps.
      log_every: steps between progress lines.
      checkpoint_every: steps between checkpoints.
      stall_minutes: minutes without progress after which the run ends; 0: never.
      rate: learning rate by step.
      peak_rate: the highest learning rate.
      rate_key: the config key that sets it.
      dtype: dtype of matrix products.
      freeze: `optim.freeze`.
      judged_on: name of the evaluated text, for messages.
    """

    steps: int
    log_every: int
    checkpoint_every: int
    stall_minutes: float
    rate: optax.Schedule
    peak_rate: float
    rate_key: str
    dtype: str
    freeze: tuple[str, ...]
    judged_on: str

    @abc.abstractmethod
    def over(self, step: int) -> bool:
        """Returns whether training is over after this step, including its evaluation if there is one."""

    @abc.abstractmethod
    def evaluates(self, step: int) -> bool:
        """Returns whether to evaluate after this step; step 0 means before the first step."""

    @abc.abstractmethod
    def evaluate(self, step: int, state: TrainState) -> tuple[Judgement, dict[str, float]]:
        """Evaluates the state; returns the judgement, and the metrics to write to the metrics file."""

    @abc.abstractmethod
    def judged(self, step: int, state: TrainState, metrics: dict[str, float]) -> None:
        """Logs an evaluation after its metrics were written, and keeps the model if it is to be kept."""

    @abc.abstractmethod
    def went_back(self, step: int) -> None:
        """Takes this course back to an earlier step, from which the run goes on; the metrics end with it."""

    def earliest(self) -> int | None:
        """Returns the first step that the run may go back to if the step of the last batch taken is a spike.

        None: it may not, since the batches up to that one may not be passed over.
        """
        return 0

    def reports(self, step: int) -> bool:
        """Returns whether to log a progress line after this step."""
        return step % self.log_every == 0 or step == self.steps

    def scalars(self, step: int, scalars: dict[str, float]) -> dict[str, float]:
        """Returns the metrics of a progress line in the form in which they are written to the metrics file."""
        del step
        return scalars

    @abc.abstractmethod
    def where(self, step: int) -> str:
        """Returns the beginning of a progress line, which says how far the run is."""


class Batches(Protocol):
    """An iterator over host batches whose position can be saved and restored, to be closed in the end."""

    def __next__(self) -> Batch:
        """Returns the next batch."""
        ...

    def get_state(self) -> JsonObject:
        """Returns the position as JSON-able values."""
        ...

    def set_state(self, state: JsonObject) -> None:
        """Moves to a saved position."""
        ...

    def close(self) -> None:
        """Ends the threads or processes that make batches ahead."""
        ...
