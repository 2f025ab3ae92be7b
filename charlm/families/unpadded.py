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

SHARED_ROWS = (128, 192, 96, 64, 48, 32, 24)  # positions of the rows that short texts may share, the usual one first
BETTER = 0.95  # of the cost with rows of the usual length: what rows of another may cost, which is compiled, too
ATTENDED = 1500  # keys that cost a position as much as all the rest of a layer (HLM-Base and BERT-base on a CPU)
MANY = 1024  # positions of all texts, from which rows of another length are worth the programs that they need
AT_A_TIME = 4096  # texts that are laid together, so that the first call need not wait for the layout of many
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

        It numbers the texts of each row (`charlm.nn.masks`).
        """
        mask_BL, texts = np.zeros((self.rows, self.length), np.int32), [0] * self.rows
        for n, (row, start) in sorted(self.at.items(), key=lambda item: item[1]):
            texts[row] += 1
            mask_BL[row, start : start + lengths[n]] = texts[row]
        return mask_BL

    def filled(self, texts: Mapping[int, np.ndarray] | Sequence[np.ndarray], empty: np.ndarray) -> np.ndarray:
        """Returns [B, L, ...] with the texts [length, ...] in their places, and `empty` [...] at padding."""
        whole = np.broadcast_to(empty, (self.rows, self.length, *empty.shape)).copy()
        for n, (row, start) in self.at.items():
            whole[row, start : start + len(texts[n])] = texts[n]
        return whole


def calls(
    lengths: Sequence[int], width: Callable[[int], int], most_rows: Callable[[int], int], *, shares: bool = True
) -> Iterator[Call]:
    """Yields calls that together read every text once, those of the longest rows first.

    Args:
      lengths: number of positions of each text, at least 1.
      width: returns the length of a row with room for a number of positions; it has few values. It may be less than
        what it is asked for where that is more than the longest text.
      most_rows: returns the most rows of a call, by their length.
      shares: whether several texts may share a row.
    """
    order = sorted(range(len(lengths)), key=lambda n: -lengths[n])
    for begin in range(0, len(order), AT_A_TIME):
        for length, rows in _laid(lengths, order[begin : begin + AT_A_TIME], width, most_rows, shares).items():
            first = 0
            for size in _sizes(len(rows), most_rows(length), length):
                at = {}
                for row, texts in enumerate(rows[first : first + size]):
                    starts = np.cumsum([0, *(lengths[n] for n in texts)]).tolist()
                    at |= {n: (row, start) for n, start in zip(texts, starts, strict=False)}
                yield Call(size, length, at)
                first += size


Rows = dict[int, list[list[int]]]  # by their length, the indices of the texts of each row


def _laid(
    lengths: Sequence[int],
    order: Sequence[int],
    width: Callable[[int], int],
    most_rows: Callable[[int], int],
    shares: bool,
) -> Rows:
    """Returns the rows that cost least for the texts `order`, the longest first."""
    if not shares or len(order) < 2:
        alone: Rows = {}
        for n in order:
            alone.setdefault(width(lengths[n]), []).append([n])
        return alone

    def cost(rows: Rows) -> float:
        of_length = lambda length: _sizes(len(rows[length]), most_rows(length), length)
        return sum(
            CALL_POSITIONS + size * length * (1 + length / ATTENDED) for length in rows for size in of_length(length)
        )

    total = sum(lengths[n] for n in order)
    shared = SHARED_ROWS if total >= MANY else SHARED_ROWS[:1]
    leasts = dict.fromkeys(width(min(total, n)) for n in shared)
    usual, *others = (best_fit(lengths, order, width, least) for least in leasts)
    best = min(others, key=cost, default=usual)
    return best if cost(best) < BETTER * cost(usual) else usual


def best_fit(lengths: Sequence[int], order: Sequence[int], width: Callable[[int], int], least: int) -> Rows:
    """Returns rows of texts, by their length; none is shorter than `least`.

    A text goes where it leaves least room free. If it fits nowhere, it opens a row.

    Args:
      lengths: number of positions of each text.
      order: the indices of the texts, the longest first.
      width: returns the length of a row with room for a number of positions.
    """
    found: Rows = {}
    free: list[tuple[int, int]] = []  # room and number of each row that has some, ascending
    numbered: list[list[int]] = []
    for n in order:
        place = bisect.bisect_left(free, (lengths[n], -1))
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
