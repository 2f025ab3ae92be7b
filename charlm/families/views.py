"""What `charlm.show` draws of a model that has read a text: who reads how much from whom, in every layer and head.

Predictors return it (`charlm.families.predictor.Predictor.views`). Open it to add what a family has to show. The module
needs no JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_SHOWN = 64  # words or pieces of a text that are read and shown, unless a user asks for more
SPACE = "␣"  # how white space is shown that is a piece or character of its own


@dataclasses.dataclass(frozen=True, eq=False)  # arrays have no single equality
class AttentionMap:
    """The attention over one sequence.

    Attributes:
      readers: what reads, as shown, Q of them.
      columns: what is read, N of them.
      weights_LHQN: float32, of each layer and head: the share of what a reader reads that comes from a column. Each row
        adds up to 1.
      title: the word whose characters these are; "": the columns are a text.
    """

    readers: tuple[str, ...]
    columns: tuple[str, ...]
    weights_LHQN: np.ndarray
    title: str = ""

    def __post_init__(self) -> None:
        expected = (len(self.readers), len(self.columns))
        if self.weights_LHQN.ndim != 4 or self.weights_LHQN.shape[2:] != expected:
            raise ValueError(f"weights are {self.weights_LHQN.shape}, expected [layers, heads, {expected}]")

    def chosen(self, layer: int | None = None, head: int | None = None) -> np.ndarray:
        """Returns the weights [Q, N] of one layer and head, counted from 0; None: the mean over all of them.

        Raises:
          ValueError: there is no such layer or head.
        """
        weights = self.weights_LHQN
        for axis, (name, number) in enumerate((("layer", layer), ("head", head))):
            count = weights.shape[axis]
            if number is not None and not 0 <= number < count:
                raise ValueError(f"{name}={number}: expected 0 to {count - 1}")
            weights = weights[(slice(None),) * axis + (slice(number, None if number is None else number + 1),)]
        return weights.mean(axis=(0, 1))


class AttentionView(NamedTuple):
    """The attention of one part of a model.

    Attributes:
      title: its name for users, such as "Between words".
      about: what a reader and a column is, in a sentence or two.
      maps: the attention over one sequence, or over the characters of each word, in the order of the text. They have as
        many layers and heads as each other.
    """

    title: str
    about: str
    maps: tuple[AttentionMap, ...]

    @property
    def inside(self) -> bool:
        """Whether the maps are of characters of words."""
        return any(one.title for one in self.maps)


class Views(NamedTuple):
    """What a model that has read a text can show.

    Attributes:
      views: the views, from characters to words.
      text: the part of the text that was read.
      unit: what `read` and `left` count, "words" or "pieces".
      read, left: how many were read, and how many follow that were not.
    """

    views: tuple[AttentionView, ...]
    text: str
    unit: str
    read: int
    left: int


def layers_of(stack: Sequence[np.ndarray], row: int, queries: slice, keys: slice) -> np.ndarray:
    """Returns the probabilities [L, H, Q, N] of one row of a batch.

    Args:
      stack: [B, H, Q, N] of each layer; layers may have computed different numbers of queries.
      queries, keys: the ranges of both to keep.
    """
    return np.stack([np.asarray(layer[row, :, queries, keys], np.float32) for layer in stack])


def checked_most(text: str, most: int) -> None:
    """Raises ValueError for what is no text, and unless at least one word of it is to be shown."""
    if not isinstance(text, str):
        raise ValueError(f"show takes one text, got {type(text).__name__}")
    if most < 1:
        raise ValueError(f"most={most}: expected at least 1 word to show")


def refuse_empty(count: int) -> None:
    """Raises ValueError if a text has no words."""
    if not count:
        raise ValueError("the text has no words: there is nothing to show")
