"""How a family of models reads text: as units (words of an HLM, pieces of a subword model) in rows of one length.

A task cuts, joins and labels units and never asks what they are; a new family joins by one subclass of `Units`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import flax.linen as nn
import jax
import numpy as np

from charlm.nn.apply import applied
from charlm.text.words import Splitter

Span = tuple[int, int]
Shape = TypeVar("Shape")  # of a packed batch
Inputs = TypeVar("Inputs")  # a packed batch, as the model reads it


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A text, or a sequence of words, in units.

    Attributes:
      content: what the family needs of the units, [U, ...].
      offsets: per unit its (start, end) characters of the text; of its word, for words.
      words: per unit the index of its word, for words that were given; None for a text.
    """

    content: np.ndarray
    offsets: tuple[Span, ...]
    words: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.content)

    @property
    def given_words(self) -> tuple[int, ...]:
        """`words` of words that were given; ValueError for a text, which has none."""
        if self.words is None:
            raise ValueError("a text has no words that were given; see Units.encode_words")
        return self.words

    def part(self, start: int, end: int) -> Encoded:
        """Returns the units from `start` up to `end`."""
        words = None if self.words is None else self.words[start:end]
        return Encoded(self.content[start:end], self.offsets[start:end], words)


class Joined(NamedTuple):
    """One row as the family reads it.

    Attributes:
      content: of all its positions, special ones included.
      length: its positions. first, second: position of the first unit of each text. whole: the position that stands for
        the whole row.
    """

    content: Any
    length: int
    first: int
    second: int
    whole: int


class Lost(NamedTuple):
    """What a model cannot read of some words.

    Attributes:
      unknown: share of units (of an HLM: characters) that the vocabulary lacks. cut: share of words that lose
        characters; 0 where none can be too long.
    """

    unknown: float
    cut: float


def words_at(words: Sequence[int | None], places: Sequence[int]) -> tuple[int, ...]:
    """Returns the word of each of some places; ValueError when one is of none, as only special ones are."""
    found = [words[place] for place in places]
    whole = tuple(word for word in found if word is not None)
    if len(whole) < len(found):
        raise ValueError(f"expected every place to be of a word, got {found}")
    return whole


class Units(abc.ABC, Generic[Shape, Inputs]):
    """The text side of a family: how it shapes a batch, and what its models read.

    Attributes:
      longest: positions of the longest row, special ones included.
      labelled: which unit of a word carries its label: the first, or where a model reads left to right the last.
      draws: whether what is read in training is drawn anew in every epoch.
    """

    longest: int
    labelled: Literal["first", "last"] = "first"
    draws: bool = False

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the units of texts."""

    @abc.abstractmethod
    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the units of words that are split already; every word has at least one."""

    @abc.abstractmethod
    def specials(self, pair: bool) -> int:
        """Returns how many special positions a row of one text, or of two, has."""

    @abc.abstractmethod
    def join(self, first: Encoded, second: Encoded | None = None) -> Joined:
        """Returns a row of one text or two with the family's special positions."""

    @abc.abstractmethod
    def measure(self, groups: Sequence[Sequence[Joined]], rows: int, length: int, slack: float = 0.0) -> Shape:
        """Returns a shape that holds each of the groups as `rows` rows of `length` positions.

        Args:
          slack: share of room beyond what the groups need, for other groups like them.
        """

    @abc.abstractmethod
    def widest(self, rows: int, length: int) -> Shape:
        """Returns a shape that holds any `rows` rows of `length` positions."""

    @abc.abstractmethod
    def pack(self, rows: Sequence[Joined], shape: Shape) -> Inputs | None:
        """Returns the rows as the model's input, arrays without leading axes; None when they do not fit the shape."""

    def apply(self, model: nn.Module, params: Any, inputs: Inputs, dropout: jax.Array | None = None) -> jax.Array:
        """Returns the logits [N, ...] of packed rows with a leading axis of shards, N = S * rows.

        Args:
          dropout: its randomness; None: no dropout.
        """
        rngs = None if dropout is None else {"dropout": dropout}
        return applied(model, {"params": params}, rngs)(inputs, deterministic=dropout is None)

    @abc.abstractmethod
    def states(self, config: Any, params: Any, inputs: Inputs) -> jax.Array:
        """Returns the last states [N, L, D] of packed rows, before any head.

        Args:
          config: of the model. params: all of a model with a head.
        """

    @abc.abstractmethod
    def lost(self, sentences: Sequence[Sequence[str]], encoded: Sequence[Encoded]) -> Lost:
        """Returns what the model cannot read of sentences of words.

        Args:
          sentences: at least one word in all. encoded: what `encode_words` made of them.
        """

    @abc.abstractmethod
    def forward_flops(self, config: Any, inputs: Inputs) -> float:
        """Returns the useful operations of the encoder, forward, on packed rows; see `charlm.core.flops`.

        Args:
          config: of the model. inputs: on the host, with any leading axes.
        """

    def training(self, seed: int, epoch: int) -> Self:
        """Returns the units that read the examples to learn from in an epoch; `pack` of either takes rows of both."""
        return self

    def room(self, pair: bool) -> int:
        """Returns how many units a row holds beside its special positions."""
        return self.longest - self.specials(pair)


def texts_in_words(
    texts: Sequence[str], splitter: Splitter, content: Callable[[Sequence[str]], np.ndarray]
) -> list[Encoded]:
    """Returns the words of texts, a unit each; `content`: what the family needs of some words."""
    spans = [tuple(splitter.spans(text)) for text in texts]
    return [Encoded(content([t[a:b] for a, b in s]), s) for t, s in zip(texts, spans, strict=True)]


def given_words(sentences: Sequence[Sequence[str]], content: Callable[[Sequence[str]], np.ndarray]) -> list[Encoded]:
    """Returns words that are split already, a unit each; `content`: what the family needs of some words."""
    return [
        Encoded(content(words), tuple((0, len(word)) for word in words), tuple(range(len(words))))
        for words in sentences
    ]


def check_ids(where: object, what: str, size: int, rows: int) -> None:
    """Raises ValueError when a vocabulary has ids that a model has no rows for.

    Args:
      where: the model is. what: "the tokenizer has". size: of the vocabulary. rows: of the model's table.
    """
    if size > rows:
        raise ValueError(
            f"{where}: {what} ids up to {size - 1}, the model rows for {rows}: they do not belong together"
        )


def checked_longest(longest: int, most: int, least: int) -> int:
    """Returns `longest`, or `most` where it is 0; ValueError when the model has fewer, or nothing fits."""
    if longest > most:
        raise ValueError(f"data.max_length={longest}: the model has {most} positions")
    if longest and longest < least:
        raise ValueError(f"data.max_length={longest} leaves no room beside the special positions; at least {least}")
    return longest or most
