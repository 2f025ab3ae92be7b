"""Sequences with spelled words -> batches for XRayEmb, of one shape: tables of distinct words, budgets for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import grain
import numpy as np

from charlm.data.batching import BatchShape, Sequence, ShardPacker, bucket_of, in_rooms, word_table
from charlm.data.lanes import lane_batches, stack
from charlm.data.text_records import TextRecord
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.sequences import PieceStream, halves
from charlm.families.xrayemb.batch import LearnedWords, WrittenWords, XRayBatch
from charlm.families.xrayemb.cycle_words import CycleWords, cycle_tables
from charlm.families.xrayemb.sequences import XRaySequence, XRaySequenceMaker


class XRayShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S of a micro-batch. sequences: B of a shard. length: L.
      slots: character slots C of each length bucket of spelled words, ascending. rows: distinct ones in each.
      predicted: M, subwords of a shard to predict at most; there are never more. learned: W, words to learn at most.
      pieces: P, subwords of a learned word.
      written_slots, written_rows: of the words to write; a word may stand in a bucket of longer ones.
      cycle_slots, cycle_rows: of the words of cycles, likewise.
      A sequence that would exceed a budget begins the next shard; a word of a cycle that finds no room is left out.
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
        """Returns the shape of the tables alone, as `ShardPacker` wants it: they hold the learned words, too."""
        none = (0,) * len(self.slots)
        return BatchShape(self.shards, self.sequences, self.length + self.learned, self.slots, self.rows, none, none)

    def described(self) -> str:
        """Returns what a person reads of it, one line."""
        listed = lambda rows, slots: ", ".join(f"{n} of {c}" for n, c in zip(rows, slots, strict=True))
        return (
            f"{self.shards} shards x {self.sequences} sequences x {self.length} positions; a shard holds "
            f"{sum(self.rows):,} spelled words ({listed(self.rows, self.slots)} characters), {self.learned:,} to "
            f"learn, {self.predicted:,} subwords to predict, {sum(self.written_rows):,} words to write "
            f"({listed(self.written_rows, self.written_slots)}) and {sum(self.cycle_rows):,} of cycles "
            f"({listed(self.cycle_rows, self.cycle_slots)})"
        )


class _Shard:
    """The sequences of one shard, taken while they fit."""

    def __init__(self, shape: XRayShape) -> None:
        self._shape, self._packer = shape, ShardPacker(shape.tables())
        self.taken: list[XRaySequence] = []
        self._learned, self._written = 0, np.zeros(len(shape.written_slots), np.int64)

    @property
    def full(self) -> bool:
        return self._packer.full

    def add(self, sequence: XRaySequence) -> bool:
        """Takes the sequence if it fits; returns whether it did."""
        learned = self._learned + len(sequence.learned_WC)
        written = self._written + _by_bucket(sequence, self._shape.written_slots)
        if learned > self._shape.learned or _spilled(written, self._shape.written_rows):
            return False
        spelled = all_rows(sequence)
        if not self._packer.add(Sequence(spelled, np.broadcast_to(np.uint16(0), spelled.shape))):
            return False
        self._learned, self._written = learned, written
        self.taken.append(sequence)
        return True

    def build(self, pad_id: int, cycle_KC: np.ndarray) -> XRayBatch:
        """Returns the arrays of the shard, without the leading axis; see `XRayBatch`.

        Args:
          cycle_KC: its words of cycles, zeros where there are none.
        """
        shape, tables = self._shape, self._packer.build()
        B, L = shape.sequences, shape.length
        index_BL, ids_BL = np.zeros((B, L), np.int32), np.full((B, L), pad_id, np.int32)
        mask_BL = np.zeros((B, L), bool)
        row_W, pieces_WP = np.zeros(shape.learned, np.int32), np.full((shape.learned, shape.pieces), -1, np.int32)
        count = 0
        for b, sequence in enumerate(self.taken):
            length, learned = len(sequence.ids_L), len(sequence.learned_WC)
            spelled_L = sequence.ids_L < 0
            spelled = int(spelled_L.sum())
            index_BL[b, :length][spelled_L] = tables.index_SBW[b, :spelled]
            ids_BL[b, :length], mask_BL[b, :length] = sequence.ids_L, True
            part = slice(count, count := count + learned)
            row_W[part] = tables.index_SBW[b, spelled : spelled + learned]
            pieces_WP[part] = sequence.pieces_WP
        inputs = SpelledBatch(tables.chars, index_BL, ids_BL, np.zeros((B, L), np.int32), mask_BL)
        learned, written = LearnedWords(row_W, pieces_WP), self._written_words()
        cycle = cycle_tables(cycle_KC, shape.cycle_slots, shape.cycle_rows)
        return XRayBatch(inputs, *self._labels(), learned, written, cycle, cycle_KC[:, 0] != 0)

    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        position_M, labels_M = np.zeros(self._shape.predicted, np.int32), np.full(self._shape.predicted, -1, np.int32)
        count = 0
        for b, sequence in enumerate(self.taken):
            (places,) = np.nonzero(sequence.labels_L >= 0)
            part = slice(count, count := count + len(places))
            position_M[part], labels_M[part] = b * self._shape.length + places, sequence.labels_L[places]
        return position_M, labels_M

    def _written_words(self) -> tuple[WrittenWords, ...]:
        shape = self._shape
        places = [np.flatnonzero(sequence.written_LC[:, 0]) for sequence in self.taken]
        none = (np.zeros(0, np.int64), np.zeros((0, shape.written_slots[-1]), np.uint16))
        position_G = np.concatenate([none[0], *(b * shape.length + at for b, at in enumerate(places))])
        chars_GC = np.concatenate([none[1], *(s.written_LC[at] for s, at in zip(self.taken, places, strict=True))])
        placed, left = in_rooms(bucket_of((chars_GC != 0).sum(axis=1), shape.written_slots), shape.written_rows)
        assert not len(left), "`add` refuses what does not fit"
        words = []
        for now, slots, rows in zip(placed, shape.written_slots, shape.written_rows, strict=True):
            position = np.zeros(rows, np.int32)
            position[: len(now)] = position_G[now]
            words.append(WrittenWords(position, word_table(chars_GC, now, rows, slots)))
        return tuple(words)


def all_rows(sequence: XRaySequence) -> np.ndarray:
    """Returns the characters of the words of a sequence, uint16: of those that are spelled, then of those learned."""
    return np.concatenate([sequence.rows_LC[sequence.ids_L < 0], sequence.learned_WC])


def _by_bucket(sequence: XRaySequence, slots: tuple[int, ...]) -> np.ndarray:
    """Returns how many words of each bucket are to be written."""
    lengths_L = (sequence.written_LC != 0).sum(axis=1)
    return np.bincount(bucket_of(lengths_L[lengths_L > 0], slots), minlength=len(slots))


def _spilled(counts: np.ndarray, rows: tuple[int, ...]) -> int:
    """Returns how many words have no room, in their bucket or one of longer words."""
    spilled = 0
    for count, room in zip(counts.tolist(), rows, strict=True):
        spilled = max(0, spilled + count - room)
    return spilled


class XRayLane:
    """A lane of `charlm.data.lanes` that fills shards with sequences, and with words of cycles."""

    def __init__(
        self, stream: PieceStream, maker: XRaySequenceMaker, shape: XRayShape, cycle: CycleWords, lane: int
    ) -> None:
        self._stream, self._maker, self._shape, self._cycle, self._lane = stream, maker, shape, cycle, lane
        self._made = 0  # shards

    def shard(self) -> tuple[XRayBatch, bool]:
        """Returns the next shard, and whether it holds a subword.

        Raises:
          ValueError: a sequence of one subword exceeds the budgets.
        """
        shard = _Shard(self._shape)
        while not shard.full and (sequence := self._stream.next()) is not None:
            if shard.add(sequence):
                continue
            if shard.taken:
                self._stream.give_back(sequence)
                break
            if len(sequence.pieces) < 2:
                raise ValueError("data.bucket_rows, learned_words and written_rows leave no room for a single subword")
            self._stream.give_back(*halves(self._maker, sequence))
        cycle_KC = self._cycle.of(self._lane, self._shape.shards, self._made) if shard.taken else self._cycle.none()
        self._made += 1
        return shard.build(pad_id_of(self._maker), cycle_KC), bool(shard.taken)

    def get_state(self) -> dict[str, Any]:
        """Returns what the lane holds back."""
        return self._stream.get_state() | {"shards": self._made}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._made = state["shards"]
        self._stream.set_state(state)


def pad_id_of(maker: XRaySequenceMaker) -> int:
    """Returns the subword that stands where there is none: the vocabulary's own, or 0."""
    return maker.tokenizer.special.pad or 0


def xray_batches(
    lanes: Mapping[int, grain.IterDataset[TextRecord]],
    maker: XRaySequenceMaker,
    shape: XRayShape,
    cycle: CycleWords,
    *,
    accumulation: int,
    prefetch: int,
    by_record: bool = False,
) -> grain.IterDataset[XRayBatch]:
    """Returns batches [accumulation, S', ...], one shard for each lane of records.

    Args:
      prefetch: batches prepared ahead in a thread, so that the iterators must be closed; 0: none.
    """

    def lane(number: int, records: Iterator[TextRecord]) -> XRayLane:
        return XRayLane(PieceStream(records, maker, number, shape.shards, by_record), maker, shape, cycle, number)

    return lane_batches(lanes, lane, of=shape.shards, accumulation=accumulation, prefetch=prefetch)


def empty_xray_batch(shape: XRayShape, pad_id: int, cycle: CycleWords, shards: int) -> XRayBatch:
    """Returns a batch [1, shards, ...] without a subword."""
    return stack([stack([_Shard(shape).build(pad_id, cycle.none())] * shards)])
