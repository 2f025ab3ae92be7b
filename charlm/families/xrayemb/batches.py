"""Packs sequences with spelled words into XRayEmb's batches of one shape, with tables of distinct words.

Open it to change how such batches are filled, or how words of cycles are added to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from charlm.core.types import JsonObject
from charlm.data.batching import BatchShape, ShardPacker, bucket_of, in_rooms, spilled, word_table
from charlm.data.lanes import Lane
from charlm.families.spelled.masked_batches import add_spellings, inputs_of, labels_of, spelled_rows
from charlm.families.xrayemb.batch import LearnedWords, WrittenWords, XRayBatch
from charlm.families.xrayemb.cycle_words import CycleWords, cycle_tables
from charlm.families.xrayemb.sequences import XRaySequence


class XRayShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S, shards of a micro-batch.
      sequences: B, sequences of a shard.
      length: L, positions of a sequence.
      slots: character slots C of each length bucket of spelled words, ascending.
      rows: distinct words of each bucket.
      predicted: M, most subwords of a shard to predict; large enough for any shard.
      learned: W, most words of a shard to learn.
      pieces: P, subwords of a learned word.
      written_slots, written_rows: buckets of the words to write; a word may stand in a bucket of longer words.
      cycle_slots, cycle_rows: buckets of the words of cycles, likewise.

    A sequence that would exceed a budget begins the next shard; a word of a cycle that does not fit is left out.
    """

    shards: int
    sequences: int
    length: int
    slots: tuple[int, ...]
    rows: tuple[int, ...]
    predicted: int
    learned: int
    pieces: int
    written_slots: tuple[int, ...]
    written_rows: tuple[int, ...]
    cycle_slots: tuple[int, ...]
    cycle_rows: tuple[int, ...]

    def tables(self) -> BatchShape:
        """Returns the shape of the tables alone, as `ShardPacker` takes it; the tables also hold the learned words."""
        none = (0,) * len(self.slots)
        return BatchShape(self.shards, self.sequences, self.length + self.learned, self.slots, self.rows, none, none)

    def described(self) -> str:
        """Returns a description of the shape for the user, in one line."""
        listed = lambda rows, slots: ", ".join(f"{n} of {c}" for n, c in zip(rows, slots, strict=True))
        return (
            f"{self.shards} shards x {self.sequences} sequences x {self.length} positions; a shard holds "
            f"{sum(self.rows):,} spelled words ({listed(self.rows, self.slots)} characters), {self.learned:,} to "
            f"learn, {self.predicted:,} subwords to predict, {sum(self.written_rows):,} words to write "
            f"({listed(self.written_rows, self.written_slots)}) and {sum(self.cycle_rows):,} of cycles "
            f"({listed(self.cycle_rows, self.cycle_slots)})"
        )


class XRayShard:
    """The sequences of one shard, taken while they fit; see `charlm.data.streams.Shard`.

    Args:
      pad: the id of the padding subword.
    """

    def __init__(self, shape: XRayShape, pad: int) -> None:
        self._shape, self._pad, self._packer = shape, pad, ShardPacker(shape.tables())
        self._taken: list[XRaySequence] = []
        self._learned, self._written = 0, np.zeros(len(shape.written_slots), np.int64)

    @property
    def full(self) -> bool:
        """True when the shard has all its sequences."""
        return self._packer.full

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, sequence: XRaySequence) -> bool:
        """Takes the sequence if it fits; returns whether it did."""
        learned = self._learned + len(sequence.learned_WC)
        written = self._written + _by_bucket(sequence, self._shape.written_slots)
        if learned > self._shape.learned or spilled(written, self._shape.written_rows):
            return False
        if not add_spellings(self._packer, all_rows(sequence)):
            return False
        self._learned, self._written = learned, written
        self._taken.append(sequence)
        return True

    def build(self) -> XRayBatch:
        """Returns the arrays of the shard, without the leading axis and without words of cycles; see `XRayBatch`."""
        shape, tables = self._shape, self._packer.build()
        row_W, pieces_WP = np.zeros(shape.learned, np.int32), np.full((shape.learned, shape.pieces), -1, np.int32)
        count = 0
        for b, sequence in enumerate(self._taken):
            spelled, learned = len(spelled_rows(sequence)), len(sequence.learned_WC)
            part = slice(count, count := count + learned)
            row_W[part] = tables.index_SBW[b, spelled : spelled + learned]
            pieces_WP[part] = sequence.pieces_WP
        inputs = inputs_of(tables, self._taken, shape.length, self._pad)
        labels = labels_of(self._taken, shape.predicted, shape.length)
        none = np.zeros(0, bool)
        return XRayBatch(inputs, *labels, LearnedWords(row_W, pieces_WP), self._written_words(), (), none)

    def _written_words(self) -> tuple[WrittenWords, ...]:
        shape = self._shape
        places = [np.flatnonzero(sequence.written_TC[:, 0]) for sequence in self._taken]
        none = (np.zeros(0, np.int64), np.zeros((0, shape.written_slots[-1]), np.uint16))
        position_G = np.concatenate([none[0], *(b * shape.length + at for b, at in enumerate(places))])
        chars_GC = np.concatenate([none[1], *(s.written_TC[at] for s, at in zip(self._taken, places, strict=True))])
        placed, left = in_rooms(bucket_of((chars_GC != 0).sum(axis=1), shape.written_slots), shape.written_rows)
        assert not len(left), "`add` refuses what does not fit"
        words = []
        for now, slots, rows in zip(placed, shape.written_slots, shape.written_rows, strict=True):
            position = np.zeros(rows, np.int32)
            position[: len(now)] = position_G[now]
            words.append(WrittenWords(position, word_table(chars_GC, now, rows, slots)))
        return tuple(words)


def all_rows(sequence: XRaySequence) -> np.ndarray:
    """Returns the characters of a sequence's words, uint16: first the spelled words, then the learned words."""
    return np.concatenate([spelled_rows(sequence), sequence.learned_WC])


def _by_bucket(sequence: XRaySequence, slots: tuple[int, ...]) -> np.ndarray:
    """Returns how many of the sequence's words to write fall into each bucket."""
    lengths_T = (sequence.written_TC != 0).sum(axis=1)
    return np.bincount(bucket_of(lengths_T[lengths_T > 0], slots), minlength=len(slots))


class XRayLane:
    """A lane of `charlm.data.lanes` that adds words of cycles to shards, chosen by the shard's number in the lane.

    Args:
      empty: a shard without text, for steps that have cycles alone.
    """

    def __init__(self, text: Lane, shape: XRayShape, cycle: CycleWords, lane: int, empty: XRayBatch) -> None:
        self._text, self._shape, self._cycle, self._lane, self._empty = text, shape, cycle, lane, empty
        self._made = 0  # number of shards made

    def shard(self) -> tuple[XRayBatch, bool]:
        """Returns the next shard, and whether it holds a subword or, instead of text, words of cycles."""
        shard, filled = (self._empty, True) if self._cycle.alone(self._made) else self._text.shard()
        words_KC = self._cycle.of(self._lane, self._shape.shards, self._made) if filled else self._cycle.none()
        self._made += 1
        return with_cycle(shard, words_KC, self._shape), filled

    def get_state(self) -> JsonObject:
        """Returns the state of the lane, to be saved with the data position."""
        return self._text.get_state() | {"shards": self._made}

    def set_state(self, state: JsonObject) -> None:
        """Restores what `get_state` returned."""
        self._made = state["shards"]
        self._text.set_state(state)


def with_cycle(shard: XRayBatch, words_KC: np.ndarray, shape: XRayShape) -> XRayBatch:
    """Returns the shard with words of cycles added; rows of zeros in words_KC are no words."""
    cycle = cycle_tables(words_KC, shape.cycle_slots, shape.cycle_rows)
    return shard._replace(cycle=cycle, points_SK=words_KC[:, 0] != 0)
