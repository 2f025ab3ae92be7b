"""Contexts of question answering in units: cuts them into windows, and finds the units of answers.

`charlm.tasks.question_answering` uses it; open it when an answer is marked at the wrong units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.data.examples import QuestionExample
from charlm.text.words import Span


class ContextPlaces(NamedTuple):
    """The part of a context that a row holds: U units.

    Attributes:
      offsets: the characters of the context that each unit covers, [U, 2].
      first: the position of the first of these units in the row.
      most: bool [U], whether a unit has more context in this row than in any other row.
      whole: the position in the row that stands for "no answer".
    """

    offsets: np.ndarray
    first: int
    most: np.ndarray
    whole: int


def trimmed_offsets(context: str, offsets: Sequence[Span]) -> np.ndarray:
    """Returns offsets [U, 2] without leading whitespace, with which pieces of GPT-2 begin."""
    found = np.array(offsets, np.int64).reshape(-1, 2)
    for u, (start, end) in enumerate(offsets):
        while start < end and context[start].isspace():
            start += 1
        found[u, 0] = start
    return found


def answer_units(example: QuestionExample, offsets_U2: np.ndarray) -> tuple[tuple[int, int] | None, bool]:
    """Returns the first and last unit of the first answer, and whether the answer begins or ends inside a unit.

    Without an answer in the context the result is (None, False).
    """
    answer = next((a for a in example.answers if a.start >= 0 and a.text), None)
    if example.impossible or answer is None or not len(offsets_U2):
        return None, False
    start, end = answer.start, answer.start + len(answer.text)
    first = int(np.searchsorted(offsets_U2[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets_U2[:, 0], end, side="left")) - 1
    if first > last or first == len(offsets_U2):  # no unit covers the answer: it has only control characters
        return None, False
    return (first, last), bool(offsets_U2[first, 0] < start or offsets_U2[last, 1] > end)


def context_windows(units: int, room: int, stride: int) -> list[range]:
    """Returns windows over the units of a context, each of at most `room` units.

    Windows begin `stride` units apart, but neighbours share at least half of a window. So every unit has context on
    both sides in some window, and an answer of up to a quarter of a window is complete in some window.
    """
    found, start = [], 0
    stride = min(stride, max(1, room // 2))
    while True:
        found.append(range(start, min(units, start + room)))
        if start + room >= units:
            return found
        start += stride


def most_context(parts: Sequence[range], units: int) -> np.ndarray:
    """Returns for each unit [U] the number of the window in which the unit has the most context.

    The context of a unit is the smaller of the numbers of units to its left and to its right.
    """
    best, number = np.full(units, -np.inf), np.zeros(units, np.int64)
    for n, part in enumerate(parts):
        at = np.arange(part.start, part.stop)
        # As in the released code of BERT, a small bonus for the longer window breaks ties.
        context = np.minimum(at - part.start, part.stop - 1 - at) + 0.01 * len(part)
        better = context > best[at]
        best[at[better]], number[at[better]] = context[better], n
    return number
