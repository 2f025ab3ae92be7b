"""Makes the rows that a recogniser learns from: whole sentences, misspelled anew every time, with the words meant.

The objective batches them by `charlm.data.streams`. Open it to change what stands in a row or how it is misspelled.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import JsonObject
from charlm.data.streams import generator
from charlm.data.text_records import TextRecord
from charlm.text.noise import Noise, Noiser
from charlm.wordrec.words import KnownWords, SemiCharacters


class Row(NamedTuple):
    """A row of W words.

    Attributes:
      words: as they are meant.
      read: as they are read, some of them misspelled.
      number: the numbers that, with the seed, decided the noise.
    """

    words: tuple[str, ...]
    read: tuple[str, ...]
    number: tuple[int, ...]


class RecogniserBatch(NamedTuple):
    """A micro-batch of S shards with B rows of L words each, before the leading axes are stacked.

    Attributes:
      read: what is read, arrays [S, B, L] and [S, B, L, A].
      mask_SBL: bool, True for words.
      labels_SBL: int32, labels of the words meant, -1 at padding.
      changed_SBL: bool, whether a word is read otherwise than it is meant.
    """

    read: SemiCharacters
    mask_SBL: np.ndarray
    labels_SBL: np.ndarray
    changed_SBL: np.ndarray


@dataclasses.dataclass(frozen=True)
class RowMaker:
    """Makes rows of whole sentences; a `charlm.data.streams.SequenceMaker`.

    Attributes:
      length: most words of a row; longer sentences are cut.
      noises: one of them is drawn for each row.
      seed: of all draws.
    """

    length: int
    noises: tuple[Noise, ...]
    seed: int

    @functools.cached_property
    def _noisers(self) -> tuple[Noiser, ...]:
        return tuple(Noiser(noise, self.seed) for noise in self.noises)

    def parts(self, record: TextRecord, number: int) -> Iterator[tuple[str, ...]]:
        """Yields the words of each sentence, in parts if it is longer than a row."""
        words, start = tuple(record.texts()), 0
        for end in itertools.accumulate(record.sentences.tolist()):
            yield from (words[at : min(at + self.length, end)] for at in range(start, end, self.length))
            start = end

    def filled(self, used: int | None, part: tuple[str, ...]) -> int | None:
        """Returns the number of words with `part` added, None if it does not fit."""
        used = (used or 0) + len(part)
        return used if used <= self.length else None

    def make(self, parts: Sequence[tuple[str, ...]], number: tuple[int, ...]) -> Row:
        """Returns the row of some sentences, misspelled; its draws depend on the seed and `number` alone."""
        return self._row(tuple(itertools.chain.from_iterable(parts)), number)

    def _row(self, words: tuple[str, ...], number: tuple[int, ...]) -> Row:
        which = int(generator(self.seed, *number).integers(len(self.noises)))
        read = self._noisers[which].words(words, "-".join(map(str, number))).words
        assert len(read) == len(words)  # `charlm.wordrec.config.noises_of` refuses noise that joins or cuts words
        return Row(words, read, number)

    def halves(self, sequence: Row) -> tuple[Row, Row]:
        """Returns the halves of a row, with draws of their own; ValueError if it has only one word."""
        words, middle = sequence.words, len(sequence.words) // 2
        if not middle:
            raise ValueError("data.max_length leaves no room for a single word")
        return self._row(words[:middle], (*sequence.number, 1)), self._row(words[middle:], (*sequence.number, 2))

    def held(self, parts: Iterable[tuple[str, ...]], returned: Iterable[Row]) -> JsonObject:
        """Returns the state to save: the words of sentences and rows, whose noise is drawn again."""
        rows = [[list(row.number), list(row.words)] for row in returned]
        return {"sentences": [list(part) for part in parts], "returned": rows}

    def restored(self, state: JsonObject) -> tuple[Iterable[tuple[str, ...]], Iterable[Row]]:
        """Returns what was given to `held`."""
        rows = (self._row(tuple(words), tuple(number)) for number, words in state["returned"])
        return map(tuple, state["sentences"]), rows


class RowShard:
    """The rows of a shard; see `charlm.data.streams.Shard`.

    Args:
      known: how words are read, and their labels.
      rows: B, rows of a shard.
      length: L, words of a row.
    """

    def __init__(self, known: KnownWords, rows: int, length: int) -> None:
        self._known, self._most, self._length = known, rows, length
        self._rows: list[Row] = []

    @property
    def full(self) -> bool:
        """True when the shard has all its rows."""
        return len(self._rows) == self._most

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, sequence: Row) -> bool:
        """Takes the row, which always fits."""
        self._rows.append(sequence)
        return True

    def build(self) -> RecogniserBatch:
        """Returns the arrays of the shard, without the leading axis."""
        read, mask_BL = padded_rows(self._known, [row.read for row in self._rows], self._most, self._length)
        labels_BL, changed_BL = np.full(mask_BL.shape, -1, np.int32), np.zeros(mask_BL.shape, bool)
        for n, row in enumerate(self._rows):
            labels_BL[n, : len(row.words)] = self._known.labels(row.words)
            changed_BL[n, : len(row.words)] = [
                one.lower() != other.lower() for one, other in zip(row.words, row.read, strict=True)
            ]
        return RecogniserBatch(read, mask_BL, labels_BL, changed_BL)


def padded_rows(
    known: KnownWords, rows: Sequence[Sequence[str]], most: int, length: int
) -> tuple[SemiCharacters, np.ndarray]:
    """Returns what is read of rows of words, padded to [most, length], and the mask [most, length] of real words."""
    first_BL = np.zeros((most, length), np.int32)
    inner_BLA = np.zeros((most, length, known.alphabet), np.uint8)
    last_BL, mask_BL = np.zeros_like(first_BL), np.zeros((most, length), bool)
    for n, words in enumerate(rows):
        read, real = known.read(words), slice(0, len(words))
        first_BL[n, real], inner_BLA[n, real], last_BL[n, real], mask_BL[n, real] = *read, True
    return SemiCharacters(first_BL, inner_BLA, last_BL), mask_BL
