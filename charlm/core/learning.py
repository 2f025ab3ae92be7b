"""What is learned, as the training loop sees it: a loss whose sums add up, and how a person reads them.

Open it to train something new: families pre-train on an `Objective` (`charlm.families.objective`), fine-tuning learns a
task (`charlm.finetune.learning`); both are a `Learning`.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax

from charlm.core.step import Sums, Weights

Batch = Any  # a NamedTuple of arrays [accumulation, S, ...], S the shards of a micro-batch


class Learning(abc.ABC):
    """A loss over batches, and what is counted beside it.

    Sums are NamedTuples of float32 scalars that add up exactly over batches of any size: first the loss and the weight
    (what it is divided by) of each part of the loss, then whatever else is counted.

    Attributes:
      parts: of the loss, see `weights`. sums: the class of the sums.
      unit: what speed is counted in, such as "words".
    """

    parts: ClassVar[int] = 1
    sums: ClassVar[type[Any]]  # a NamedTuple, which no type says of a class
    unit: ClassVar[str]
    weights: Weights | None = None  # for a loss of several parts, see `charlm.core.step.make_train_step`

    @abc.abstractmethod
    def loss_sums(self, params: Any, micro_batch: Batch, dropout_key: jax.Array | None) -> Sums:
        """Returns the sums of a micro-batch [S, ...]; without a key there is no dropout."""

    @abc.abstractmethod
    def count(self, batch: Batch) -> int:
        """Returns how many `unit` a host batch holds."""

    @abc.abstractmethod
    def training_flops(self, batch: Batch) -> float:
        """Returns the useful operations of a step on a host batch, see `charlm.core.flops`; 0: not known."""

    @abc.abstractmethod
    def summarize(self, sums: Any) -> dict[str, float]:
        """Returns the metrics of sums, which are of the class `sums`; "loss" is among them.

        Raises:
          ValueError: when nothing was asked.
        """

    @abc.abstractmethod
    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss as a progress line shows it."""
