"""Packs sequences into tables of distinct words, grouped by length, in arrays of a fixed shape.

A shard is closed when the next sequence would exceed its budgets; that sequence then opens the next shard. So nothing
overflows, nothing is shortened or lost, and every batch has the same shape: one compiled program serves all of them.
Open it to see how a `WordBatch` is laid out, or why a batch was closed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from charlm.core.trees import stack
from charlm.data.word_batch import MaskedWords, WordBatch
from charlm.text.chars import CLS, SEP


class WordSequence(NamedTuple):
    """One sequence of words, including [CLS] and [SEP].

    Attributes:
      chars_WC: uint16, the characters that the model reads; 0 is padding.
      labels_WC: uint16, the character ids to predict; 0 where nothing is predicted.
    """

    chars_WC: np.ndarray
    labels_WC: np.ndarray


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """The fixed shape of a batch.

    Attributes:
      shards: number S of shards; each has a word table.
      sequences: sequences B of a shard.
      words: words W of a sequence.
      slots: character slots C of each length bucket, ascending; the last bucket holds the longest word.
      table: per bucket, rows U for distinct words of which only slot 0 is read; 0 where such words go to a bucket of
        longer words; () when `unique_words` is False.
      masked: per bucket, rows P for distinct words at masked positions.
      labels: per bucket, masked positions M.
      unique_words: False gives every position a row of its own (the paper's reshape).
      room: slots that a word at a masked position has beyond its own, for predicted words that are longer than it.
    """

    shards: int
    sequences: int
    words: int
    slots: tuple[int, ...]
    table: tuple[int, ...]
    masked: tuple[int, ...]
    labels: tuple[int, ...]
    unique_words: bool = True
    room: int = 0

    def joined(self, other: BatchShape) -> BatchShape:
        """Returns the smallest shape that holds what each of two shapes holds, if they differ in numbers of rows."""
        largest = lambda a, b: tuple(map(max, zip(a, b, strict=True)))
        return dataclasses.replace(
            self,
            sequences=max(self.sequences, other.sequences),
            table=largest(self.table, other.table),
            masked=largest(self.masked, other.masked),
            labels=largest(self.labels, other.labels),
        )


def edges(slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns [CLS] and [SEP] as words, uint16 [1, slots] each: one character, no WORD_CLS (HLM, appendix A.3)."""
    edges_2C = np.zeros((2, slots), np.uint16)
    edges_2C[:, 0] = CLS, SEP
    return edges_2C[:1], edges_2C[1:]


def framed(rows_WC: np.ndarray, labels_WC: np.ndarray | None = None) -> WordSequence:
    """Returns words between [CLS] and [SEP] with the ids to predict; without `labels_WC` nothing is predicted."""
    cls, sep = edges(rows_WC.shape[1])
    labels_WC = np.zeros_like(rows_WC) if labels_WC is None else labels_WC
    return WordSequence(np.concatenate([cls, rows_WC, sep]), np.pad(labels_WC, ((1, 1), (0, 0))))


def bucket_of(slots_U: np.ndarray, bucket_slots: tuple[int, ...]) -> np.ndarray:
    """Returns for each word the index of the first bucket that is long enough for its slots."""
    return np.searchsorted(np.asarray(bucket_slots), slots_U)


def roomy(slots_U: np.ndarray, room: int, bucket_slots: tuple[int, ...]) -> np.ndarray:
    """Returns the bucket of words that get `room` slots beyond their own, as far as the longest bucket has them."""
    return bucket_of(np.minimum(slots_U + room, bucket_slots[-1]), bucket_slots)


def in_rooms(bucket_N: np.ndarray, rooms: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """Places each word in its bucket or, when that is full, in a bucket of longer words.

    Args:
      bucket_N: the first bucket that is long enough for each word.
      rooms: how many words fit into each bucket.

    Returns:
      The words placed in each bucket, and the words that found no room; both as indices into `bucket_N`.
    """
    waiting, placed = np.zeros(0, np.int64), []
    for bucket, room in enumerate(rooms):
        waiting = np.concatenate([waiting, np.flatnonzero(bucket_N == bucket)])
        placed.append(waiting[:room])
        waiting = waiting[room:]
    return placed, waiting


def spilled(counts: np.ndarray, rooms: tuple[int, ...]) -> int:
    """Returns how many words fit neither into their bucket nor a longer one; `counts` is the number per bucket."""
    left = 0
    for count, room in zip(counts.tolist(), rooms, strict=True):
        left = max(0, left + count - room)
    return left


def labelled(rows: Iterable[tuple[np.ndarray, np.ndarray]], most: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the labelled positions of all rows of a shard, int32 [most], and their labels, -1 at unused places.

    Args:
      rows: positions and labels of each row.
      most: number of labelled positions that a shard has room for.
      length: length of a row; the returned positions count on from row to row.
    """
    positions, labels = np.zeros(most, np.int32), np.full(most, -1, np.int32)
    count = 0
    for row, (places, values) in enumerate(rows):
        part = slice(count, count := count + len(places))
        positions[part], labels[part] = row * length + places, values
    return positions, labels


class ShardPacker:
    """Collects the sequences of one shard while they fit its budgets, then lays out its tables.

    A distinct word of which only slot 0 is read may move to a bucket of longer words when its own bucket is full.
    Padding never changes the vector of a word, and fewer batches close early.
    """

    def __init__(self, shape: BatchShape) -> None:
        self._shape = shape
        self._sequences: list[tuple[WordSequence, list[bytes]]] = []
        self._words: dict[bytes, tuple[int, bool]] = {}  # characters -> (bucket, is at a masked position)
        self._counts = np.zeros(
            (3, len(shape.slots)), np.int64
        )  # per bucket: table rows, masked rows, masked positions

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def full(self) -> bool:
        """True when the shard has all its sequences."""
        return len(self._sequences) == self._shape.sequences

    def add(self, sequence: WordSequence) -> bool:
        """Takes the sequence if it fits; returns whether it did. A refused sequence changes nothing."""
        if self.full:
            return False
        chars_WC = np.ascontiguousarray(sequence.chars_WC)
        slots_W = (chars_WC != 0).sum(axis=1)
        bucket_W = bucket_of(slots_W, self._shape.slots)
        masked_bucket_W = roomy(slots_W, self._shape.room, self._shape.slots)
        rows, width = chars_WC.tobytes(), chars_WC.shape[1] * chars_WC.itemsize
        keys = [rows[i : i + width] for i in range(0, len(rows), width)]
        (masked_at,) = np.nonzero(sequence.labels_WC.any(axis=1))
        masked_keys = {keys[i] for i in masked_at}

        buckets = len(self._shape.slots)
        words: dict[bytes, tuple[int, bool]] = {}
        table, masked = [0] * buckets, [0] * buckets
        places = zip(bucket_W.tolist(), masked_bucket_W.tolist(), strict=True)
        for key, (bucket, masked_bucket) in dict(zip(keys, places, strict=True)).items():
            known = self._words.get(key)
            is_masked = key in masked_keys
            if known is None:
                (masked if is_masked else table)[masked_bucket if is_masked else bucket] += 1
            elif is_masked and not known[1]:
                masked[masked_bucket] += 1
                table[bucket] -= 1
            else:
                continue
            words[key] = (masked_bucket if is_masked else bucket, is_masked)
        labels = np.bincount(masked_bucket_W[masked_at], minlength=buckets)
        counts = self._counts + np.array([table, masked, labels])
        if not self._fits(counts):
            return False
        self._counts = counts
        self._words.update(words)
        self._sequences.append((sequence, keys))
        return True

    def _fits(self, counts: np.ndarray) -> bool:
        shape = self._shape
        if not shape.unique_words:
            return bool(counts[2].sum() <= shape.labels[-1])
        fits = (counts[1] <= shape.masked).all() and (counts[2] <= shape.labels).all()
        return bool(fits) and not spilled(counts[0], shape.table)

    def build(self) -> WordBatch:
        """Returns the shard's arrays, without the leading S axis; see `WordBatch`."""
        shape = self._shape
        C = shape.slots[-1]
        index_BW = np.zeros((shape.sequences, shape.words), np.int32)
        mask_BW = np.zeros((shape.sequences, shape.words), bool)
        labels_BWC = np.zeros((shape.sequences, shape.words, C), np.uint16)
        for b, (sequence, _) in enumerate(self._sequences):
            length = len(sequence.chars_WC)
            mask_BW[b, :length] = True
            labels_BWC[b, :length] = sequence.labels_WC
        labels_NC = labels_BWC.reshape(-1, C)
        if not shape.unique_words:
            return self._build_reshape(labels_NC, mask_BW)

        bucket_U, masked_U = (
            (np.array(column) for column in zip(*self._words.values(), strict=True))
            if self._words
            else (np.zeros(0, np.int64), np.zeros(0, bool))
        )
        chars_UC = np.frombuffer(b"".join(self._words), np.uint16).reshape(len(self._words), C)
        row_U = np.zeros(len(self._words), np.int32)
        start, masked_tables, masked_starts, tables = 0, [], [], []
        for b, slots in enumerate(shape.slots):
            (words,) = np.nonzero(masked_U & (bucket_U == b))
            masked_tables.append(word_table(chars_UC, words, shape.masked[b], slots))
            masked_starts.append(start)
            row_U[words] = start + np.arange(len(words))
            start += shape.masked[b]
        (plain,) = np.nonzero(~masked_U)
        placed, left = in_rooms(bucket_U[plain], shape.table)
        assert not len(left), "`add` refuses what does not fit"
        for b, slots in enumerate(shape.slots):
            words = plain[placed[b]]
            tables.append(word_table(chars_UC, words, shape.table[b], slots))
            row_U[words] = start + np.arange(len(words))
            start += shape.table[b]

        row_of = dict(zip(self._words, row_U.tolist(), strict=True))
        for b, (_, keys) in enumerate(self._sequences):
            index_BW[b, : len(keys)] = [row_of[key] for key in keys]
        (masked_N,) = np.nonzero(labels_NC.any(axis=1))
        rows_N = index_BW.reshape(-1)[masked_N]
        bucket_N = np.searchsorted(np.array([*masked_starts[1:], start]), rows_N, side="right")
        masked = tuple(
            _masked_words(
                table, masked_N[bucket_N == b], rows_N[bucket_N == b] - masked_starts[b], labels_NC, shape.labels[b]
            )
            for b, table in enumerate(masked_tables)
        )
        return WordBatch(tuple(tables), masked, index_BW, mask_BW)

    def _build_reshape(self, labels_NC: np.ndarray, mask_BW: np.ndarray) -> WordBatch:
        shape = self._shape
        chars_BWC = np.zeros((shape.sequences, shape.words, shape.slots[-1]), np.uint16)
        for b, (sequence, _) in enumerate(self._sequences):
            chars_BWC[b, : len(sequence.chars_WC)] = sequence.chars_WC
        chars_NC = chars_BWC.reshape(-1, shape.slots[-1])
        (masked_N,) = np.nonzero(labels_NC.any(axis=1))
        masked = _masked_words(chars_NC, masked_N, masked_N, labels_NC, shape.labels[-1])
        index_BW = np.arange(len(chars_NC), dtype=np.int32).reshape(mask_BW.shape)
        return WordBatch((), (masked,), index_BW, mask_BW)


def word_table(chars_UC: np.ndarray, words: np.ndarray, rows: int, slots: int) -> np.ndarray:
    """Returns a table uint16 [rows, slots] that holds the given words first and zeros after them."""
    table = np.zeros((rows, slots), np.uint16)
    table[: len(words)] = chars_UC[words, :slots]
    return table


def _masked_words(
    chars_PC: np.ndarray, position: np.ndarray, row: np.ndarray, labels_NC: np.ndarray, capacity: int
) -> MaskedWords:
    position_M, row_M = np.zeros(capacity, np.int32), np.zeros(capacity, np.int32)
    labels_MC = np.zeros((capacity, chars_PC.shape[1]), np.uint16)
    position_M[: len(position)] = position
    row_M[: len(row)] = row
    labels_MC[: len(position)] = labels_NC[position, : chars_PC.shape[1]]
    return MaskedWords(chars_PC, position_M, row_M, labels_MC)


def pack_all(sequences: list[WordSequence], words: int, bucket_slots: tuple[int, ...]) -> WordBatch:
    """Returns one batch [S = 1, ...] of all the sequences, of the shape that `shape_of` measures."""
    return packed(sequences, shape_of(sequences, words, bucket_slots))


def shape_of(sequences: list[WordSequence], words: int, bucket_slots: tuple[int, ...], room: int = 0) -> BatchShape:
    """Returns the shape of a batch that holds all the sequences; sizes are rounded up so that few shapes occur.

    Args:
      words: number W of words to which every sequence is padded.
      bucket_slots: length buckets; the last one holds the longest word. See `inference_slots`.
      room: as in `BatchShape`.
    """
    chars_NC = np.concatenate([s.chars_WC for s in sequences])
    is_masked_N = np.concatenate([s.labels_WC.any(axis=1) for s in sequences])
    slots_N = (chars_NC != 0).sum(axis=1)
    bucket_N, masked_bucket_N = bucket_of(slots_N, bucket_slots), roomy(slots_N, room, bucket_slots)

    def rows(bucket_M: np.ndarray) -> tuple[int, ...]:
        return tuple(max(round_up(n), 32) for n in np.bincount(bucket_M, minlength=len(bucket_slots)).tolist())

    def distinct(positions_N: np.ndarray) -> np.ndarray:
        return positions_N[np.unique(chars_NC[positions_N], axis=0, return_index=True)[1]]

    none = (0,) * len(bucket_slots)
    (masked_N,) = np.nonzero(is_masked_N)
    return BatchShape(
        shards=1,
        sequences=power_of_two(len(sequences)),
        words=words,
        slots=bucket_slots,
        table=rows(bucket_N[distinct(np.arange(len(chars_NC)))]),
        masked=rows(masked_bucket_N[distinct(masked_N)]) if len(masked_N) else none,
        labels=rows(masked_bucket_N[masked_N]) if len(masked_N) else none,
        room=room,
    )


def packed(sequences: list[WordSequence], shape: BatchShape) -> WordBatch:
    """Returns one batch [S = 1, ...] of all the sequences, which must fit into the shape."""
    packer = ShardPacker(shape)
    for sequence in sequences:
        added = packer.add(sequence)
        assert added, "the shape has room for all"
    batch = stack([packer.build()])
    return batch if any(shape.labels) else batch._replace(masked=())


def slots_up_to(longest: int, shorter: Iterable[int]) -> tuple[int, ...]:
    """Returns ascending length buckets: those of `shorter` that are below `longest`, and `longest` itself."""
    return (*(slots for slots in shorter if slots < longest), longest)


def inference_slots(longest: int) -> tuple[int, ...]:
    """Returns length buckets for `pack_all`, up to the longest word; they waste least on English Wikipedia."""
    return slots_up_to(longest, (5, 8, 11))


def cache_slots(longest: int) -> tuple[int, ...]:
    """Returns length buckets for `charlm.core.cache`; they are finer, because its arrays hold words of like length."""
    return slots_up_to(longest, (5, 7, 9, 11, 14))


def power_of_two(n: int) -> int:
    """Returns the smallest power of two that is at least n, and at least 1."""
    return 1 << max(n - 1, 0).bit_length()


def round_up(n: int, least: int = 32) -> int:
    """Returns the next multiple of a step, so that few different shapes occur.

    The step is `least`, and past 8 * `least` an eighth of the next power of two. Powers of two alone would be too
    coarse: they add half as much again on average, and a padding row costs as much as a word.
    """
    step = max(least, power_of_two(n) // 8)
    return -(-n // step) * step


def halve(sequence: WordSequence) -> tuple[WordSequence, WordSequence]:
    """Cuts a sequence that exceeds the budgets on its own into two, each with [CLS] and [SEP]; no word is lost."""
    cls, sep = sequence.chars_WC[:1], sequence.chars_WC[-1:]
    none = np.zeros_like(sequence.labels_WC[:1])
    middle = len(sequence.chars_WC) // 2
    if middle < 2:
        raise ValueError("data.bucket_words, bucket_masked and bucket_labels leave no room for a sequence of one word")
    first = WordSequence(
        np.concatenate([sequence.chars_WC[:middle], sep]), np.concatenate([sequence.labels_WC[:middle], none])
    )
    second = WordSequence(
        np.concatenate([cls, sequence.chars_WC[middle:]]), np.concatenate([none, sequence.labels_WC[middle:]])
    )
    return first, second
