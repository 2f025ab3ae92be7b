"""Misspells entries of the vocabulary for the approximation stage. Open it to change what noise spellings get.

Usually the typos are the paper's, one a spelling (Aguilar et al., 2021, section 3.1, Table 1); that half of the
spellings get one is our choice. More noise, of more kinds, makes a speller of the module: the row whose product with a
misspelled word's vector is largest is the word meant.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from charlm.text.noise import Noise, Noiser

LONGER = 2  # characters by which noise of several kinds may lengthen a spelling without its end being cut off


@dataclasses.dataclass(frozen=True)
class OneTypo:
    """The noise of the paper: at most one typo.

    Attributes:
      noiser: makes it.
    """

    noiser: Noiser

    def word(self, word: str, rng: np.random.Generator) -> str:
        """Returns a word, or the word with a typo."""
        return self.noiser.word(word, rng)

    def longer(self, word: str) -> int:
        """Returns by how many characters the word may become longer."""
        return int(len(word) >= self.noiser.noise.min_length)


@dataclasses.dataclass(frozen=True)
class ManyTypos:
    """Noise of several kinds; kind and rate are drawn for each word.

    Attributes:
      kinds: one of them is drawn for a word; its rate is drawn evenly from 0 to that of the kind.
      share: share of the words that get noise.
      seed: seed of the makers of noise; the draws are the caller's.
    """

    kinds: tuple[Noise, ...]
    share: float
    seed: int

    def word(self, word: str, rng: np.random.Generator) -> str:
        """Returns a word, or the word with typos; spaces that noise put into it are left out."""
        drawn, kind, rate = rng.random(3).tolist()
        if drawn >= self.share:
            return word
        noise = self.kinds[int(kind * len(self.kinds))]
        noiser = Noiser(dataclasses.replace(noise, rate=rate * noise.rate), self.seed)
        return "".join(noiser.word(word, rng).split()) or word

    def longer(self, word: str) -> int:
        """Returns by how many characters the word may become longer before its end is cut off."""
        return LONGER
