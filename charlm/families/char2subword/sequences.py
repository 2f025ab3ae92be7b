"""Makes the sequences of the contextual stage: every subword is spelled, and the characters of some are hidden.

Open it to change what such a sequence holds; which characters are hidden is decided in `masking`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from charlm.families.char2subword.masking import CharacterMasking, PieceRows, hide_characters
from charlm.families.spelled.sequences import PieceMaker
from charlm.text.subwords import SubwordTokenizer


class PieceSequence(NamedTuple):
    """A sequence of T subwords, special ones included.

    Attributes:
      ids_T: int32, the true ids of the subwords.
      rows_TC: uint16, the characters as the model reads them; zeros at subwords that are not spelled.
      chosen_T: bool, True at subwords whose characters are hidden.
      number: the numbers that, with the seed, decided the draw.
    """

    ids_T: np.ndarray
    rows_TC: np.ndarray
    chosen_T: np.ndarray
    number: tuple[int, ...]

    @property
    def labels_T(self) -> np.ndarray:
        """int32, the subwords to predict; -1 at all other positions."""
        return np.where(self.chosen_T, self.ids_T, np.int32(-1))

    @property
    def pieces(self) -> list[int]:
        """The subwords without the special tokens at both ends."""
        return self.ids_T[1:-1].tolist()


@dataclasses.dataclass(frozen=True)
class SubwordMaker(PieceMaker[int, PieceSequence]):
    """Turns words into sequences; the corpus that the words come from is given elsewhere."""

    tokenizer: SubwordTokenizer
    pieces: PieceRows
    masking: CharacterMasking

    def sequence(self, ids: list[int], number: tuple[int, ...]) -> PieceSequence:
        """Returns the sequence of subwords, with special tokens added at both ends."""
        special = self.tokenizer.special
        ids_T = np.array([special.needed("cls"), *ids, special.needed("sep")], np.int32)
        rows_TC, chosen_T = hide_characters(ids_T, self.pieces, self.masking, (self.seed, *number))
        return PieceSequence(ids_T, rows_TC, chosen_T, number)

    @property
    def most(self) -> int:
        """The largest number of hidden subwords in a sequence."""
        return self.masking.most(self.room)

    @property
    def slots(self) -> int:
        """Characters of the longest spelling."""
        return self.pieces.rows_VC.shape[1]

    @property
    def pad(self) -> int:
        """The id of padding: the vocabulary's padding token, or 0 if it has none."""
        return self.tokenizer.special.pad or 0
