"""Lays texts end to end in rows of a few lengths, so that a model computes hardly any padding.

Predictors use it to read many texts. Nearly all work of an encoder is done position by position, and costs the same
wherever a text stands in a row; attention knows which positions belong together (`charlm.nn.masks`). Open it to change
how long rows are, or how many of them a call gets.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

SHARED_ROW = 128  # positions of the rows that short texts share: attention over more costs more than fuller rows save
CALL_POSITIONS = 48  # positions that take as long as one more call


class Call(NamedTuple):
    """The rows that are read in one call.

    Attributes:
      rows: number B of rows.
      length: number L of positions of each row.
      at: for the index of each text, its row and its first position there.
    """

    rows: int
    length: int
    at: dict[int, tuple[int, int]]

    def mask(self, lengths: Sequence[int]) -> np.ndarray:
        """Returns the mask [B, L] of the rows, given the lengths of all texts.

        It is bool where every row has one text. Otherwise it numbers the texts of each row (`charlm.nn.masks`).
        """
        mask_BL, texts = np.zeros((self.rows, self.length), np.int32), [0] * self.rows
        for n, (row, start) in sorted(self.at.items(), key=lambda item: item[1]):
            texts[row] += 1
            mask_BL[row, start : start + lengths[n]] = texts[row]
        return mask_BL if max(texts) > 1 else mask_BL != 0

    def filled(self, texts: Mapping[int, np.ndarray] | Sequence[np.ndarray], empty: np.ndarray) -> np.ndarray:
        """Returns [B, L, ...] with the texts [length, ...] in their places, and `empty` [...] at padding."""
        whole = np.broadcast_to(empty, (self.rows, self.length, *empty.shape)).copy()
        for n, (row, start) in self.at.items():
            whole[row, start : start + len(texts[n])] = texts[n]
        return whole


def calls(
    lengths: Sequence[int], width: Callable[[int], int], most_rows: Callable[[int], int], shared: int = SHARED_ROW
) -> Iterator[Call]:
    """Yields calls that together read every text once, those of the longest rows first.

    Args:
      lengths: number of positions of each text, at least 1.
      width: returns the length of a row with room for a number of positions; it has few values.
      most_rows: returns the most rows of a call, by their length.
      shared: positions of the rows that short texts share, if there are enough of them; 0: every text has its own row.
    """
    for length, rows in _rows(lengths, width, shared).items():
        first = 0
        for size in _sizes(len(rows), most_rows(length), length):
            at = {}
            for row, texts in enumerate(rows[first : first + size]):
                starts = np.cumsum([0, *(lengths[n] for n in texts)]).tolist()
                at |= {n: (row, start) for n, start in zip(texts, starts, strict=False)}
            yield Call(size, length, at)
            first += size


def _rows(lengths: Sequence[int], width: Callable[[int], int], shared: int) -> dict[int, list[list[int]]]:
    """Returns the rows by their length, each as the indices of its texts.

    A text goes where it leaves least room free. If it fits nowhere, it gets a row of the length that it needs, or a
    shared one.
    """
    found: dict[int, list[list[int]]] = {}
    if not lengths:
        return found
    least = width(min(sum(lengths), shared)) if shared else 0
    free: list[tuple[int, int]] = []  # room and number of each row that has some, ascending
    numbered: list[list[int]] = []
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        place = bisect.bisect_left(free, (lengths[n], -1)) if shared else len(free)
        if place < len(free):
            room, row = free.pop(place)
        else:
            room, row = max(width(lengths[n]), least), len(numbered)
            numbered.append([])
            found.setdefault(room, []).append(numbered[row])
        numbered[row].append(n)
        if room > lengths[n]:
            bisect.insort(free, (room - lengths[n], row))
    return found


def _sizes(rows: int, most: int, length: int) -> Iterator[int]:
    """Yields the numbers of rows of calls: `most`, and powers of two, so that few programs are compiled."""
    while rows > 0:
        more = min(1 << (rows - 1).bit_length(), most)
        # Full calls, or one call with some empty rows where these cost less than the further calls that they save.
        if more <= rows or (more - rows) * length <= CALL_POSITIONS * (rows.bit_count() - 1):
            yield more
            rows -= more
        else:
            yield 1 << (rows.bit_length() - 1)
            rows -= 1 << (rows.bit_length() - 1)
