"""Makes the sequences and the batches that a GPT-2 learns from: subwords of running text behind the end of a text.

Open it to change what stands at the start of a sequence, or what a batch holds.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from charlm.core.types import Array
from charlm.families.spelled.sequences import PieceMaker
from charlm.text.subwords import SubwordTokenizer


class PieceSequence(NamedTuple):
    """A sequence of subwords.

    Attributes:
      pieces: their ids.
      chars: characters of the text that they are, spaces included.
      number: as in every sequence of a stream; nothing is drawn.
    """

    pieces: list[int]
    chars: int
    number: tuple[int, ...]


class PieceBatch(NamedTuple):
    """A batch; the axes before are those of accumulation and shards.

    Attributes:
      ids_BL: int32, the end of a text and the subwords behind it; 0 pads.
      mask_BL: bool, True at real positions.
      chars_B: int32, characters of each row's text.
    """

    ids_BL: Array
    mask_BL: Array
    chars_B: Array


@dataclasses.dataclass(frozen=True)
class PieceSequences(PieceMaker[int, PieceSequence]):
    """Makes sequences of subwords; see `PieceMaker`."""

    too_tight: ClassVar[str] = "data.max_length leaves no room for a single subword"
    tokenizer: SubwordTokenizer

    @property
    def room(self) -> int:
        """Most subwords of a sequence, without the token before them."""
        return self.length - 1

    def sequence(self, pieces: list[int], number: tuple[int, ...]) -> PieceSequence:
        """Returns the sequence of some subwords."""
        return PieceSequence(pieces, len(self.tokenizer.decode(pieces)), number)


class PieceShard:
    """The sequences of a shard; see `charlm.data.streams.Shard`.

    Args:
      sequences, length: B and L of the shard.
      start: the token before each sequence.
    """

    def __init__(self, sequences: int, length: int, start: int) -> None:
        self._sequences, self._length, self._start = sequences, length, start
        self._taken: list[PieceSequence] = []

    @property
    def full(self) -> bool:
        """True when the shard has all its sequences."""
        return len(self._taken) == self._sequences

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, sequence: PieceSequence) -> bool:
        """Takes the sequence, if there is room for one more."""
        if self.full:
            return False
        self._taken.append(sequence)
        return True

    def build(self) -> PieceBatch:
        """Returns the arrays of the shard, without the leading axis."""
        ids_BL = np.zeros((self._sequences, self._length), np.int32)
        mask_BL, chars_B = np.zeros(ids_BL.shape, bool), np.zeros(self._sequences, np.int32)
        for b, sequence in enumerate(self._taken):
            count = 1 + len(sequence.pieces)
            ids_BL[b, :count] = [self._start, *sequence.pieces]
            mask_BL[b, :count] = True
            chars_B[b] = sequence.chars
        return PieceBatch(ids_BL, mask_BL, chars_B)
