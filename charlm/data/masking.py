"""Whole-word masking: which words are to be predicted, and what the model sees in their place (HLM, section 3.4)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from charlm.text.chars import FIRST_CHAR, MASK, WORD_CLS

REFERENCE_RANDOM_IDS = (8, 128)  # the released code draws random characters from these ids, end excluded


def check_shares(rate: float, mask_share: float, random_share: float) -> None:
    """Checks how much is predicted, and the shares of it that are hidden; ValueError naming keys and values."""
    shares_fit = mask_share >= 0 and random_share >= 0 and mask_share + random_share <= 1
    if not (0 < rate <= 1 and shares_fit):
        raise ValueError(
            "data.mask_rate must lie in (0, 1] and data.mask_share + data.random_share in [0, 1]; got "
            f"{rate}, {mask_share}, {random_share}"
        )


@dataclasses.dataclass(frozen=True)
class Masking:
    """How words are masked.

    Attributes:
      rate: share of the words to predict.
      mask_share, random_share: of those, the share whose characters all become [MASK], and all become random ones;
        the rest stay as they are.
      chars_end: one past the largest character id; random characters come from [FIRST_CHAR, chars_end).
      style: "paper", or "reference" as the released code: floor(rate * words) words, random ids 8..127.
    """

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    chars_end: int = 1024
    style: Literal["paper", "reference"] = "paper"

    def __post_init__(self) -> None:
        check_shares(self.rate, self.mask_share, self.random_share)

    def random_ids(self) -> tuple[int, int]:
        """Returns first and one past the last id of a random character."""
        return REFERENCE_RANDOM_IDS if self.style == "reference" else (FIRST_CHAR, self.chars_end)


def mask_words(chars_WC: np.ndarray, masking: Masking, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Chooses words and hides their characters.

    Only words that begin with WORD_CLS are chosen, so never [CLS], [SEP] or padding. The number of chosen words is
    rate * words, rounded up or down at random so that its mean is exact ("reference": always down, so sequences below
    1 / rate words get none).

    Args:
      chars_WC: uint16 character ids, 0 pads; not changed.

    Returns:
      What the model reads, uint16 [W, C], and the ids to predict, uint16 [W, C] with 0 elsewhere.
    """
    (candidates,) = np.nonzero(chars_WC[:, 0] == WORD_CLS)
    wanted = masking.rate * len(candidates)
    count = int(wanted + (0.0 if masking.style == "reference" else rng.random()))
    chosen = rng.permutation(candidates)[:count]
    kind_M1 = rng.random((count, 1))

    words_MC = chars_WC[chosen]
    is_char_MC = words_MC != 0
    is_char_MC[:, 0] = False
    labels_WC = np.zeros_like(chars_WC)
    labels_WC[chosen] = words_MC * is_char_MC
    to_mask_M1 = kind_M1 < masking.mask_share
    to_random_M1 = ~to_mask_M1 & (kind_M1 < masking.mask_share + masking.random_share)
    random_MC = rng.integers(*masking.random_ids(), size=words_MC.shape, dtype=np.uint16)
    words_MC = np.where(to_mask_M1 & is_char_MC, np.uint16(MASK), words_MC)
    words_MC = np.where(to_random_M1 & is_char_MC, random_MC, words_MC)
    input_WC = chars_WC.copy()
    input_WC[chosen] = words_MC
    return input_WC, labels_WC
