"""Pre-training on text: what objectives share whose batches are packed from sequences of a corpus.

Open it to have a family read corpora: it says what makes its sequences and what a shard holds.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from typing import Any

import grain
import ml_collections

from charlm.core.learning import Batch
from charlm.data.lanes import empty_batch
from charlm.data.pipeline import record_lanes
from charlm.data.streams import SequenceMaker, Shard, sequence_batches
from charlm.data.text_records import read_text_record
from charlm.families.objective import Objective

EVAL_MASKS = 1  # what is drawn of held-out text comes from a stream of its own, the same in every run


def sequences_of(config: ml_collections.ConfigDict, shards: int, section: str = "data") -> int:
    """Returns how many sequences (or rows) of a batch a shard has.

    Args:
      shards: S of a micro-batch. section: of the config that has the sizes of batches, for messages.

    Raises:
      ValueError: when the batch does not divide into micro-batches and shards.
    """
    cfg, parts = config.data, config.data.accumulation * shards
    if cfg.batch_size < 1 or cfg.batch_size % parts:
        raise ValueError(
            f"{section}.batch_size={cfg.batch_size} must be a multiple of {section}.accumulation={cfg.accumulation} x "
            f"data.table_shards={shards}"
        )
    return cfg.batch_size // parts


class TextObjective(Objective):
    """An objective whose data have the corpora `train` and `heldout`; a subclass sets `shape`, that of every batch.

    Attributes:
      model: what learns.
    """

    model: Any  # a module of the family's own
    shape: Any  # a tuple of the family's own

    @staticmethod
    def read(data: bytes) -> Any:
        """Parses a record of the corpora; here one of text."""
        return read_text_record(data)

    @abc.abstractmethod
    def maker(self, seed: int, hiding: bool) -> SequenceMaker:
        """Returns what makes sequences; `hiding`: whatever is chosen is hidden, none of it is shown."""

    @abc.abstractmethod
    def shard(self) -> Shard:
        """Returns a shard without a sequence."""

    @functools.cached_property
    def training_maker(self) -> Any:
        """What makes the sequences that are learned from."""
        return self.maker(self.config.seed, hiding=False)

    def train_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[Batch]:
        """Returns batches without end; see `Objective.train_batches`."""
        cfg = self.config.data
        order = {"seed": self.config.seed, "shuffle": cfg.shuffle, "repeat": True}
        records = record_lanes(self.data.train, tuple(cfg.weights), **order, **self._lanes(lanes))
        return self.batches(records, self.training_maker, accumulation=cfg.accumulation)

    def heldout_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[Batch]:
        """Returns held-out batches; see `Objective.heldout_batches`."""
        records = record_lanes(self.data.heldout, **self._lanes(lanes))
        # All that is chosen is hidden: what is seen as it is, or nearly, would flatter the model.
        return self.batches(records, self.maker(EVAL_MASKS, hiding=True), accumulation=1, by_record=True)

    def batches(
        self, records: Mapping[int, grain.IterDataset[Any]], maker: Any, *, accumulation: int, by_record: bool = False
    ) -> grain.IterDataset[Batch]:
        """Returns batches of the records of lanes; see `charlm.data.streams.sequence_batches`."""
        sizes = {"of": self.shards, "accumulation": accumulation, "prefetch": self.config.data.prefetch}
        return sequence_batches(records, maker, self.shard, **sizes, by_record=by_record)

    def _lanes(self, lanes: tuple[int, ...]) -> dict[str, Any]:
        threads = self.config.data.reader_threads
        return {"lanes": lanes, "of": self.shards, "reader_threads": threads, "read": self.read}

    def empty(self, shards: int) -> Batch:
        """Returns a batch [1, shards, ...] without text."""
        return empty_batch(self.shard().build(), shards)

    def first_heldout(self) -> Batch | None:
        """Returns the first held-out batch of the first shard; None when there is less held-out text than shards."""
        batches = iter(self.heldout_batches((0,)))
        try:
            return next(batches, None)
        finally:
            getattr(batches, "close", lambda: None)()  # of a thread, where there is one
