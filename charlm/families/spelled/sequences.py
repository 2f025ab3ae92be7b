"""Records of text -> sequences of subwords, or of whole words; families say what becomes of each sequence.

A sequence takes words, cut into pieces, until the next one does not fit: none is lost, and no word is cut unless it
is longer than a sequence. What is hidden depends on the seed and the number of the sequence alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

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


class Maker(Protocol):
    """What makes sequences of pieces, `room` of them at most besides special ones."""

    @property
    def words(self) -> Cutter:
        """Which pieces are of one word."""
        ...

    @property
    def room(self) -> int:
        """Most pieces of a sequence, without special ones."""
        ...

    def sequence(self, pieces: list[Any], number: tuple[int, ...], /) -> Any:
        """Returns a sequence (`Numbered`) of some pieces, whose draws depend on its number."""
        ...


def halves(maker: Maker, sequence: Numbered) -> tuple[Any, Any]:
    """Cuts a sequence that alone exceeds the budgets of a shard into two; their draws are their own."""
    pieces = sequence.pieces
    middle = len(pieces) // 2
    # SeedSequence takes (a,) and (a, 0) for the same: the halves are 1 and 2.
    number = sequence.number
    return maker.sequence(pieces[:middle], (*number, 1)), maker.sequence(pieces[middle:], (*number, 2))


class PieceStream:
    """Makes sequences of the words of records, in order.

    The sequences of a lane are numbered `lane`, `lane + lanes`, and so on. With `by_record` no sequence holds words of
    two records, and numbers are those of the records: the same sequences, however many lanes there are.
    """

    def __init__(
        self,
        records: Iterator[TextRecord],
        maker: Maker,
        lane: int = 0,
        lanes: int = 1,
        by_record: bool = False,
    ) -> None:
        self._records, self._maker = records, maker
        self._lane, self._lanes, self._by_record = lane, lanes, by_record
        self._room = maker.room
        self._words: deque[tuple[Any, ...]] = deque()  # pieces of each
        self._returned: deque[Any] = deque()
        self._made = 0  # sequences; with `by_record`, those of the record
        self._read_records = 0

    def next(self) -> Any | None:
        """Returns the next sequence, or None when the records are used up."""
        if self._returned:
            return self._returned.popleft()
        taken: list[Any] = []
        while self._words or (not (taken and self._by_record) and self._read()):
            if len(taken) + len(self._words[0]) > self._room:
                break
            taken.extend(self._words.popleft())
        if not taken:
            return None
        record = self._lane + self._lanes * (self._read_records - 1)
        number = (record, self._made) if self._by_record else (self._lane + self._lanes * self._made,)
        self._made += 1
        return self._maker.sequence(taken, number)

    def give_back(self, *sequences: Numbered) -> None:
        """Puts sequences in front of the stream, the first to come out first."""
        self._returned.extendleft(reversed(sequences))

    def _read(self) -> bool:
        """Reads the next record that has a word."""
        for record in self._records:
            self._read_records += 1
            self._made = 0 if self._by_record else self._made
            for pieces in self._maker.words.of(record.texts(), record.spaces.tolist()):
                self._words.extend(pieces[i : i + self._room] for i in range(0, len(pieces), self._room))
            if self._words:
                return True
        return False

    def get_state(self) -> dict[str, Any]:
        """Returns what the stream holds back, JSON-able."""
        returned = [[list(s.number), s.pieces] for s in self._returned]
        return {
            "made": self._made,
            "records": self._read_records,
            "words": [list(word) for word in self._words],
            "returned": returned,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._made, self._read_records = state["made"], state["records"]
        self._words = deque(map(tuple, state["words"]))
        self._returned = deque(self._maker.sequence(taken, tuple(number)) for number, taken in state["returned"])
