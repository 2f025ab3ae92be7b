"""The entries of a subword vocabulary that Char2Subword learns to spell, and the characters that this needs.

Open it to see which entries are left out, such as special tokens.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

from charlm.families.char2subword.spelling import WORD_MARK, spell_piece
from charlm.text.chars import CharVocab
from charlm.text.noise.characters import other_case
from charlm.text.noise.keyboards import Keyboard
from charlm.text.noise.words import PUNCTUATION
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.pieces import Surface


@dataclasses.dataclass(frozen=True)
class Entries:
    """The N entries of a vocabulary that have a spelling, in order of their ids.

    Special tokens, reserved rows ([unused1]) and byte-level pieces with incomplete characters have no spelling.

    Attributes:
      ids_N: int32, ids of the entries.
      surfaces: the text that each entry stands for.
    """

    ids_N: np.ndarray
    surfaces: tuple[Surface, ...]

    @classmethod
    def of(cls, tokenizer: SubwordTokenizer) -> Entries:
        """Returns the entries of a tokenizer's vocabulary that have a spelling."""
        found = []
        for index in tokenizer.ids():
            surface = tokenizer.surface(index)
            if surface is not None and surface.whole and surface.chars:
                found.append((index, surface))
        return cls(np.array([index for index, _ in found], np.int32), tuple(surface for _, surface in found))

    def where(self, kept_N: np.ndarray) -> Entries:
        """Returns the entries where `kept_N`, bool [N], is True."""
        return Entries(self.ids_N[kept_N], tuple(itertools.compress(self.surfaces, kept_N)))

    def __len__(self) -> int:
        return len(self.surfaces)

    @functools.cached_property
    def spellings(self) -> tuple[str, ...]:
        """The spelling of each entry, as the module reads it."""
        return tuple(map(spell_piece, self.surfaces))


def characters_of(entries: Entries, keyboard: Keyboard) -> CharVocab:
    """Returns all characters of the entries and all that a typo can put into them, in order of code point."""
    chars = set(WORD_MARK + PUNCTUATION).union(*entries.spellings)
    chars |= {other_case(char) for char in chars}
    chars |= {near for char in chars for near in keyboard.near(char)}
    chars |= {other_case(char) for char in chars}
    return CharVocab(sorted(chars))
