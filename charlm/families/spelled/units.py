"""Base classes of units that are rows of a table of subwords, or words read from characters (`SpelledBatch`).

Open it to see how texts become a `SpelledBatch`. A batch holds each distinct spelling once, in the table of its length
bucket. A family that reads text word by word subclasses `WordUnits`.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Hashable, Sequence
from typing import Self

import numpy as np

from charlm.data.batching import bucket_of, in_rooms, round_up, word_table
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.spellings import Spellings
from charlm.families.subword.units import PieceUnits
from charlm.families.units import Encoded, Joined, Packing, TablePacking, given_words, part_numbers, texts_in_words
from charlm.text.words import Splitter

LEAST_ROWS = 32  # the rows of a table are a multiple of this


@dataclasses.dataclass(frozen=True)
class SpelledShape:
    """The shape of a packed batch: rows and their length; per length bucket the slots C and the spellings U."""

    rows: int
    length: int
    slots: tuple[int, ...]
    table: tuple[int, ...]


class SpelledUnits(PieceUnits[SpelledShape, SpelledBatch]):
    """Units that are ids, or -1 - n for spelling n. Spellings are kept as long as this object; see `fresh`.

    Attributes:
      spellings: the spellings met so far.
      buckets: character slots of the tables, ascending.
    """

    spellings: Spellings
    buckets: tuple[int, ...]
    _pad: int

    @property
    def pad(self) -> int:
        """The row of the table that stands at padding."""
        return self._pad

    def fresh(self) -> Self:
        """Returns a copy without the spellings met so far; codes of the old object mean nothing to the copy."""
        other = copy.copy(self)
        other.spellings = self.spellings.emptied()
        return other

    def measure(
        self, groups: Sequence[Sequence[Joined]], rows: int, length: int, slack: float = 0.0, least: int = 0
    ) -> SpelledShape:
        """Returns a shape with room for the distinct spellings of each group."""
        counts = np.full(len(self.buckets), least, np.int64)
        for group in groups:
            codes_N = np.concatenate([row.content[:, 0] for row in group])
            chars_UC = self.spellings.rows(_spelled(self.spellings.of_words(codes_N)))
            bucket_U = bucket_of((chars_UC != 0).sum(axis=1), self.buckets)
            counts = np.maximum(counts, np.bincount(bucket_U, minlength=len(self.buckets)))
        table = [round_up(n, LEAST_ROWS) for n in np.ceil(counts * (1 + slack)).astype(int).tolist()]
        used = [(slots, n) for slots, n in zip(self.buckets, table, strict=True) if n] or [
            (self.buckets[0], LEAST_ROWS)
        ]
        return SpelledShape(rows, length, tuple(slots for slots, _ in used), tuple(n for _, n in used))

    def widest(self, rows: int, length: int) -> SpelledShape:
        """Returns a shape with a spelling for every position."""
        return SpelledShape(rows, length, self.buckets[-1:], (rows * length,))

    def packing(self, shape: SpelledShape) -> Packing[SpelledBatch]:
        """Returns what takes rows as long as the tables have room for their spellings."""

        def words(row: Joined) -> dict[Hashable, int]:
            codes_U = _spelled(self.spellings.of_words(row.content[:, 0]))
            buckets = bucket_of((self.spellings.rows(codes_U) != 0).sum(axis=1), shape.slots).tolist()
            return dict(zip(codes_U.tolist(), buckets, strict=True))

        return TablePacking(lambda rows: self.pack(rows, shape), words, shape.table)

    def pack(self, rows: Sequence[Joined], shape: SpelledShape) -> SpelledBatch | None:
        """Returns the rows, padded on the right, with tables of their distinct spellings; None if these do not fit."""
        B, L = shape.rows, shape.length
        codes_BL, types_BL, mask_BL = (
            np.full((B, L), self._pad, np.int32),
            np.zeros((B, L), np.int32),
            np.zeros((B, L), bool),
        )
        for b, row in enumerate(rows):
            codes_BL[b, : row.length], types_BL[b, : row.length] = row.content.T
            mask_BL[b, : row.length] = True
        words_BL = self.spellings.of_words(codes_BL)
        codes_U = _spelled(words_BL)
        laid = _tables(self.spellings.rows(codes_U), shape)
        if laid is None:
            return None
        tables, row_U = laid
        index_BL, spelled_BL = np.zeros((B, L), np.int32), codes_BL < 0
        index_BL[spelled_BL] = row_U[np.searchsorted(codes_U, words_BL[spelled_BL])]
        return SpelledBatch(tables, index_BL, self.spellings.ids(codes_BL), types_BL, mask_BL)

    def numbered(self, inputs: SpelledBatch, rows: Sequence[Joined]) -> SpelledBatch:
        """Returns the rows with a mask that numbers their parts; see `Units.numbered`."""
        return inputs._replace(mask_SBL=part_numbers(rows, inputs.mask_SBL.shape))


class WordUnits(SpelledUnits):
    """Units that are whole words, one position each, between the special tokens of a template.

    A unit is a word's row of the table, or -1 - n for spelling n.
    """

    _splitter: Splitter

    @abc.abstractmethod
    def read(self, words: Sequence[str]) -> list[int | str]:
        """Returns for each word its row of the table, or the text to spell."""

    @property
    @abc.abstractmethod
    def mask(self) -> tuple[str, int]:
        """The mask token as text, and its unit; ValueError when there is none."""

    @property
    def around_shown(self) -> tuple[list[str], list[str]]:
        """How the units of `around` are shown to users."""
        before, after = self.around
        return ["[CLS]"] * len(before), ["[SEP]"] * len(after)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the words of texts."""
        return texts_in_words(texts, self._splitter, self.codes)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the words as they are: one unit each."""
        return given_words(sentences, self.codes)

    def codes(self, words: Sequence[str]) -> np.ndarray:
        """Returns the units of words, int32 [W]."""
        return self.spellings.codes(self.read(words))


def _spelled(codes: np.ndarray) -> np.ndarray:
    """Returns the distinct codes of spellings in ascending order."""
    return np.unique(codes[codes < 0])


def _tables(chars_UC: np.ndarray, shape: SpelledShape) -> tuple[tuple[np.ndarray, ...], np.ndarray] | None:
    """Returns the table of each bucket, and every spelling's row in the concatenated tables; None if they do not fit.

    A spelling moves to a bucket of longer spellings if its own is full; its vector does not depend on the padding.
    """
    bucket_U = bucket_of((chars_UC != 0).sum(axis=1), shape.slots)
    placed, left = in_rooms(bucket_U, shape.table)
    if len(left) or (bucket_U == len(shape.slots)).any():
        return None
    row_U, start = np.zeros(len(chars_UC), np.int32), 0
    for chosen, rows in zip(placed, shape.table, strict=True):
        row_U[chosen] = start + np.arange(len(chosen))
        start += rows
    tables = zip(placed, shape.table, shape.slots, strict=True)
    return tuple(word_table(chars_UC, chosen, rows, slots) for chosen, rows, slots in tables), row_U
