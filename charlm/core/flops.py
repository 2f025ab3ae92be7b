"""Counts the floating-point operations of a training step, for model FLOPs utilisation (MFU) on the progress line.

Open it to see what MFU counts; the `flops` module of each family adds up the layers of its model by these rules.

Only matrix products count; a multiplication and an addition count as two. For a Transformer layer over sequences of
lengths l, with `queries` query positions, width D and feed-forward width F:

    2 (2 sum(l) D^2  +  2 queries D^2  +  2 queries D F)    keys, values; queries, output; feed-forward
    2 2 pairs D                                             scores, mixing
    2 r min(pairs, 2 P sum(l)) D                            scores against positions, r = 2, else 0

where pairs = sum(l^2) if every position is a query, and P is the number of position buckets of each direction: beyond 2
P words, several distances share a score. The backward pass costs twice the forward pass, so a training step costs three
forward passes, less what frozen parameters save (`charlm.core.frozen_cost`); recomputation by rematerialisation does
not count (Chowdhery et al., 2022, appendix B). Useful operations count real characters and words only, each distinct
word once; padded operations count everything in the arrays. The compiler's own count is up to a third higher: it
includes relative scores for every distance, which are computed before they are gathered into place, and the projection
of positions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from charlm.core.types import Array

TRAINING = 3  # cost of a training step, in forward passes

# Peak FLOP/s of dense bfloat16 matrix products, from the vendors' data sheets. A key matches whole words of JAX's
# device name; if one key is the beginning of another, the longer one comes first. A TPU v2 or v3 chip is two devices.
PEAKS = {
    "H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12,
    "L4": 121e12, "A10": 125e12, "TPU v2": 22.5e12, "TPU v3": 61.5e12, "TPU v4": 275e12, "TPU v5 lite": 197e12,
    "TPU v5e": 197e12, "TPU v5p": 459e12, "TPU v5": 459e12, "TPU v6 lite": 918e12, "TPU v6e": 918e12,
}  # fmt: skip


def peak(device_kind: str, dtype: str) -> float | None:
    """Returns a device's peak FLOP/s in bfloat16; None if it is not known, or for another dtype."""
    if dtype != "bfloat16":
        return None
    named = (flops for name, flops in PEAKS.items() if re.search(rf"(?<!\w){name}(?!\w)", device_kind))
    return next(named, None)


class TotalLengths(NamedTuple):
    """Totals over sequences: their number, the sum of their lengths, and the sum of the squared lengths."""

    rows: float = 0
    total: float = 0
    squares: float = 0

    def __add__(self, other: TotalLengths) -> TotalLengths:  # pyright: ignore[reportIncompatibleMethodOverride]  # of tuple
        return TotalLengths(*(a + b for a, b in zip(self, other, strict=True)))


def lengths_of(real: Array) -> TotalLengths:
    """Returns the totals of sequences [..., L] whose non-zero positions are real; rows of zeros are not counted."""
    lengths = np.count_nonzero(real, axis=-1).astype(np.float64)
    return TotalLengths(float(np.count_nonzero(lengths)), float(lengths.sum()), float(np.square(lengths).sum()))


def text_lengths(mask: Array) -> TotalLengths:
    """Returns the totals of the texts of rows [..., L]: by a bool mask one a row, by one of numbers several.

    See `charlm.nn.masks`.
    """
    if mask.dtype == bool:
        return lengths_of(mask)
    number_RL = np.asarray(mask).reshape(-1, mask.shape[-1])
    text_RL = np.arange(len(number_RL))[:, None] * (number_RL.max(initial=0) + 1) + number_RL
    lengths = np.bincount(text_RL[number_RL > 0]).astype(np.float64)
    return TotalLengths(float(np.count_nonzero(lengths)), float(lengths.sum()), float(np.square(lengths).sum()))


def full_lengths(array: Array) -> TotalLengths:
    """Returns the totals of sequences [..., L], counting every position, padding included."""
    *batch, length = np.shape(array)
    rows = float(np.prod(batch))
    return TotalLengths(rows, rows * length, rows * length**2)


def layer(tokens: float, queries: float, pairs: float, hidden: int, ffn: int, buckets: int = 0) -> float:
    """Returns the operations of a layer's forward pass, see the module's formula.

    Args:
      tokens: sum(l).
      buckets: P; 0: no relative positions.
    """
    dense = 2 * (2 * tokens * hidden**2 + 2 * queries * hidden**2 + 2 * queries * hidden * ffn)
    return dense + 2 * (2 * pairs + 2 * min(pairs, 2 * buckets * tokens)) * hidden
