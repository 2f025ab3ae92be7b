"""Hides characters of subwords for the contextual stage of Char2Subword (Aguilar et al., 2021, section 3.2).

Open it to change how much of a chosen subword is hidden and what the model sees instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from charlm.data.masking import Shares, rounded_at_random
from charlm.data.streams import generator
from charlm.families.char2subword.spelling import mask_rows, spell_rows
from charlm.families.char2subword.spelling_vocab import Entries
from charlm.text.chars import FIRST_CHAR, CharVocab


@dataclasses.dataclass(frozen=True)
class PieceRows:
    """The spelling of every subword of a vocabulary, as a table of character ids.

    Attributes:
      rows_VC: uint16, characters; a row of zeros if the subword has no spelling, as special tokens. C is the length of
        the longest spelling.
      marked_V: bool, True at subwords that are spelled with the word mark.
    """

    rows_VC: np.ndarray
    marked_V: np.ndarray

    @classmethod
    def of(cls, entries: Entries, vocab: CharVocab, size: int, slots: int) -> PieceRows:
        """Returns the table of spellings of a vocabulary's entries.

        Args:
          size: V, the number of ids of the vocabulary.
          slots: the longest spelling allowed; longer ones are cut.
        """
        slots = min(slots, max(map(len, entries.spellings), default=1))
        rows_VC, marked_V = np.zeros((size, slots), np.uint16), np.zeros(size, bool)
        rows_VC[entries.ids_N] = spell_rows(entries.spellings, vocab, slots)
        marked_V[entries.ids_N] = [surface.starts_word for surface in entries.surfaces]
        return cls(rows_VC, marked_V)


@dataclasses.dataclass(frozen=True)
class CharacterMasking(Shares):
    """How characters of subwords are hidden; the shares apply to the characters of the chosen subwords.

    Attributes:
      chars_end: one past the largest character id; random characters come from [FIRST_CHAR, chars_end).
      whole: True: one draw for all characters of a subword, as in BERT; False: one draw per character.
    """

    chars_end: int
    whole: bool = False


def hide_characters(
    ids_T: np.ndarray, pieces: PieceRows, masking: CharacterMasking, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Spells subwords, chooses some of them and hides their characters; word mark and length stay visible.

    The number of chosen subwords is rate * candidates, rounded up or down at random so that its mean is exact.

    Args:
      ids_T: int, subwords.
      seed: numbers that seed the draw.

    Returns:
      The characters that the model reads, uint16 [T, C], zeros where there is no spelling; and bool [T], True at the
      subwords to predict.
    """
    rng = generator(*seed)
    rows_TC = pieces.rows_VC[ids_T]
    (candidates,) = np.nonzero(rows_TC[:, 0])
    count = rounded_at_random(masking.rate * len(candidates), rng)
    chosen = rng.permutation(candidates)[:count]
    marked, chars = pieces.marked_V[ids_T[chosen]], (FIRST_CHAR, masking.chars_end)
    rows_TC[chosen] = mask_rows(rows_TC[chosen], marked, rng, chars, masking, masking.whole)
    chosen_T = np.zeros(len(ids_T), bool)
    chosen_T[chosen] = True
    return rows_TC, chosen_T
