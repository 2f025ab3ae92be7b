"""Records of text -> sequences of subwords, or of whole words; families say what becomes of each sequence.

A sequence takes words, cut into pieces, until the next one does not fit: none is lost, and no word is cut unless it
is longer than a sequence. What is hidden depends on the seed and the number of the sequence alone.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

from charlm.data.text_records import TextRecord


class Numbered(Protocol):
    """A sequence as a stream keeps it: its pieces without special ones, and what its draws were made from."""

    @property
    def pieces(self) -> list[Any]:
        """Its pieces, JSON-able: ids of subwords, or words as they are written."""
        ...

    @property
    def number(self) -> tuple[int, ...]:
        """What its draws were made from."""
        ...


class Cutter(Protocol):
    """What cuts words into pieces: `charlm.text.subwords.word_pieces.WordPieces`, or what leaves them whole."""

    def of(self, words: Sequence[str], spaces: Sequence[bool]) -> Sequence[tuple[Any, ...]]:
        """Returns the pieces of each word, at least one; `spaces`: whether a space comes before it."""
        ...


@dataclasses.dataclass(frozen=True)
class PieceMaker(abc.ABC):
    """Makes sequences of the pieces of words; see `charlm.data.streams.SequenceMaker`.

    Attributes:
      words: cuts them. length: pieces of a sequence at most, special ones included. seed: of all that is drawn.
      too_tight: what is said when not even one piece fits into a shard.
    """

    words: Cutter
    length: int
    seed: int
    too_tight: ClassVar[str] = "data.bucket_rows leave no room for a single word or subword"

    @abc.abstractmethod
    def sequence(self, pieces: list[Any], number: tuple[int, ...], /) -> Any:
        """Returns a sequence (`Numbered`) of some pieces, whose draws depend on its number."""

    @property
    def room(self) -> int:
        """Most pieces of a sequence, without special ones at both ends."""
        return self.length - 2

    def parts(self, record: TextRecord, number: int) -> Iterator[tuple[Any, ...]]:
        """Yields the pieces of each word."""
        for pieces in self.words.of(record.texts(), record.spaces.tolist()):
            yield from (pieces[i : i + self.room] for i in range(0, len(pieces), self.room))

    def filled(self, used: int | None, part: tuple[Any, ...]) -> int | None:
        """Returns the number of pieces; see `SequenceMaker.filled`."""
        used = (used or 0) + len(part)
        return used if used <= self.room else None

    def make(self, parts: list[tuple[Any, ...]], number: tuple[int, ...]) -> Any:
        """Returns the sequence of some words."""
        return self.sequence(list(itertools.chain.from_iterable(parts)), number)

    def halves(self, sequence: Numbered) -> tuple[Any, Any]:
        """Returns two sequences, whose draws are their own; ValueError when there is but one piece."""
        pieces, number = sequence.pieces, sequence.number
        if len(pieces) < 2:
            raise ValueError(self.too_tight)
        middle = len(pieces) // 2
        # SeedSequence takes (a,) and (a, 0) for the same: the halves are 1 and 2.
        return self.sequence(pieces[:middle], (*number, 1)), self.sequence(pieces[middle:], (*number, 2))

    def held(self, parts: Iterable[tuple[Any, ...]], returned: Iterable[Numbered]) -> dict[str, Any]:
        """Returns the pieces of words and of sequences."""
        return {"words": [list(word) for word in parts], "returned": [[list(s.number), s.pieces] for s in returned]}

    def restored(self, state: dict[str, Any]) -> tuple[Iterable[tuple[Any, ...]], Iterable[Any]]:
        """Returns what `held` was given; draws are made anew from their numbers."""
        returned = (self.sequence(pieces, tuple(number)) for number, pieces in state["returned"])
        return map(tuple, state["words"]), returned
