"""Masking: chooses the words or subwords to predict, and what the model sees in their place.

Open it to see how much is masked and by what: whole words of characters (HLM, section 3.4), or ids (BERT, section 3.1).
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from charlm.text.chars import FIRST_CHAR, MASK, WORD_CLS

REFERENCE_RANDOM_IDS = (8, 128)  # ids of random characters in the released code, end excluded


def rounded_at_random(mean: float, rng: np.random.Generator) -> int:
    """Returns a number that is not negative, rounded up or down at random so that the mean of the draws is exact."""
    return int(mean + rng.random())


@dataclasses.dataclass(frozen=True)
class Shares:
    """How much is to be predicted, and what the model reads in its place (BERT, section 3.1).

    Attributes:
      rate: share of the words or subwords that is predicted.
      mask_share: share of those that the mask replaces.
      random_share: share of those that something random replaces; the rest stays unchanged.

    Raises:
      ValueError: a share lies outside its range.
    """

    rate: float
    mask_share: float
    random_share: float

    def __post_init__(self) -> None:
        shares_fit = self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1
        if not (0 < self.rate <= 1 and shares_fit):
            raise ValueError(
                "data.mask_rate must lie in (0, 1] and data.mask_share + data.random_share in [0, 1]; got "
                f"{self.rate}, {self.mask_share}, {self.random_share}"
            )

    def most(self, count: int) -> int:
        """Returns the largest number that may be chosen out of `count` words or subwords."""
        return max(int(np.ceil(self.rate * count)), 1)

    def fates(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Decides by draws from [0, 1): returns which items become the mask, and which become random."""
        to_mask = draws < self.mask_share
        return to_mask, ~to_mask & (draws < self.mask_share + self.random_share)


@dataclasses.dataclass(frozen=True)
class Hiding(Shares):
    """How words or subwords that have an id are hidden.

    Attributes:
      mask_id: id of the mask.
      random_ids: int32, the ids from which random replacements are drawn.
    """

    mask_id: int
    random_ids: np.ndarray

    def hide(
        self, ids_L: np.ndarray, candidates: np.ndarray, rng: np.random.Generator, of: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hides some of the candidates, chosen one by one; returns what `put` returns.

        The number of chosen candidates is rate * `of`, rounded up or down at random so that its mean is exact.

        Args:
          candidates: int, positions that may be chosen; if there are too few, all are chosen.
          of: number of pieces that the rate applies to; None: the number of candidates.
        """
        order, wanted = rng.permutation(candidates), self.rate * (len(candidates) if of is None else of)
        return self.put(ids_L, order[: rounded_at_random(wanted, rng)], rng)

    def put(self, ids_L: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns what the model reads and what it has to predict, int32 [L] each; -1 where nothing is predicted.

        Args:
          chosen: int, the positions to predict.
        """
        kind_M, random_M = rng.random(len(chosen)), rng.choice(self.random_ids, len(chosen))
        to_mask_M, to_random_M = self.fates(kind_M)
        input_L, labels_L = ids_L.copy(), np.full_like(ids_L, -1)
        labels_L[chosen] = ids_L[chosen]
        input_L[chosen] = np.where(to_mask_M, self.mask_id, np.where(to_random_M, random_M, ids_L[chosen]))
        return input_L, labels_L


@dataclasses.dataclass(frozen=True)
class Masking(Shares):
    """How the characters of whole words are hidden: all of a word's become [MASK], or all become random characters.

    Attributes:
      chars_end: one past the largest character id; random characters come from [FIRST_CHAR, chars_end).
      style: "paper", or "reference" as the released code: floor(rate * words) words, random ids 8 to 127.
    """

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    chars_end: int = 1024
    style: Literal["paper", "reference"] = "paper"

    def random_ids(self) -> tuple[int, int]:
        """Returns the first id of a random character, and one past the last."""
        return REFERENCE_RANDOM_IDS if self.style == "reference" else (FIRST_CHAR, self.chars_end)


def mask_words(chars_WC: np.ndarray, masking: Masking, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Chooses words and hides their characters.

    Only words that begin with WORD_CLS can be chosen, so [CLS], [SEP] and padding never are. The number of chosen words
    is rate * words, rounded up or down at random so that its mean is exact. "reference" always rounds down, so
    sequences of fewer than 1 / rate words get none.

    Args:
      chars_WC: uint16 character ids, 0 pads; not changed.

    Returns:
      What the model reads, uint16 [W, C], and the ids to predict, uint16 [W, C] with 0 elsewhere.
    """
    (candidates,) = np.nonzero(chars_WC[:, 0] == WORD_CLS)
    wanted = masking.rate * len(candidates)
    count = int(wanted) if masking.style == "reference" else rounded_at_random(wanted, rng)
    chosen = rng.permutation(candidates)[:count]
    kind_M1 = rng.random((count, 1))

    words_MC = chars_WC[chosen]
    is_char_MC = words_MC != 0
    is_char_MC[:, 0] = False
    labels_WC = np.zeros_like(chars_WC)
    labels_WC[chosen] = words_MC * is_char_MC
    to_mask_M1, to_random_M1 = masking.fates(kind_M1)
    random_MC = rng.integers(*masking.random_ids(), size=words_MC.shape, dtype=np.uint16)
    words_MC = np.where(to_mask_M1 & is_char_MC, np.uint16(MASK), words_MC)
    words_MC = np.where(to_random_M1 & is_char_MC, random_MC, words_MC)
    input_WC = chars_WC.copy()
    input_WC[chosen] = words_MC
    return input_WC, labels_WC
