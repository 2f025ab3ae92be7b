"""Sequences of spelled words -> batches to learn from, all of one shape: tables of distinct spellings by length.

Open it to see what shape batches have, how that is measured on a corpus, and how a family says what a sequence is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import grain
import numpy as np

from charlm.data.batching import BatchShape, Sequence, ShardPacker, bucket_of
from charlm.data.budgets import SAMPLE_SHARDS, budget, choose_buckets
from charlm.data.lanes import lane_batches, stack
from charlm.data.text_records import TextRecord
from charlm.families.spelled.batch import MaskedBatch, SpelledBatch
from charlm.families.spelled.sequences import Maker, Numbered, PieceStream, halves

BUCKETS = 4


class SpelledSequence(Numbered, Protocol):
    """A sequence of T words or subwords, special ones included, some of them to be predicted."""

    @property
    def ids_T(self) -> np.ndarray:
        """int32, the row of a table that is read where nothing is spelled."""
        ...

    @property
    def rows_TC(self) -> np.ndarray:
        """uint16, the characters that the model reads; 0 pads, zeros where nothing is spelled."""
        ...

    @property
    def labels_T(self) -> np.ndarray:
        """int32, what is to be predicted; -1 where nothing is."""
        ...


class MaskedMaker(Maker, Protocol):
    """What makes such sequences."""

    @property
    def slots(self) -> int:
        """Characters C of the longest spelling."""
        ...

    @property
    def most(self) -> int:
        """Positions of a sequence that are to be predicted, at most."""
        ...

    @property
    def pad(self) -> int:
        """The row of the table that stands where there is no word."""
        ...


class MaskedShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S of a micro-batch. sequences: B of a shard. length: L.
      slots: character slots C of each length bucket, ascending. rows: distinct spellings of a shard in each; a sequence
        that would exceed them begins the next shard.
      masked: positions of a shard to predict, at most; there are never more.
    """

    shards: int
    sequences: int
    length: int
    slots: tuple[int, ...]
    rows: tuple[int, ...]
    masked: int

    def tables(self) -> BatchShape:
        """Returns the shape of the tables alone, as `ShardPacker` wants it."""
        none = (0,) * len(self.slots)
        return BatchShape(self.shards, self.sequences, self.length, self.slots, self.rows, none, none)


class MaskedLane:
    """A lane of `charlm.data.lanes` that packs sequences into the tables of its shard."""

    def __init__(self, stream: PieceStream, maker: MaskedMaker, shape: MaskedShape) -> None:
        self._stream, self._maker, self._shape = stream, maker, shape

    def shard(self) -> tuple[MaskedBatch, bool]:
        """Returns the next shard, and whether it holds a word."""
        packer, taken = ShardPacker(self._shape.tables()), []
        while not packer.full and (sequence := self._stream.next()) is not None:
            if packer.add(_spelled(sequence)):
                taken.append(sequence)
                continue
            if taken:
                self._stream.give_back(sequence)
                break
            self._stream.give_back(*halves(self._maker, sequence))
        return _build(packer, taken, self._shape, self._maker.pad), bool(taken)

    def get_state(self) -> dict[str, Any]:
        """Returns what the lane holds back."""
        return self._stream.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._stream.set_state(state)


def _spelled(sequence: SpelledSequence) -> Sequence:
    """Returns the spellings of a sequence, which is all that its tables hold."""
    rows_WC = sequence.rows_TC[sequence.rows_TC[:, 0] != 0]
    return Sequence(rows_WC, np.broadcast_to(np.uint16(0), rows_WC.shape))


def _build(packer: ShardPacker, sequences: list[SpelledSequence], shape: MaskedShape, pad: int) -> MaskedBatch:
    """Returns the arrays of a shard, without the leading axis; see `MaskedBatch`."""
    B, L = shape.sequences, shape.length
    tables = packer.build()
    index_BL, ids_BL = np.zeros((B, L), np.int32), np.full((B, L), pad, np.int32)
    mask_BL = np.zeros((B, L), bool)
    position_M, labels_M = np.zeros(shape.masked, np.int32), np.full(shape.masked, -1, np.int32)
    count = 0
    for row, sequence in enumerate(sequences):
        T = len(sequence.ids_T)
        spelled_T = sequence.rows_TC[:, 0] != 0
        index_BL[row, :T][spelled_T] = tables.index_SBW[row, : spelled_T.sum()]
        ids_BL[row, :T] = np.where(spelled_T, -1, sequence.ids_T)
        mask_BL[row, :T] = True
        labels_T = sequence.labels_T
        (chosen,) = np.nonzero(labels_T >= 0)
        part = slice(count, count := count + len(chosen))
        position_M[part], labels_M[part] = row * L + chosen, labels_T[chosen]
    inputs = SpelledBatch(tables.chars, index_BL, ids_BL, np.zeros((B, L), np.int32), mask_BL)
    return MaskedBatch(inputs, position_M, labels_M)


def masked_batches(
    lanes: Mapping[int, grain.IterDataset[TextRecord]],
    maker: MaskedMaker,
    shape: MaskedShape,
    *,
    accumulation: int,
    prefetch: int,
    by_record: bool = False,
) -> grain.IterDataset[MaskedBatch]:
    """Returns batches [accumulation, S', ...], one shard for each lane of records.

    Args:
      prefetch: batches prepared ahead in a thread, so that the iterators must be closed; 0: none.
    """

    def lane(number: int, records: Iterator[TextRecord]) -> MaskedLane:
        return MaskedLane(PieceStream(records, maker, number, shape.shards, by_record), maker, shape)

    return lane_batches(lanes, lane, of=shape.shards, accumulation=accumulation, prefetch=prefetch)


def empty_masked_batch(shape: MaskedShape, pad: int, shards: int) -> MaskedBatch:
    """Returns a batch [1, shards, ...] without a word."""
    return stack([stack([_build(ShardPacker(shape.tables()), [], shape, pad)] * shards)])


def measure_tables(
    records: Iterable[TextRecord],
    maker: MaskedMaker,
    sequences: int,
    slots: tuple[int, ...] = (),
    rows: tuple[int, ...] = (),
    section: str = "data",
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the length buckets, and for each a budget of distinct spellings that nearly every shard keeps.

    Args:
      sequences: of a shard. slots, rows: given buckets, given rows; (): chosen here.
      section: of the config that gives them, for messages.

    Raises:
      ValueError: when there is no text, `slots` do not ascend or do not hold every spelling, or `rows` are not one for
        each of them.
    """
    longest = maker.slots
    if slots and (tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != longest):
        raise ValueError(
            f"{section}.bucket_slots={tuple(slots)} must ascend and end at {longest}, the longest spelling"
        )
    if not (slots and rows):
        counts_NC = _count_spellings(records, maker, sequences)
        slots = slots or choose_buckets(counts_NC.mean(axis=0), BUCKETS)
        bucket_C = bucket_of(np.arange(longest + 1), slots)
        rows = rows or tuple(budget(counts_NC[:, bucket_C == b].sum(axis=1)) for b in range(len(slots)))
    if len(rows) != len(slots) or min(rows) < 1:
        raise ValueError(
            f"{section}.bucket_rows={tuple(rows)} must name a positive number for each of {len(slots)} buckets"
        )
    return tuple(slots), tuple(rows)


def _count_spellings(records: Iterable[TextRecord], maker: MaskedMaker, sequences: int) -> np.ndarray:
    """Returns, for each of some shards, how many distinct spellings have so many slots, int [shards, C + 1]."""
    count = SAMPLE_SHARDS * sequences
    sample = list(itertools.islice(iter(PieceStream(iter(records), maker).next, None), count))
    if not sample:
        raise ValueError("data.train: no sentence to measure batches on")
    # A short corpus is read round and round: budgets must hold whole shards.
    spelled = [_spelled(sequence).chars_WC for sequence in sample]
    shards = np.arange(count).reshape(SAMPLE_SHARDS, sequences) % len(spelled)
    found = []
    for shard in shards.tolist():
        rows_UC = np.unique(np.concatenate([spelled[i] for i in shard]), axis=0)
        found.append(np.bincount(np.count_nonzero(rows_UC, axis=1), minlength=rows_UC.shape[1] + 1))
    return np.array(found)
