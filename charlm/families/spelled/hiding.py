"""Which words or subwords of a sequence are to be predicted, and what is read in their place (BERT, section 3.1)."""

from __future__ import annotations

import dataclasses

import numpy as np

from charlm.data.masking import check_shares


@dataclasses.dataclass(frozen=True)
class Hiding:
    """How pieces are hidden, each on its own.

    Attributes:
      rate: share of the pieces to predict. mask_share, random_share: of those, the share that becomes the mask, and
        that becomes a random piece. mask_id: what hides. random_ids: int32, what random ones are drawn from.
    """

    rate: float
    mask_share: float
    random_share: float
    mask_id: int
    random_ids: np.ndarray

    def __post_init__(self) -> None:
        check_shares(self.rate, self.mask_share, self.random_share)

    def most(self, count: int) -> int:
        """Returns how many of `count` pieces are to be predicted at most."""
        return max(int(np.ceil(self.rate * count)), 1)

    def hide(
        self, ids_L: np.ndarray, candidates: np.ndarray, rng: np.random.Generator, of: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what the model reads, and what is to be predicted, int32 [L] each, with -1 where nothing is.

        The number of chosen ones is rate * `of`, rounded up or down at random so that its mean is exact.

        Args:
          candidates: int, positions that may be chosen; where there are fewer than wanted, all are.
          of: how many pieces the rate is a share of; None: of the candidates.
        """
        order, wanted = rng.permutation(candidates), self.rate * (len(candidates) if of is None else of)
        chosen = order[: int(wanted + rng.random())]
        kind_M, random_M = rng.random(len(chosen)), rng.choice(self.random_ids, len(chosen))
        to_mask_M = kind_M < self.mask_share
        to_random_M = ~to_mask_M & (kind_M < self.mask_share + self.random_share)
        input_L, labels_L = ids_L.copy(), np.full_like(ids_L, -1)
        labels_L[chosen] = ids_L[chosen]
        input_L[chosen] = np.where(to_mask_M, self.mask_id, np.where(to_random_M, random_M, ids_L[chosen]))
        return input_L, labels_L
