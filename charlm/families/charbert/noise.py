"""Misspells words for noisy language modelling, which predicts the original words (CharBERT, section 3.5).

`blocks` calls it for every record. Open it when words are misspelled otherwise than by the released code. There are two
styles. "paper" drops, adds, or swaps with the next a character inside the word. "reference" makes the changes of the
released code, with random draws in the same order from the same generators, which reproduces its results.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from charlm.text.noise import Noise, Noiser

PAPER_KIND = "charbert_inner"
REFERENCE_LETTERS = 81  # the released code inserts one of the first 81 entries of its character vocabulary
SHORT = 4  # the released code inserts into words with fewer characters; in others it deletes or swaps


def misspell_as_released(word: str, rng: random.Random, swaps: random.Random, letters: Sequence[str]) -> str:
    """Returns a word with one change (`create_adv_word` of the released code).

    Insertions and deletions also occur at the ends of the word, but a swap never moves the first character. An inserted
    character is never the last one, and may be a space. Swapping two equal letters leaves the word unchanged.

    Args:
      word: not empty.
      rng: draws the kind of change, and its place unless it is a swap.
      swaps: draws the place of a swap; the released code uses the process's global generator for it.
      letters: the characters to insert; see `REFERENCE_LETTERS`.
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
    """Misspells words; the changes depend only on the seed and the number of the draw, not on order or process."""

    def __init__(
        self,
        style: Literal["paper", "reference"],
        rate: float,
        seed: int,
        letters: Sequence[str] = (),
        of: Literal["all", "eligible"] = "eligible",
    ) -> None:
        """Prepares the noise.

        Args:
          style: see the module.
          rate: share of words that are changed; in the reference style, of all words, including punctuation.
          of: what the rate is a share of in the paper's style, where only words of two characters or more can change:
            these ("eligible"), or "all" words, so that more of these are changed, at most all of them.
          letters: the characters that the reference style inserts: the beginning of the character vocabulary.

        Raises:
          ValueError: a rate outside [0, 1], or no letters where they are needed.
        """
        if not 0 <= rate <= 1:
            raise ValueError(f"data.noise_rate={rate} must lie in [0, 1]")
        if style == "reference" and not letters:
            raise ValueError("noise of the released code: letters= names nothing to insert")
        self._style, self._rate, self._seed, self._letters = style, rate, seed, tuple(letters)
        self._of_all = of == "all"

    def words(self, words: Sequence[str], number: int) -> list[str]:
        """Returns the words, some of them misspelled.

        Args:
          words: not empty, any of them.
          number: the number of the draw.
        """
        if not self._rate or not words:
            return list(words)
        if self._style == "paper":
            rate = self._rate
            if self._of_all and (eligible := sum(len(word) > 1 for word in words)):
                rate = min(1.0, rate * len(words) / eligible)
            return list(Noiser(Noise(PAPER_KIND, rate), self._seed).words(words, number).words)
        rng = random.Random(f"{self._seed}:{number}")
        swaps = random.Random(f"{self._seed}:{number}:swaps")
        return noise_as_released(words, self._rate, rng, swaps, self._letters)


def noise_as_released(
    words: Sequence[str], rate: float, rng: random.Random, swaps: random.Random, letters: Sequence[str]
) -> list[str]:
    """Returns the words, each changed with the probability `rate`; see `misspell_as_released`."""
    return [misspell_as_released(word, rng, swaps, letters) if rng.random() < rate else word for word in words]
