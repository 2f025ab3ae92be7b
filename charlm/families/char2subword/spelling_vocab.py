"""Which entries of a subword vocabulary Char2Subword learns to spell, and the characters that it needs for it."""

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
    """The entries of a vocabulary that have a spelling, N of them, in order of their ids.

    Special tokens and rows kept free ([unused1]) have none; nor have byte-level pieces with half a character.

    Attributes:
      ids_N: int32. surfaces: what each stands for.
    """

    ids_N: np.ndarray
    surfaces: tuple[Surface, ...]

    @classmethod
    def of(cls, tokenizer: SubwordTokenizer) -> Entries:
        """Returns those of a tokenizer."""
        found = []
        for index in tokenizer.ids():
            surface = tokenizer.surface(index)
            if surface is not None and surface.whole and surface.chars:
                found.append((index, surface))
        return cls(np.array([index for index, _ in found], np.int32), tuple(surface for _, surface in found))

    def where(self, kept_N: np.ndarray) -> Entries:
        """Returns those that are True in bool [N]."""
        return Entries(self.ids_N[kept_N], tuple(itertools.compress(self.surfaces, kept_N)))

    def __len__(self) -> int:
        return len(self.surfaces)

    @functools.cached_property
    def spellings(self) -> tuple[str, ...]:
        """The characters of each, as the module reads them."""
        return tuple(map(spell_piece, self.surfaces))


def characters_of(entries: Entries, keyboard: Keyboard) -> CharVocab:
    """Returns every character of the entries, and those that a typo can put into them, in order of code point."""
    chars = set(WORD_MARK + PUNCTUATION).union(*entries.spellings)
    chars |= {other_case(char) for char in chars}
    chars |= {near for char in chars for near in keyboard.near(char)}
    chars |= {other_case(char) for char in chars}
    return CharVocab(sorted(chars))
