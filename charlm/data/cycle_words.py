"""Words of XRayEmb's cycles: the most frequent ones of a corpus, some of them now and then (Pinter et al., 4.1)."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

SAMPLING = ("uniform", "sqrt", "frequency")


@dataclasses.dataclass(frozen=True)
class CycleWords:
    """Which words a shard has, by its number alone.

    Attributes:
      rows_NC: uint16, words as `charlm.text.xray_chars` has them, the most frequent first. counts_N: how often each
        was met.
      size: K, words of a shard that has some. every: steps from one with words to the next. micro_batches: of a step.
      sampling: chances of a word: all alike ("uniform"), by its count ("frequency") or the root of it ("sqrt").
      in_order: no draw: every shard has words, one after another; in evaluation.
    """

    rows_NC: np.ndarray
    counts_N: np.ndarray
    size: int
    every: int
    micro_batches: int
    seed: int
    sampling: str = "uniform"
    in_order: bool = False

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLING:
            raise ValueError(f"cycle.sampling={self.sampling!r} is not one of {', '.join(SAMPLING)}")

    @functools.cached_property
    def _ends_N(self) -> np.ndarray:
        """Where the shares of words end in [0, 1]."""
        power = {"uniform": 0.0, "sqrt": 0.5, "frequency": 1.0}[self.sampling]
        ends_N = np.cumsum(self.counts_N.astype(np.float64) ** power)
        return ends_N / ends_N[-1]

    def none(self) -> np.ndarray:
        """Returns the words of a shard without any: zeros, uint16 [K, C]."""
        return np.zeros((self.size, self.rows_NC.shape[1]), np.uint16)

    def of(self, lane: int, lanes: int, shard: int) -> np.ndarray:
        """Returns the words of a lane's shard, uint16 [K, C]; zeros in steps without.

        Args:
          shard: its number in the lane, from 0.
        """
        if not self.size:
            return self.none()
        if self.in_order:
            first = (shard * lanes + lane) * self.size
            return self.rows_NC[(first + np.arange(self.size)) % len(self.rows_NC)]
        if (shard // self.micro_batches + 1) % self.every:
            return self.none()
        seeds = np.random.SeedSequence((self.seed, lane, shard), spawn_key=(1,))  # text draws without such a key
        draws_K = np.random.Generator(np.random.Philox(seeds)).random(self.size)
        found_K = np.searchsorted(self._ends_N, draws_K, side="right")
        return self.rows_NC[np.minimum(found_K, len(self.rows_NC) - 1)]
