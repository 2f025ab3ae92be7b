"""Sequences of subwords for contextual pre-training: each subword spelled, the characters of some hidden."""

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
      ids_T: int32, what the subwords are.
      rows_TC: uint16, the characters of those that are spelled, as the model reads them; zeros elsewhere.
      chosen_T: bool, those whose characters are hidden.
      number: what the draw was made from.
    """

    ids_T: np.ndarray
    rows_TC: np.ndarray
    chosen_T: np.ndarray
    number: tuple[int, ...]

    @property
    def labels_T(self) -> np.ndarray:
        """int32, the subwords to predict; -1 where there is none."""
        return np.where(self.chosen_T, self.ids_T, np.int32(-1))

    @property
    def pieces(self) -> list[int]:
        """The subwords without special ones."""
        return self.ids_T[1:-1].tolist()


@dataclasses.dataclass(frozen=True)
class SubwordMaker(PieceMaker):
    """All that turns words into sequences, but for where the words come from."""

    tokenizer: SubwordTokenizer
    pieces: PieceRows
    masking: CharacterMasking

    def sequence(self, ids: list[int], number: tuple[int, ...]) -> PieceSequence:
        """Returns the sequence of some subwords, which has special ones at both ends."""
        special = self.tokenizer.special
        ids_T = np.array([special.needed("cls"), *ids, special.needed("sep")], np.int32)
        rows_TC, chosen_T = hide_characters(ids_T, self.pieces, self.masking, (self.seed, *number))
        return PieceSequence(ids_T, rows_TC, chosen_T, number)

    @property
    def most(self) -> int:
        """Subwords of a sequence that are hidden, at most."""
        return self.masking.most(self.room)

    @property
    def slots(self) -> int:
        """Characters of the longest spelling."""
        return self.pieces.rows_VC.shape[1]

    @property
    def pad(self) -> int:
        """The subword that stands where there is none: the vocabulary's own, or 0."""
        return self.tokenizer.special.pad or 0
