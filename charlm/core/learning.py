"""The interface between the training loop and what it trains: a loss given as sums, and how to report them.

Implement `Learning` to train something new. Its two subclasses are the `Objective` of pre-training
(`charlm.families.objective`) and the fine-tuning of a task (`charlm.finetune.learning`).
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax

from charlm.core.step import Sums, Weights

Batch = Any  # a NamedTuple of arrays [accumulation, S, ...], S the shards of a micro-batch


class Learning(abc.ABC):
    """A loss over batches, and the metrics computed with it.

    Sums are NamedTuples of float32 scalars that can be added over batches of any size: first, for each part of the
    loss, its sum and its weight (the divisor of that sum), then any other counts.

    Attributes:
      parts: number of parts of the loss, see `weights`. sums: the class of the sums.
      unit: the unit in which speed is reported, such as "words".
    """

    parts: ClassVar[int] = 1
    sums: ClassVar[type[Any]]  # a NamedTuple, which no type says of a class
    unit: ClassVar[str]
    weights: Weights | None = None  # for a loss of several parts, see `charlm.core.step.make_train_step`

    @abc.abstractmethod
    def loss_sums(self, params: Any, micro_batch: Batch, dropout_key: jax.Array | None) -> Sums:
        """Returns the sums of a micro-batch [S, ...]; without a key, dropout is off."""

    @abc.abstractmethod
    def count(self, batch: Batch) -> int:
        """Returns the number of units (see `unit`) in a host batch."""

    @abc.abstractmethod
    def training_flops(self, batch: Batch) -> float:
        """Returns the useful operations of a training step on a host batch, see `charlm.core.flops`; 0: not known."""

    @abc.abstractmethod
    def summarize(self, sums: Any) -> dict[str, float]:
        """Returns the metrics, "loss" among them, computed from sums of the class `sums`.

        Raises:
          ValueError: the sums contain no label.
        """

    @abc.abstractmethod
    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the text with the loss for a progress line."""
