"""Pre-training on text: the part of an objective that packs batches from the sequences of a corpus.

Open it to let a family read corpora: the family provides what makes its sequences, and its kind of shard.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from typing import Any, Literal

import grain
import ml_collections

from charlm.core.learning import Batch
from charlm.core.types import Option
from charlm.data.lanes import AnyRecord, Lane, Records, empty_batch
from charlm.data.pipeline import record_lanes
from charlm.data.streams import AnyMaker, Shard, sequence_batches
from charlm.data.text_records import read_text_record
from charlm.families.objective import Objective

EVAL_MASKS = 1  # seed of the masks of held-out text, the same in every run


def sequences_of(config: ml_collections.ConfigDict, shards: int, section: str = "data") -> int:
    """Returns how many sequences (or rows) of a batch each shard has.

    Args:
      shards: number S of shards in a micro-batch.
      section: the config section that holds the sizes of batches, for messages.

    Raises:
      ValueError: the batch does not divide into micro-batches and shards.
    """
    cfg, parts = config.data, config.data.accumulation * shards
    if cfg.batch_size < 1 or cfg.batch_size % parts:
        raise ValueError(
            f"{section}.batch_size={cfg.batch_size} must be a multiple of {section}.accumulation={cfg.accumulation} x "
            f"data.table_shards={shards}"
        )
    return cfg.batch_size // parts


class TextObjective(Objective):
    """An objective over the corpora `train` and `heldout`; a subclass sets `shape`, the shape of every batch.

    Attributes:
      model: the model that is trained.
      masked: what of the held-out text is hidden and predicted: "characters" of words, whose bits are the metric
        `bits_per_char`, or "subwords", whose nats are `mlm_loss`; "": the losses count anything else.
    """

    masked: Literal["characters", "subwords", ""] = ""

    model: Any  # a module of the family, of a class with methods of its own
    shape: Any  # a NamedTuple of the family

    @staticmethod
    def read(data: bytes) -> AnyRecord:
        """Parses a record of the corpora; by default a record of text."""
        return read_text_record(data)

    @abc.abstractmethod
    def maker(self, seed: int, hiding: bool) -> AnyMaker:
        """Returns the maker of sequences; with `hiding`, all chosen words become the mask, none is kept or random."""

    @abc.abstractmethod
    def shard(self) -> Shard[Any]:  # of the family's sequences
        """Returns an empty shard."""

    @functools.cached_property
    def training_maker(self) -> Any:  # of the class that the subclass's `maker` returns
        """The maker of training sequences."""
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
        # All chosen words become the mask: words shown unchanged, or nearly so, would make the score look better.
        return self.batches(records, self.maker(EVAL_MASKS, hiding=True), accumulation=1, by_record=True)

    def batches(
        self,
        records: Mapping[int, Records],
        maker: AnyMaker,
        *,
        accumulation: int,
        by_record: bool = False,
    ) -> grain.IterDataset[Batch]:
        """Returns batches of the lanes' records; see `charlm.data.streams.sequence_batches`."""
        sizes = {"of": self.shards, "accumulation": accumulation, "prefetch": self.config.data.prefetch}
        wrap = lambda lane, number: self.wrapped(lane, number, by_record)
        return sequence_batches(records, maker, self.shard, **sizes, by_record=by_record, wrap=wrap)

    def wrapped(self, lane: Lane, number: int, heldout: bool) -> Lane:
        """Returns the lane that batches take their shards from: `lane`, or one that adds to its shards.

        Args:
          number: the number of the lane.
          heldout: whether the lane reads held-out text.
        """
        return lane

    def _lanes(self, lanes: tuple[int, ...]) -> dict[str, Option]:
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
            getattr(batches, "close", lambda: None)()  # ends the thread that prepares batches, if there is one
