"""Contexts of questions in units: windows, answers, and where each unit has the most context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.data.examples import QuestionExample
from charlm.families.units import Span


class ContextPlaces(NamedTuple):
    """What a row holds of a context.

    Attributes:
      offsets: characters of the context that each unit covers, [U, 2]. first: position of the first of them.
      most: bool [U], whether a unit has more context here than in any other row. whole: position of "no answer".
    """

    offsets: np.ndarray
    first: int
    most: np.ndarray
    whole: int


def trimmed_offsets(context: str, offsets: Sequence[Span]) -> np.ndarray:
    """Returns offsets [U, 2] without the space that GPT-2's pieces begin with."""
    found = np.array(offsets, np.int64).reshape(-1, 2)
    for u, (start, end) in enumerate(offsets):
        while start < end and context[start].isspace():
            start += 1
        found[u, 0] = start
    return found


def answer_units(example: QuestionExample, offsets_U2: np.ndarray) -> tuple[tuple[int, int] | None, bool]:
    """Returns the first and last unit of the first answer, and whether it begins or ends inside one."""
    answer = next((a for a in example.answers if a.start >= 0 and a.text), None)
    if example.impossible or answer is None or not len(offsets_U2):
        return None, False
    start, end = answer.start, answer.start + len(answer.text)
    first = int(np.searchsorted(offsets_U2[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets_U2[:, 0], end, side="left")) - 1
    if first > last or first == len(offsets_U2):  # nothing of it is in a unit: control characters alone
        return None, False
    return (first, last), bool(offsets_U2[first, 0] < start or offsets_U2[last, 1] > end)


def context_windows(units: int, room: int, stride: int) -> list[range]:
    """Returns windows over the units of a context, each of at most `room`, `stride` apart; at least half is shared.

    So every unit has context on either side somewhere, and an answer of up to a quarter of a window is whole in one.
    """
    found, start = [], 0
    stride = min(stride, max(1, room // 2))
    while True:
        found.append(range(start, min(units, start + room)))
        if start + room >= units:
            return found
        start += stride


def most_context(parts: Sequence[range], units: int) -> np.ndarray:
    """Returns for each unit [U] the number of the window where the smaller of its two sides is largest."""
    best, number = np.full(units, -np.inf), np.zeros(units, np.int64)
    for n, part in enumerate(parts):
        at = np.arange(part.start, part.stop)
        # A little for the longer window, as released, decides between equal ones.
        context = np.minimum(at - part.start, part.stop - 1 - at) + 0.01 * len(part)
        better = context > best[at]
        best[at[better]], number[at[better]] = context[better], n
    return number
