"""Skews tiles of scores by relative position, inside a kernel for TPUs; open it to change how rows are shifted.

The score of row r and column c with their relative position is the product of row r with row c - r + n of a run of
positions. So a strip of `ROWS` rows is multiplied with a run, and row r of the result is shifted left by r.
A TPU rotates the rows of a register by a multiple of their number as one operation (`pltpu.roll` with a stride). In the
interpreter, on CPUs, both shifts are reshapes, which the tests compare with the rotations.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

ROWS = 128  # rows of a strip: the fewer, the fewer products with positions that are shifted out
GROUP = 8  # rows of a register of float32


def skewed(scores: jax.Array, interpret: bool) -> jax.Array:
    """Shifts row r of float32 [ROWS, ROWS + columns] left by ROWS - r; returns [ROWS, columns]."""
    columns = scores.shape[1] - ROWS
    if not interpret:
        return pltpu.roll(scores, columns, 1, stride=1, stride_axis=0)[:, :columns]
    return scores.reshape(-1)[ROWS:].reshape(ROWS, -1)[:, :columns]


def unskewed(scores: jax.Array, interpret: bool) -> jax.Array:
    """Shifts row r of float32 [ROWS, columns] right by ROWS - r into zeros, as the transpose of `skewed` does.

    Returns:
      [ROWS, ROWS + columns]
    """
    columns = scores.shape[1]
    width = columns + ROWS
    if interpret:
        flat = jnp.pad(scores, ((0, 0), (0, ROWS - 1))).reshape(-1)
        return jnp.pad(flat, (ROWS, 0)).reshape(ROWS, width)
    padded = jnp.concatenate([scores, jnp.zeros((ROWS, ROWS), scores.dtype)], axis=1)
    # A rotation has no negative stride. With its groups of rows in reverse, row s of group a (from 0) is rotated by
    # ROWS - 8 a + s; what is too much, 2 s, has three bits.
    rotated = _reversed(pltpu.roll(_reversed(padded), GROUP, 1, stride=1, stride_axis=0))
    row = jax.lax.broadcasted_iota(jnp.int32, (ROWS, width), 0)
    for bit in (1, 2, 4):
        rotated = jnp.where(row & bit != 0, pltpu.roll(rotated, width - 2 * bit, 1), rotated)
    return rotated


def _reversed(x: jax.Array) -> jax.Array:
    """Returns the groups of rows in reverse order; the rows of a group keep their order."""
    return jnp.concatenate([x[start : start + GROUP] for start in reversed(range(0, ROWS, GROUP))], axis=0)
