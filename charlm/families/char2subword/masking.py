"""Hiding characters of subwords, for Char2Subword to learn from context (Aguilar et al., 2021, section 3.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from charlm.data.masking import Shares
from charlm.data.streams import generator
from charlm.families.char2subword.spelling import mask_rows, spell_rows
from charlm.families.char2subword.spelling_vocab import Entries
from charlm.text.chars import FIRST_CHAR, CharVocab


@dataclasses.dataclass(frozen=True)
class PieceRows:
    """The spelling of every subword of a vocabulary, at hand as a row of ids.

    Attributes:
      rows_VC: uint16, characters; a row of zeros where there is no spelling, as for special tokens. C is as many as
        the longest needs.
      marked_V: bool, subwords that are spelled with the word mark.
    """

    rows_VC: np.ndarray
    marked_V: np.ndarray

    @classmethod
    def of(cls, entries: Entries, vocab: CharVocab, size: int, slots: int) -> PieceRows:
        """Spells entries.

        Args:
          size: V, ids of the vocabulary. slots: of the longest spelling; what is longer is cut.
        """
        slots = min(slots, max(map(len, entries.spellings), default=1))
        rows_VC, marked_V = np.zeros((size, slots), np.uint16), np.zeros(size, bool)
        rows_VC[entries.ids_N] = spell_rows(entries.spellings, vocab, slots)
        marked_V[entries.ids_N] = [surface.starts_word for surface in entries.surfaces]
        return cls(rows_VC, marked_V)


@dataclasses.dataclass(frozen=True)
class CharacterMasking(Shares):
    """How characters of subwords that have a spelling are hidden; the shares are of the characters of chosen ones.

    Attributes:
      chars_end: one past the largest character id; random characters come from [FIRST_CHAR, chars_end).
      whole: one draw for all characters of a subword, as in BERT; else one for each.
    """

    chars_end: int
    whole: bool = False


def hide_characters(
    ids_T: np.ndarray, pieces: PieceRows, masking: CharacterMasking, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Spells subwords, chooses some of them and hides their characters; word mark and length stay to be seen.

    The number of chosen ones is rate * candidates, rounded up or down at random so that its mean is exact.

    Args:
      ids_T: int, subwords. seed: numbers that decide the draw.

    Returns:
      What the model reads, uint16 [T, C], zeros where there is no spelling; and bool [T], what is to be predicted.
    """
    rng = generator(*seed)
    rows_TC = pieces.rows_VC[ids_T]
    (candidates,) = np.nonzero(rows_TC[:, 0])
    count = int(masking.rate * len(candidates) + rng.random())
    chosen = rng.permutation(candidates)[:count]
    marked, chars = pieces.marked_V[ids_T[chosen]], (FIRST_CHAR, masking.chars_end)
    rows_TC[chosen] = mask_rows(rows_TC[chosen], marked, rng, chars, masking, masking.whole)
    chosen_T = np.zeros(len(ids_T), bool)
    chosen_T[chosen] = True
    return rows_TC, chosen_T
