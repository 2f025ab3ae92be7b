"""The interface for reading text in fine-tuning: text becomes units (words of an HLM, pieces of a subword model).

Tasks cut, join and label units without knowing what they are, so every task works with every family. Open it to
implement a subclass of `Units` for a new family.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import flax.linen as nn
import jax
import numpy as np

from charlm.core.types import ModelConfig, Params
from charlm.data.batching import spilled
from charlm.nn.apply import applied
from charlm.text.words import Span, Splitter

Shape = TypeVar("Shape")  # of a packed batch
Inputs = TypeVar("Inputs")  # a packed batch, as the model reads it


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A text, or a sequence of words, as units.

    Attributes:
      content: the family's data of the units, [U, ...].
      offsets: for each unit its characters (start, end) in the text, or in its word if words were given.
      words: for each unit the index of its word, if words were given; None for a text.
    """

    content: np.ndarray
    offsets: tuple[Span, ...]
    words: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.content)

    @property
    def given_words(self) -> tuple[int, ...]:
        """The value of `words` for a sequence of words; ValueError for a text, which has none."""
        if self.words is None:
            raise ValueError("a text has no words that were given; see Units.encode_words")
        return self.words

    def part(self, start: int, end: int) -> Encoded:
        """Returns the units from `start` up to `end`."""
        words = None if self.words is None else self.words[start:end]
        return Encoded(self.content[start:end], self.offsets[start:end], words)


class Joined(NamedTuple):
    """One row of a batch: one or two texts with special positions.

    Attributes:
      content: the family's data of all positions, special ones included.
      length: number of positions.
      first, second: position of the first unit of each text.
      whole: the position whose state represents the whole row.
      parts: the lengths of the rows that this one was laid together from (`Units.end_to_end`); () if it is one alone.
    """

    content: Any  # each family packs what it has put there
    length: int
    first: int
    second: int
    whole: int
    parts: tuple[int, ...] = ()


class Lost(NamedTuple):
    """The share of words that a model cannot read fully.

    Attributes:
      unknown: share of units (for an HLM: characters) that the vocabulary lacks.
      cut: share of words that lose characters because they are too long; 0 for models without a limit.
    """

    unknown: float
    cut: float


def words_at(words: Sequence[int | None], places: Sequence[int]) -> tuple[int, ...]:
    """Returns the word at each place; ValueError if a place has no word, which only special positions lack."""
    found = [words[place] for place in places]
    whole = tuple(word for word in found if word is not None)
    if len(whole) < len(found):
        raise ValueError(f"expected every place to be of a word, got {found}")
    return whole


class Packing(Generic[Inputs]):
    """Rows for one batch, taken one after another as long as they fit; see `Units.packing`.

    Args:
      pack: `Units.pack` with the shape of the batch.
    """

    def __init__(self, pack: Callable[[Sequence[Joined]], Inputs | None]) -> None:
        self._pack = pack
        self._rows: list[Joined] = []

    def __len__(self) -> int:
        return len(self._rows)

    def fits(self, row: Joined) -> bool:
        """Returns whether the batch has room for one more row; here, by packing all of them."""
        return self._pack([*self._rows, row]) is not None

    def add(self, row: Joined) -> None:
        """Takes a row that fits."""
        self._rows.append(row)

    def build(self) -> Inputs:
        """Returns the rows as the model's input."""
        found = self._pack(self._rows)
        assert found is not None, "only rows that fit are taken"
        return found


class RoomyPacking(Packing[Inputs]):
    """Rows whose batch has no tables: any of them fits."""

    def fits(self, row: Joined) -> bool:
        """Returns True."""
        return True


class TablePacking(Packing[Inputs]):
    """Rows whose distinct words lie in tables, by length buckets; a word may lie in a bucket of longer words.

    Args:
      pack: as in `Packing`.
      words: returns the words of a row, and the bucket of each.
      rooms: how many distinct words each bucket holds.
    """

    def __init__(
        self,
        pack: Callable[[Sequence[Joined]], Inputs | None],
        words: Callable[[Joined], Mapping[Hashable, int]],
        rooms: tuple[int, ...],
    ) -> None:
        super().__init__(pack)
        self._words, self._rooms = words, rooms
        self._known: set[Hashable] = set()
        self._counts = np.zeros(len(rooms) + 1, np.int64)  # the last counts words that are too long for every bucket

    def fits(self, row: Joined) -> bool:
        """Returns whether the tables have room for the words that are new."""
        counts = self._with(row)
        return not counts[-1] and not spilled(counts[:-1], self._rooms)

    def add(self, row: Joined) -> None:
        """Takes a row that fits."""
        super().add(row)
        self._counts = self._with(row)
        self._known.update(self._words(row))

    def _with(self, row: Joined) -> np.ndarray:
        new = [bucket for word, bucket in self._words(row).items() if word not in self._known]
        return self._counts + np.bincount(new, minlength=len(self._counts)).astype(np.int64)


class Units(abc.ABC, Generic[Shape, Inputs]):
    """The text side of a family: turns text into units, packs rows of units into batches, and runs the model on them.

    Attributes:
      longest: positions of the longest row, special ones included.
      labelled: which unit of a word carries its label: the first; the last for models that read left to right.
      draws: whether the reading of a text in training is random and drawn anew in every epoch.
      pools_specials: whether the mean over a text, its vector, has the special positions in it, too.
      shares_rows: whether the model can tell rows apart that are laid end to end in one (`charlm.nn.masks`).
    """

    longest: int
    labelled: Literal["first", "last"] = "first"
    draws: bool = False
    pools_specials: bool = True
    shares_rows: bool = False

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the units of texts."""

    @abc.abstractmethod
    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the units of sentences that are split into words already; every word has at least one unit."""

    @abc.abstractmethod
    def specials(self, pair: bool) -> int:
        """Returns the number of special positions in a row of two texts (`pair`) or of one."""

    @abc.abstractmethod
    def join(self, first: Encoded, second: Encoded | None = None) -> Joined:
        """Returns a row of one or two texts with the family's special positions added."""

    def end_to_end(self, rows: Sequence[Joined]) -> Joined:
        """Returns one row with the given rows in it, one after another; `numbered` has the model tell them apart."""
        content = jax.tree.map(lambda *parts: np.concatenate(parts), *(row.content for row in rows))
        parts = tuple(row.length for row in rows)
        return rows[0]._replace(content=content, length=sum(parts), parts=parts)

    def numbered(self, inputs: Inputs, rows: Sequence[Joined]) -> Inputs:
        """Returns packed rows with a mask that numbers what each was laid together from; only with `shares_rows`.

        Args:
          inputs: what `pack` made of `rows`.
        """
        raise NotImplementedError(f"{type(self).__name__} has shares_rows, but no mask that numbers rows")

    @abc.abstractmethod
    def measure(
        self, groups: Sequence[Sequence[Joined]], rows: int, length: int, slack: float = 0.0, least: int = 0
    ) -> Shape:
        """Returns a shape that fits each of the groups, as `rows` rows of `length` positions.

        Args:
          slack: share of extra room beyond what the groups need, for other similar groups.
          least: words of every length that it has room for, also of lengths that the groups do not have.
        """

    @abc.abstractmethod
    def widest(self, rows: int, length: int) -> Shape:
        """Returns a shape that fits any `rows` rows of `length` positions."""

    @abc.abstractmethod
    def pack(self, rows: Sequence[Joined], shape: Shape) -> Inputs | None:
        """Returns the rows as the model's input, arrays without leading axes; None if they do not fit the shape."""

    def packing(self, shape: Shape) -> Packing[Inputs]:
        """Returns what takes the rows of a batch one after another, as long as they fit the shape."""
        return Packing(lambda rows: self.pack(rows, shape))

    def fresh(self) -> Self:
        """Returns units that read text as these do and have kept nothing of it; rows of one mean nothing to the other.

        Units may keep the words that they have met. Here, nothing is kept.
        """
        return self

    def apply(self, model: nn.Module, params: Params, inputs: Inputs, dropout: jax.Array | None = None) -> jax.Array:
        """Returns the logits [N, ...] of packed rows with a leading axis of shards, N = S * rows.

        Args:
          dropout: random key of dropout; None: no dropout.
        """
        rngs = None if dropout is None else {"dropout": dropout}
        return applied(model, {"params": params}, rngs)(inputs, deterministic=dropout is None)

    @abc.abstractmethod
    def states(self, config: ModelConfig, params: Params, inputs: Inputs) -> jax.Array:
        """Returns the last states [N, L, D] of packed rows, before any head.

        Args:
          config: the model's config.
          params: all parameters of a model with a head.
        """

    @abc.abstractmethod
    def lost(self, sentences: Sequence[Sequence[str]], encoded: Sequence[Encoded]) -> Lost:
        """Returns how much of sentences of words the model cannot read.

        Args:
          sentences: sentences with at least one word in total.
          encoded: the result of `encode_words` for them.
        """

    @abc.abstractmethod
    def forward_flops(self, config: ModelConfig, inputs: Inputs) -> float:
        """Returns the useful operations of the encoder's forward pass on packed rows; see `charlm.core.flops`.

        Args:
          config: the model's config.
          inputs: packed rows on the host, with any leading axes.
        """

    def training(self, seed: int, epoch: int) -> Self:
        """Returns the units for reading training examples in an epoch; these and `self` can pack each other's rows."""
        return self

    def room(self, pair: bool) -> int:
        """Returns the number of units that fit into a row beside its special positions."""
        return self.longest - self.specials(pair)


def part_numbers(rows: Sequence[Joined], shape: tuple[int, ...]) -> np.ndarray:
    """Returns the mask int32 `shape` [B, L] that numbers the parts of each row from 1, and 0 at padding."""
    mask_BL = np.zeros(shape, np.int32)
    for b, row in enumerate(rows):
        parts = row.parts or (row.length,)
        mask_BL[b, : row.length] = np.repeat(np.arange(1, len(parts) + 1), parts)
    return mask_BL


def texts_in_words(
    texts: Sequence[str], splitter: Splitter, content: Callable[[Sequence[str]], np.ndarray]
) -> list[Encoded]:
    """Returns the words of texts, one unit each; `content` computes what the family stores for some words."""
    spans = [tuple(splitter.spans(text)) for text in texts]
    return [Encoded(content([t[a:b] for a, b in s]), s) for t, s in zip(texts, spans, strict=True)]


def given_words(sentences: Sequence[Sequence[str]], content: Callable[[Sequence[str]], np.ndarray]) -> list[Encoded]:
    """Returns words that are already split, one unit each; `content` computes what the family stores for some words."""
    return [
        Encoded(content(words), tuple((0, len(word)) for word in words), tuple(range(len(words))))
        for words in sentences
    ]


def check_ids(where: object, what: str, size: int, rows: int) -> None:
    """Raises ValueError when a vocabulary has ids that a model has no rows for.

    Args:
      where: where the model is, for the message.
      what: the subject and verb of the message, such as "the tokenizer has".
      size: the number of ids of the vocabulary.
      rows: the number of rows of the model's table.
    """
    if size > rows:
        raise ValueError(
            f"{where}: {what} ids up to {size - 1}, the model rows for {rows}: they do not belong together"
        )


def checked_longest(longest: int, most: int, least: int) -> int:
    """Returns `longest`, or `most` if it is 0; ValueError if it is larger than `most` or smaller than `least`."""
    if longest > most:
        raise ValueError(f"data.max_length={longest}: the model has {most} positions")
    if longest and longest < least:
        raise ValueError(f"data.max_length={longest} leaves no room beside the special positions; at least {least}")
    return longest or most
