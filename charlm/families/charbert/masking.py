"""Masks subwords by whole words for CharBERT, except words with noise (CharBERT, sections 3.5 and 4.1).

There are two ways, the paper's and that of the released code; open it to change which subwords are masked.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from charlm.data.masking import Hiding, rounded_at_random
from charlm.data.streams import generator


@dataclasses.dataclass(frozen=True)
class SubwordMasking(Hiding):
    """Settings of whole-word masking.

    Attributes:
      style: "paper": masks whole words until the share of subwords is reached; that number is rounded up or down at
        random, so that its mean is exact. "reference": as in the released code, which rounds the number to the nearest
        (at least one) and draws from Python's random generator.
    """

    style: Literal["paper", "reference"] = "paper"


def mask_subwords(
    ids_T: np.ndarray, groups_T: np.ndarray, noised_T: np.ndarray, masking: SubwordMasking, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses whole words at random and masks their subwords.

    A word that would exceed the share is skipped in favour of shorter ones, so the share is met as closely as possible.

    Args:
      ids_T: int32, subwords without special ones; not changed.
      groups_T: int, the index of the word of each subword; ascending.
      noised_T: bool, True at subwords of words with noise, which are never chosen.
      seed: the numbers that seed the random choice.

    Returns:
      The ids that the model reads, int32 [T], and the labels, int32 [T]: the subword to predict, -1 elsewhere.
    """
    edges = [0, *(np.flatnonzero(np.diff(groups_T)) + 1).tolist(), len(ids_T)] if len(ids_T) else []
    groups = list(itertools.pairwise(edges))
    if masking.style == "reference":
        rng = random.Random(":".join(map(str, seed)))
        return mask_as_released(ids_T, groups, noised_T, masking, rng)
    rng = generator(*seed)
    wanted = rounded_at_random(masking.rate * len(ids_T), rng)
    order = rng.permutation(len(groups)).tolist()
    return masking.put(ids_T, _choose((groups[i] for i in order), noised_T, wanted), rng)


def mask_as_released(
    ids_T: np.ndarray,
    groups: Sequence[tuple[int, int]],
    noised_T: np.ndarray,
    masking: SubwordMasking,
    rng: random.Random,
) -> tuple[np.ndarray, np.ndarray]:
    """Masks as `create_masked_lm_predictions` of the released code does, with random draws in the same order.

    Args:
      groups: start and end of the subwords of each word. Other arguments and the result are as in `mask_subwords`.
    """
    groups = list(groups)
    rng.shuffle(groups)
    wanted = max(1, round(masking.rate * len(ids_T)))
    input_T, labels_T = ids_T.copy(), np.full_like(ids_T, -1)
    rest = 1 - masking.mask_share
    for place in _choose(groups, noised_T, wanted):
        labels_T[place] = ids_T[place]
        if rng.random() < masking.mask_share:
            input_T[place] = masking.mask_id
        elif rest and rng.random() >= 1 - masking.random_share / rest:
            input_T[place] = masking.random_ids[rng.randint(0, len(masking.random_ids) - 1)]
    return input_T, labels_T


def _choose(groups: Iterable[tuple[int, int]], noised_T: np.ndarray, wanted: int) -> np.ndarray:
    """Returns the positions of groups without noise, taken in order as long as they fit into `wanted` positions."""
    chosen: list[int] = []
    noised = noised_T.tolist()
    for start, end in groups:
        if wanted < 1:
            break
        if end - start <= wanted and not any(noised[start:end]):
            chosen += range(start, end)
            wanted -= end - start
    return np.array(chosen, np.int64)
