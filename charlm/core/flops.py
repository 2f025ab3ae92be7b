"""Floating-point operations of a step, by one formula, and the share of a chip's peak that they make (MFU).

Matrix products alone count, a multiplication and an addition as two. For a Transformer layer over sequences of lengths
l, with `queries` positions that ask, width D and feed-forward F:

    2 (2 sum(l) D^2  +  2 queries D^2  +  2 queries D F)    keys, values; queries, output; feed-forward
    2 2 pairs D                                             scores, mixing
    2 r min(pairs, 2 P sum(l)) D                            scores against positions, r = 2, else 0

where pairs = sum(l^2) when every position asks, and P is the number of position buckets of each direction: beyond 2 P
words, several distances share a score. Backward costs twice the forward pass, so a training step is three
forward passes; what rematerialisation computes again is not useful and does not count (Chowdhery et al., 2022,
appendix B). Useful operations count real characters and words, each distinct word once; padded ones all that the arrays
hold. The compiler counts up to a third more: relative scores are taken for every distance before they are put in place,
and positions are projected.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from charlm.core.batch import Array

TRAINING = 3  # forward passes that a training step costs

# Peak of dense bfloat16 matrix products, FLOP/s, from the makers' data sheets; by how JAX names the device, whole words
# of it, the longest name first. A chip of TPU v2 or v3 is two devices.
PEAKS = {
    "H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12,
    "L4": 121e12, "A10": 125e12, "TPU v2": 22.5e12, "TPU v3": 61.5e12, "TPU v4": 275e12, "TPU v5 lite": 197e12,
    "TPU v5e": 197e12, "TPU v5p": 459e12, "TPU v5": 459e12, "TPU v6 lite": 918e12, "TPU v6e": 918e12,
}  # fmt: skip


def peak(device_kind: str, dtype: str) -> float | None:
    """Returns the FLOP/s a device can do at most in bfloat16; None where that is not known, or for another dtype."""
    if dtype != "bfloat16":
        return None
    named = (flops for name, flops in PEAKS.items() if re.search(rf"(?<!\w){name}(?!\w)", device_kind))
    return next(named, None)


class Lengths(NamedTuple):
    """Of some sequences: how many, the sum of their lengths, and that of the squares."""

    rows: float = 0
    total: float = 0
    squares: float = 0

    def __add__(self, other: Lengths) -> Lengths:  # pyright: ignore[reportIncompatibleMethodOverride]  # of tuple
        return Lengths(*(a + b for a, b in zip(self, other, strict=True)))


def lengths_of(real: Array) -> Lengths:
    """Returns the lengths of sequences [..., L] whose non-zero positions are real; a row without one is none."""
    lengths = np.count_nonzero(real, axis=-1).astype(np.float64)
    return Lengths(float(np.count_nonzero(lengths)), float(lengths.sum()), float(np.square(lengths).sum()))


def full_lengths(array: Array) -> Lengths:
    """Returns the lengths of sequences [..., L] whose every position is computed."""
    *batch, length = np.shape(array)
    rows = float(np.prod(batch))
    return Lengths(rows, rows * length, rows * length**2)


def layer(tokens: float, queries: float, pairs: float, hidden: int, ffn: int, buckets: int = 0) -> float:
    """Returns the operations of a layer, forward; see the module's formula. buckets: P; 0: no relative positions."""
    dense = 2 * (2 * tokens * hidden**2 + 2 * queries * hidden**2 + 2 * queries * hidden * ffn)
    return dense + 2 * (2 * pairs + 2 * min(pairs, 2 * buckets * tokens)) * hidden
