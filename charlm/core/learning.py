"""The interface between the training loop and what it trains: a loss given as sums, and how to report them.

Implement `Learning` to train something new; open this module to see what the training loop asks for. Its two
implementations are the `Objective` of pre-training (`charlm.families.objective`) and the fine-tuning of a task
(`charlm.finetune.learning`).
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, TypeAlias

import jax

from charlm.core.step import Sums, Weights
from charlm.core.types import Params

# A NamedTuple of arrays [accumulation, S, ...], S the shards of a micro-batch; its class depends on what is trained.
Batch: TypeAlias = Any


class Learning(abc.ABC):
    """A loss over batches, and the metrics computed with it.

    Sums are NamedTuples of float32 scalars that can be added over batches of any size: first, for each part of the
    loss, its sum and its weight (the divisor of that sum), then any other counts.

    Attributes:
      parts: number of parts of the loss, see `weights`.
      sums: the class of the sums.
      unit: the unit in which speed is reported, such as "words".
      counts_frozen: whether `training_flops` leaves out what the frozen parameters save.
    """

    parts: ClassVar[int] = 1
    sums: ClassVar[type[Any]]  # a NamedTuple, which no type says of a class
    unit: ClassVar[str]
    counts_frozen: ClassVar[bool] = False
    weights: Weights | None = None  # for a loss of several parts, see `charlm.core.step.make_train_step`

    @abc.abstractmethod
    def loss_sums(self, params: Params, micro_batch: Batch, dropout_key: jax.Array | None) -> Sums:
        """Returns the sums of a micro-batch [S, ...]; without a key, dropout is off."""

    @abc.abstractmethod
    def count(self, batch: Batch) -> int:
        """Returns the number of units (see `unit`) in a host batch."""

    @abc.abstractmethod
    def training_flops(self, batch: Batch) -> float:
        """Returns the useful operations of a training step on a host batch, see `charlm.core.flops`; 0: not known.

        The loop leaves out what frozen parameters save (`charlm.core.frozen_cost`), except with `counts_frozen`.
        """

    @abc.abstractmethod
    def summarize(self, sums: Sums) -> dict[str, float]:
        """Returns the metrics, "loss" among them, computed from sums of the class `sums`.

        Raises:
          ValueError: the sums contain no label.
        """

    @abc.abstractmethod
    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the text with the loss for a progress line."""
