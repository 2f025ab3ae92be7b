"""Makes sequences of subwords or whole words from records of text; families subclass `PieceMaker`.

Open it to write the sequences of a family that reads spellings. A sequence takes words, cut into pieces, until the next
word does not fit. No word is lost, and no word is divided between sequences unless it is longer than a sequence. The
hiding depends only on the seed and the sequence's number.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from charlm.core.types import JsonObject
from charlm.data.text_records import TextRecord

Piece = TypeVar("Piece", int, str)  # the id of a subword, or a word: a family has one or the other
Cut = TypeVar("Cut", int, str, covariant=True)  # the same for what only returns pieces


class Numbered(Protocol[Piece]):
    """A sequence as a stream keeps it: its pieces without special tokens, and the numbers that seeded its draws."""

    @property
    def pieces(self) -> list[Piece]:
        """The pieces as JSON values: ids of subwords, or the text of words."""
        ...

    @property
    def number(self) -> tuple[int, ...]:
        """The numbers that, with the seed, decide the sequence's draws."""
        ...


class Cutter(Protocol[Cut]):
    """Cuts words into pieces, as `charlm.text.subwords.word_pieces.WordPieces`, or leaves them whole."""

    def of(self, words: Sequence[str], spaces: Sequence[bool]) -> Sequence[tuple[Cut, ...]]:
        """Returns the pieces of each word, at least one; `spaces` says of each word whether a space precedes it."""
        ...


Made = TypeVar("Made", bound=Numbered[Any])  # a sequence; Any: Python has no bound by another type variable


@dataclasses.dataclass(frozen=True)
class PieceMaker(abc.ABC, Generic[Piece, Made]):
    """Makes sequences of the pieces of words; see `charlm.data.streams.SequenceMaker`.

    Attributes:
      words: cuts words into pieces.
      length: most pieces of a sequence, special tokens included.
      seed: seed of all draws.
      too_tight: the error message when a shard has no room for a single piece.
    """

    words: Cutter[Piece]
    length: int
    seed: int
    too_tight: ClassVar[str] = "data.bucket_rows leave no room for a single word or subword"

    @abc.abstractmethod
    def sequence(self, pieces: list[Piece], number: tuple[int, ...], /) -> Made:
        """Returns the sequence (`Numbered`) of pieces; its draws depend on its number."""

    @property
    def room(self) -> int:
        """Most pieces of a sequence, without the special tokens at both ends."""
        return self.length - 2

    def parts(self, record: TextRecord, number: int) -> Iterator[tuple[Piece, ...]]:
        """Yields the pieces of each word, in parts if the word is longer than a sequence."""
        for pieces in self.words.of(record.texts(), record.spaces.tolist()):
            yield from (pieces[i : i + self.room] for i in range(0, len(pieces), self.room))

    def filled(self, used: int | None, part: tuple[Piece, ...]) -> int | None:
        """Returns the number of pieces with `part` added, None if it does not fit; see `SequenceMaker.filled`."""
        used = (used or 0) + len(part)
        return used if used <= self.room else None

    def make(self, parts: list[tuple[Piece, ...]], number: tuple[int, ...]) -> Made:
        """Returns the sequence of some words."""
        return self.sequence(list(itertools.chain.from_iterable(parts)), number)

    def halves(self, sequence: Made) -> tuple[Made, Made]:
        """Returns the halves of a sequence, with draws of their own; ValueError if it has only one piece."""
        pieces, number = sequence.pieces, sequence.number
        if len(pieces) < 2:
            raise ValueError(self.too_tight)
        middle = len(pieces) // 2
        # SeedSequence does not distinguish (a,) from (a, 0), so the halves are numbered 1 and 2.
        return self.sequence(pieces[:middle], (*number, 1)), self.sequence(pieces[middle:], (*number, 2))

    def held(self, parts: Iterable[tuple[Piece, ...]], returned: Iterable[Made]) -> JsonObject:
        """Returns the state to save as JSON values: the pieces of words and of returned sequences."""
        return {"words": [list(word) for word in parts], "returned": [[list(s.number), s.pieces] for s in returned]}

    def restored(self, state: JsonObject) -> tuple[Iterable[tuple[Piece, ...]], Iterable[Made]]:
        """Returns the arguments of `held` from its result; draws are repeated from the sequences' numbers."""
        returned = (self.sequence(pieces, tuple(number)) for number, pieces in state["returned"])
        return map(tuple, state["words"]), returned
