"""Masking of subwords by whole words, never in a word with noise (CharBERT, sections 3.5 and 4.1)."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from charlm.data.masking import Hiding
from charlm.data.streams import generator


@dataclasses.dataclass(frozen=True)
class SubwordMasking(Hiding):
    """How subwords are hidden by whole words.

    Attributes:
      style: "paper": whole words until the share is reached, rounded up or down at random so that its mean is exact;
        "reference": as the released code, which rounds it (at least one) and draws from Python's generator.
    """

    style: Literal["paper", "reference"] = "paper"


def mask_subwords(
    ids_T: np.ndarray, groups_T: np.ndarray, noised_T: np.ndarray, masking: SubwordMasking, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses whole words and hides their subwords.

    A word that would exceed the share is passed over for a shorter one, so the share is met as nearly as words allow.

    Args:
      ids_T: int32, subwords without special ones; not changed.
      groups_T: int, of each subword, the index of its word; ascending.
      noised_T: bool, subwords of words with noise: no word with one is chosen.
      seed: numbers that decide the draw.

    Returns:
      What the model reads, int32 [T], and the subwords to predict, int32 [T] with -1 elsewhere.
    """
    edges = [0, *(np.flatnonzero(np.diff(groups_T)) + 1).tolist(), len(ids_T)] if len(ids_T) else []
    groups = list(itertools.pairwise(edges))
    if masking.style == "reference":
        rng = random.Random(":".join(map(str, seed)))
        return mask_as_released(ids_T, groups, noised_T, masking, rng)
    rng = generator(*seed)
    wanted = int(masking.rate * len(ids_T) + rng.random())
    order = rng.permutation(len(groups)).tolist()
    return masking.put(ids_T, _choose((groups[i] for i in order), noised_T, wanted), rng)


def mask_as_released(
    ids_T: np.ndarray,
    groups: Sequence[tuple[int, int]],
    noised_T: np.ndarray,
    masking: SubwordMasking,
    rng: random.Random,
) -> tuple[np.ndarray, np.ndarray]:
    """Masks as `create_masked_lm_predictions` of the released code, which draws in this order.

    Args:
      groups: where the subwords of each word begin and end. The rest is as for `mask_subwords`, the result too.
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
    """Returns the positions of the first groups that fit into `wanted` and have no noise, in the order of groups."""
    chosen: list[int] = []
    noised = noised_T.tolist()
    for start, end in groups:
        if wanted < 1:
            break
        if end - start <= wanted and not any(noised[start:end]):
            chosen += range(start, end)
            wanted -= end - start
    return np.array(chosen, np.int64)
