"""Chooses the held-out places that a log shows as examples, and writes the text around each of them.

The families' `show_examples` use it. Open it to change how many guesses and how much context a log shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BEST = 5  # guesses shown
CONTEXT = 8  # positions shown on either side


def spread(places: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` of the places [N], at equal distances from the first to the last; all if there are fewer."""
    return places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]


def in_context(place: int, end: int, read: Callable[[int], str], shown: str, context: int = CONTEXT) -> str:
    """Returns the text around a place.

    Args:
      place: the position of the example.
      end: the number of positions of the text.
      read: returns the text at a position.
      shown: what stands at the place itself.
      context: positions on either side.
    """
    around = range(max(0, place - context), min(end, place + 1 + context))
    return " ".join(shown if i == place else read(i) for i in around)
