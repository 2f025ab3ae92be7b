"""Counts the operations of one product of a compiled program: a dot, a convolution, a library's call, or our tiles.

Open it when the operations of a product differ from XLA's. Only pairs of numbers that a product really multiplies
count, not those in which padding or dilation inserted a zero.
"""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from charlm.plan.hlo import HloArray, Instruction

# By the name of a kernel of tiles on GPUs (`charlm.nn.gpu_tiles`, `charlm.nn.gpu_words`): how many operands it has
# without tables of positions, how many products of [queries, keys, K] it computes then, and how many more with them.
_TILES = {
    "tiled_attention": (5, 2, 4),
    "tiled_attention_backward_of_queries": (8, 3, 6),
    "tiled_attention_backward_of_keys": (4, 2, 2),
    "tiled_attention_backward_of_positions": (2, 0, 4),
    "tiled_attention_of_words": (5, 2, 4),
    "tiled_attention_of_words_backward": (6, 5, 8),
    "tiled_attention_of_words_backward_of_positions": (2, 0, 4),
}
_SHARED = 64  # rows of a tile that words share: each has products with all of them


def product(one: Instruction, read: list[HloArray]) -> float:
    """Returns the operations of a dot, a convolution, a call of a library for either, or our tiles; 0 for other calls.

    Args:
      one: the instruction.
      read: its operands.
    """
    if one.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.attributes)
        return 2.0 * one.results[0].size * _sizes_at(read[0], contracted[1] if contracted else "")
    if one.opcode == "custom-call" and "dim_labels=" not in one.attributes:
        contracted = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', one.attributes)
        if contracted is None or not read:
            return _tiles(one, read)
        return 2.0 * one.results[0].size * _sizes_at(read[0], contracted[1].replace('"', ""))
    return _convolution(one, read)


def _tiles(one: Instruction, read: list[HloArray]) -> float:
    """Returns the operations of a kernel of tiles on GPUs; 0 for other calls."""
    named = re.search(r'op_name="[^"]*/(tiled_attention\w*)/pallas_call"', one.attributes)
    if named is None or "triton" not in one.attributes:
        return 0.0
    operands, plain, more = _TILES[named[1]]
    states = [array.shape for array in read if array.dtype == "bf16"]
    pairs = _SHARED if "_of_words" in named[1] else _keys(states)
    return 2.0 * math.prod(states[0]) * pairs * (plain + (more if len(read) > operands else 0))


def _keys(states: list[tuple[int, ...]]) -> int:
    """Returns the number of keys: the last axis of scores [B, H, Q, N] if a kernel reads some, else from the keys."""
    scores = [shape for shape in states if len(shape) == 4]
    return scores[0][-1] if scores else states[1][1]


def _sizes_at(array: HloArray, axes: str) -> int:
    return math.prod(array.shape[int(axis)] for axis in axes.split(",") if axis.strip())


def _convolution(one: Instruction, read: list[HloArray]) -> float:
    labels = re.search(r"dim_labels=([\w?]+)_([\w?]+)->([\w?]+)", one.attributes)
    if labels is None or len(read) < 2:
        return 0.0
    x, kernel, y = read[0], read[1], one.results[0]
    if "BackwardInput" in one.attributes:  # results and operands change places
        x, y = y, x
    elif "BackwardFilter" in one.attributes:
        kernel, y = y, kernel
    of_x, _, of_y = labels.groups()
    feature = re.search(r"feature_group_count=(\d+)", one.attributes)
    batch = re.search(r"batch_group_count=(\d+)", one.attributes)
    spatial = [label for label in of_x if label.isdigit()]
    pairs = 1.0
    ones = (1,) * len(spatial)
    sizes = one.window("size", ones)
    pads = re.search(r"window=\{[^}]*\bpad=([\d_x\-]+)", one.attributes)
    low = [int(pad.split("_")[0]) for pad in pads[1].split("x")] if pads else [0] * len(spatial)
    stride, dilate = one.window("stride", ones), one.window("lhs_dilate", ones)
    spread = one.window("rhs_dilate", ones)
    for i, label in enumerate(spatial):
        pairs *= _real_pairs(
            x.shape[of_x.index(label)], y.shape[of_y.index(label)], sizes[i], stride[i], low[i], dilate[i], spread[i]
        )
    groups = int(feature[1]) if feature else 1
    inputs = x.shape[of_x.index("f")] / groups * (x.shape[of_x.index("b")] / (int(batch[1]) if batch else 1))
    return 2.0 * inputs * y.shape[of_y.index("f")] * pairs


@functools.cache
def _real_pairs(size: int, out: int, window: int, stride: int, low: int, dilate: int, spread: int) -> int:
    """Returns how many pairs of an output and a window position read a real number, not one of padding or dilation."""
    place_OW = np.arange(out)[:, None] * stride + np.arange(window)[None] * spread - low
    real = (place_OW >= 0) & (place_OW <= (size - 1) * dilate) & (place_OW % dilate == 0)
    return int(real.sum())
