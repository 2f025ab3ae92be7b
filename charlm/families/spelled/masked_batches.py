"""Packs sequences of spelled words into training batches of one shape, with tables of distinct spellings by length.

Open it to change how such batches are filled. It defines the shape of batches, measures it on a corpus, and states what
a family's sequences have to provide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from charlm.data.batching import BatchShape, ShardPacker, WordSequence, bucket_of, labelled
from charlm.data.budgets import budget, check_rows, check_slots, choose_buckets
from charlm.data.streams import AnyMaker, sampled
from charlm.data.text_records import TextRecord
from charlm.data.word_batch import WordBatch
from charlm.families.spelled.batch import MaskedBatch, SpelledBatch

SPELLING_BUCKETS = 4  # most length buckets of spellings that are chosen when the config names none


class SpelledText(Protocol):
    """A sequence of T words or subwords, special tokens included."""

    @property
    def ids_T(self) -> np.ndarray:
        """int32, the row of the table of subwords at each position; at positions with a spelling it is not read.

        A negative number there is taken over, as `SpelledBatch.ids_SBL` has it.
        """
        ...

    @property
    def rows_TC(self) -> np.ndarray:
        """uint16, the characters that the model reads; 0 pads, and a position without a spelling has only zeros."""
        ...


class SpelledSequence(SpelledText, Protocol):
    """Such a sequence, some of whose words or subwords are to be predicted."""

    @property
    def labels_T(self) -> np.ndarray:
        """int32, the labels to predict; -1 at all other positions."""
        ...


class MaskedMaker(AnyMaker, Protocol):
    """A maker of such sequences."""

    @property
    def slots(self) -> int:
        """Characters C of the longest spelling."""
        ...

    @property
    def most(self) -> int:
        """The largest number of positions to predict in a sequence."""
        ...

    @property
    def pad(self) -> int:
        """The row of the table that stands at padding."""
        ...


class MaskedShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S, shards of a micro-batch.
      sequences: B, sequences of a shard.
      length: L, positions of a sequence.
      slots: character slots C of each length bucket, ascending.
      rows: distinct spellings of a shard in each bucket; a sequence that would exceed them begins the next shard.
      masked: M, positions of a shard to predict; large enough for any shard.
    """

    shards: int
    sequences: int
    length: int
    slots: tuple[int, ...]
    rows: tuple[int, ...]
    masked: int

    def tables(self) -> BatchShape:
        """Returns the shape of the tables alone, as `ShardPacker` takes it."""
        none = (0,) * len(self.slots)
        return BatchShape(self.shards, self.sequences, self.length, self.slots, self.rows, none, none)


class MaskedShard:
    """The sequences of a shard, and tables of their distinct spellings; see `charlm.data.streams.Shard`.

    Args:
      pad: the row of the table of subwords that stands at padding.
    """

    def __init__(self, shape: MaskedShape, pad: int) -> None:
        self._shape, self._pad = shape, pad
        self._packer = ShardPacker(shape.tables())
        self._taken: list[SpelledSequence] = []

    @property
    def full(self) -> bool:
        """True when the shard has all its sequences."""
        return self._packer.full

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, sequence: SpelledSequence) -> bool:
        """Takes the sequence if its spellings fit; returns whether they did."""
        fits = add_spellings(self._packer, spelled_rows(sequence))
        self._taken += [sequence] * fits
        return fits

    def build(self) -> MaskedBatch:
        """Returns the arrays of the shard, without the leading axis; see `MaskedBatch`."""
        inputs = inputs_of(self._packer.build(), self._taken, self._shape.length, self._pad)
        return MaskedBatch(inputs, *labels_of(self._taken, self._shape.masked, self._shape.length))


def spelled_rows(sequence: SpelledText) -> np.ndarray:
    """Returns the spellings that a sequence reads, in order."""
    return sequence.rows_TC[sequence.rows_TC[:, 0] != 0]


def add_spellings(packer: ShardPacker, rows_WC: np.ndarray) -> bool:
    """Adds the spellings of a sequence to the packer's tables, without labels; returns whether they fit."""
    return packer.add(WordSequence(rows_WC, np.broadcast_to(np.uint16(0), rows_WC.shape)))


def inputs_of(tables: WordBatch, sequences: Sequence[SpelledText], length: int, pad: int) -> SpelledBatch:
    """Returns the model's inputs for a shard, without the leading axis.

    Args:
      tables: the packed spellings; of each sequence, those that the model reads come first.
      length: L, positions of a row.
      pad: the row of the table of subwords that stands at padding.
    """
    B, L = len(tables.index_SBW), length
    index_BL, ids_BL = np.zeros((B, L), np.int32), np.full((B, L), pad, np.int32)
    mask_BL = np.zeros((B, L), bool)
    for row, sequence in enumerate(sequences):
        T = len(sequence.ids_T)
        spelled_T = sequence.rows_TC[:, 0] != 0
        index_BL[row, :T][spelled_T] = tables.index_SBW[row, : spelled_T.sum()]
        ids_BL[row, :T] = np.where(spelled_T, np.minimum(sequence.ids_T, -1), sequence.ids_T)
        mask_BL[row, :T] = True
    return SpelledBatch(tables.chars, index_BL, ids_BL, np.zeros((B, L), np.int32), mask_BL)


def labels_of(sequences: Sequence[SpelledSequence], most: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions to predict in a shard and their labels; see `charlm.data.batching.labelled`."""
    places = [np.flatnonzero(sequence.labels_T >= 0) for sequence in sequences]
    rows = ((at, sequence.labels_T[at]) for at, sequence in zip(places, sequences, strict=True))
    return labelled(rows, most, length)


def measure_tables(
    records: Iterable[TextRecord],
    maker: MaskedMaker,
    sequences: int,
    slots: tuple[int, ...] = (),
    rows: tuple[int, ...] = (),
    section: str = "data",
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the length buckets, and for each a budget of distinct spellings that nearly every shard stays within.

    Args:
      sequences: sequences of a shard.
      slots, rows: character slots and rows of the buckets, where the config gives them; (): they are chosen here.
      section: section of the config that gives them, for messages.

    Raises:
      ValueError: there is no text, `slots` do not ascend or do not hold the longest spelling, or `rows` is not one
        number per bucket.
    """
    longest = maker.slots
    check_slots(f"{section}.bucket_slots", slots, longest, f"{longest}, the longest spelling")
    if not (slots and rows):
        counts_NC = _count_spellings(records, maker, sequences)
        slots = slots or choose_buckets(counts_NC.mean(axis=0), SPELLING_BUCKETS)
        bucket_C = bucket_of(np.arange(longest + 1), slots)
        rows = rows or tuple(budget(counts_NC[:, bucket_C == b].sum(axis=1)) for b in range(len(slots)))
    check_rows(f"{section}.bucket_rows", rows, slots)
    return tuple(slots), tuple(rows)


def _count_spellings(records: Iterable[TextRecord], maker: MaskedMaker, sequences: int) -> np.ndarray:
    """Returns for sampled shards how many distinct spellings there are of each length, int [shards, C + 1]."""
    shards = sampled(records, maker, sequences)
    return np.array([count_distinct(map(spelled_rows, shard), maker.slots) for shard in shards])


def count_distinct(rows: Iterable[np.ndarray], longest: int) -> np.ndarray:
    """Returns how many distinct rows of characters there are of each length, int [longest + 1]."""
    rows_NC = np.ascontiguousarray(np.concatenate([*rows]))
    # As blocks of bytes rows are compared in one go: unique(axis=0), character by character, takes 17 times as long.
    blocks_N = rows_NC.view(np.dtype((np.void, rows_NC.strides[0])))[:, 0]
    rows_UC = np.unique(blocks_N).view(rows_NC.dtype).reshape(-1, rows_NC.shape[1])
    return np.bincount(np.count_nonzero(rows_UC, axis=1), minlength=longest + 1)
