"""Sequences with spelled words -> batches for XRayEmb, of one shape: tables of distinct words, budgets for the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import grain
import numpy as np

from charlm.batch import LearnedWords, SpelledBatch, WrittenWords, XRayBatch
from charlm.data.batching import BatchShape, Sequence, ShardPacker, bucket_of
from charlm.data.budgets import SAMPLE_SHARDS, budget, choose_buckets
from charlm.data.cycle_words import CycleWords
from charlm.data.lanes import lane_batches, stack
from charlm.data.piece_sequences import PieceStream, halves
from charlm.data.text_records import TextRecord
from charlm.data.xray_sequences import XRaySequence, XRaySequenceMaker

BUCKETS, WRITTEN_BUCKETS = 3, 3


class XRayShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S of a micro-batch. sequences: B of a shard. length: L.
      slots: character slots C of each length bucket of spelled words, ascending. rows: distinct ones in each.
      predicted: M, subwords of a shard to predict at most; there are never more. learned: W, words to learn at most.
      pieces: P, subwords of a learned word.
      written_slots, written_rows: of the words to write; a word may stand in a bucket of longer ones.
      A sequence that would exceed a budget begins the next shard.
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

    def tables(self) -> BatchShape:
        """Returns the shape of the tables alone, as `ShardPacker` wants it: they hold the learned words, too."""
        none = (0,) * len(self.slots)
        return BatchShape(self.shards, self.sequences, self.length + self.learned, self.slots, self.rows, none, none)


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
        """Returns the arrays of the shard, without the leading axis; see `XRayBatch`."""
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
        labels = self._labels()
        return XRayBatch(inputs, *labels, LearnedWords(row_W, pieces_WP), self._written_words(), cycle_KC)

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
        bucket_G = bucket_of((chars_GC != 0).sum(axis=1), shape.written_slots)
        waiting, words = np.zeros(0, np.int64), []
        for bucket, (slots, rows) in enumerate(zip(shape.written_slots, shape.written_rows, strict=True)):
            waiting = np.concatenate([waiting, np.flatnonzero(bucket_G == bucket)])
            now, waiting = waiting[:rows], waiting[rows:]
            position, chars = np.zeros(rows, np.int32), np.zeros((rows, slots), np.uint16)
            position[: len(now)], chars[: len(now)] = position_G[now], chars_GC[now, :slots]
            words.append(WrittenWords(position, chars))
        assert not len(waiting), "`add` refuses what does not fit"
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


class Budgets(NamedTuple):
    """What is measured of a shape; empty or 0 where it is not given."""

    slots: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    learned: int = 0
    written_slots: tuple[int, ...] = ()
    written_rows: tuple[int, ...] = ()


def measure_budgets(records: Iterable[TextRecord], maker: XRaySequenceMaker, sequences: int, given: Budgets) -> Budgets:
    """Returns length buckets and budgets that nearly every shard keeps.

    Args:
      sequences: of a shard. given: what is not to be measured.

    Raises:
      ValueError: there is no text, `slots` do not ascend up to the longest word, or `rows` are not one for each.
    """
    for name, slots in (("bucket_slots", given.slots), ("written_slots", given.written_slots)):
        if slots and (tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != maker.slots):
            raise ValueError(f"data.{name}={tuple(slots)} must ascend and end at {maker.slots}, model.char_slots")
    measured = given if all(given) else _measure(records, maker, sequences, given)
    pairs = (("bucket", measured.slots, measured.rows), ("written", measured.written_slots, measured.written_rows))
    for name, slots, rows in pairs:
        if len(rows) != len(slots) or min(rows) < 1:
            raise ValueError(f"data.{name}_rows={rows} must name a positive number for each of {len(slots)} buckets")
    return measured


def _measure(records: Iterable[TextRecord], maker: XRaySequenceMaker, sequences: int, given: Budgets) -> Budgets:
    count = SAMPLE_SHARDS * sequences
    sample = list(itertools.islice(iter(PieceStream(iter(records), maker).next, None), count))
    if not sample:
        raise ValueError("data.train: no sentence to measure batches on")
    # A short corpus is read round and round: budgets must hold whole shards.
    shards = (np.arange(count).reshape(SAMPLE_SHARDS, sequences) % len(sample)).tolist()
    by_length = lambda rows_UC: np.bincount((rows_UC != 0).sum(axis=1), minlength=maker.slots + 1)
    spelled, written = [], []
    for shard in shards:
        spelled.append(by_length(np.unique(np.concatenate([all_rows(sample[i]) for i in shard]), axis=0)))
        written.append(sum(by_length(sample[i].written_LC) for i in shard))
    slots, rows = _bucketed(np.array(spelled), BUCKETS, given.slots, given.rows)
    written_NC = np.array(written)
    written_NC[:, 0] = 0  # positions that write nothing
    written_slots, written_rows = _bucketed(written_NC, WRITTEN_BUCKETS, given.written_slots, given.written_rows)
    learned = np.array([sum(len(sample[i].learned_WC) for i in shard) for shard in shards])
    return Budgets(slots, rows, given.learned or budget(learned), written_slots, written_rows)


def _bucketed(
    counts_NC: np.ndarray, buckets: int, slots: tuple[int, ...], rows: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns length buckets and their budgets from how many words of each length shards have."""
    slots = slots or choose_buckets(counts_NC.mean(axis=0), buckets)
    bucket_C = bucket_of(np.arange(counts_NC.shape[1]), slots)
    return slots, rows or tuple(budget(counts_NC[:, bucket_C == b].sum(axis=1)) for b in range(len(slots)))
