"""Noise for noisy language modelling: misspelled words whose right spelling is to be predicted (CharBERT, section 3.5).

Two styles. "paper": a character inside the word is dropped, added, or swapped with the next. "reference": what the
released code does instead, drawn in the same order from the same generators, so that its results come out again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from charlm.text.noise import Noise, Noiser

PAPER_KIND = "charbert_inner"
REFERENCE_LETTERS = 81  # the released code inserts one of the first so many entries of its character vocabulary
SHORT = 4  # it inserts into words of fewer characters, and deletes or swaps in the others


def misspell_as_released(word: str, rng: random.Random, swaps: random.Random, letters: Sequence[str]) -> str:
    """Returns a word with one change (`create_adv_word` of the released code).

    Anything but the first character of a swap may be hit, at either end of the word too. What is inserted is never the
    last character, and may be a space. Two equal letters swapped leave the word as it is.

    Args:
      word: not empty. rng: draws what is done and where.
      swaps: draws the place of a swap; the released code takes the generator of the whole process.
      letters: what is inserted, see `REFERENCE_LETTERS`.
    """
    if len(word) < SHORT:
        letter = letters[rng.randint(0, len(letters) - 1)]
        place = rng.randint(0, len(word) - 1)
        return word[:place] + letter + word[place:]
    if rng.random() < 0.5:
        place = rng.randint(0, len(word) - 1)
        return word[:place] + word[place + 1 :]
    place = swaps.randint(1, len(word) - 2)
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


class WordNoise:
    """Misspells words; seed and number decide what is drawn, in any order and in any process."""

    def __init__(
        self, style: Literal["paper", "reference"], rate: float, seed: int, letters: Sequence[str] = ()
    ) -> None:
        """Prepares the noise.

        Args:
          style: see the module. rate: share of the words that are changed: in the paper's style, of those of two
            characters or more; in the reference's, of all words, punctuation too.
          letters: what the reference inserts: the beginning of its character vocabulary.

        Raises:
          ValueError: a rate outside [0, 1], or no letters where they are needed.
        """
        if not 0 <= rate <= 1:
            raise ValueError(f"data.noise_rate={rate} must lie in [0, 1]")
        if style == "reference" and not letters:
            raise ValueError("noise of the released code: letters= names nothing to insert")
        self._style, self._rate, self._seed, self._letters = style, rate, seed, tuple(letters)
        self._noiser = Noiser(Noise(PAPER_KIND, rate), seed)

    def words(self, words: Sequence[str], number: int) -> list[str]:
        """Returns as many words, those not hit as they are.

        Args:
          words: none empty. number: which draw of the noise.
        """
        if not self._rate or not words:
            return list(words)
        if self._style == "paper":
            return list(self._noiser.words(words, number).words)
        rng = random.Random(f"{self._seed}:{number}")
        swaps = random.Random(f"{self._seed}:{number}:swaps")
        return noise_as_released(words, self._rate, rng, swaps, self._letters)


def noise_as_released(
    words: Sequence[str], rate: float, rng: random.Random, swaps: random.Random, letters: Sequence[str]
) -> list[str]:
    """Returns the words, each changed with the probability `rate`; see `misspell_as_released`."""
    return [misspell_as_released(word, rng, swaps, letters) if rng.random() < rate else word for word in words]
