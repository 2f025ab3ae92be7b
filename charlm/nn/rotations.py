"""Rotates the rows of a tile, each by its own number of columns, inside a kernel for GPUs; open it to change how.

Scores of relative positions are skewed by it, see `charlm.nn.gpu_tiles`. Triton takes numbers from other columns of a
row in one operation, `tt.gather`, which its compiler turns into shuffles inside a warp. Pallas has no name for it, so
this module makes one and adds it to Pallas' translation to Triton: a private part of JAX, which is used nowhere else.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive

_UPPER = 0xFFFF0000  # the upper half of a word: that of a float32 number is a bfloat16 number

taken_p = Primitive("charlm_taken_in_row")
taken_p.def_abstract_eval(lambda x, columns: ShapedArray(columns.shape, x.dtype))


def rotated(x: jax.Array, step: int, interpret: bool) -> jax.Array:
    """Rotates row r of [N, N] by `step` * r columns to the right; N is a power of two.

    Args:
      x: the rows.
      step: 1 or -1.
      interpret: whether the kernel runs in Pallas' interpreter.
    """
    row, column = (jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) for axis in (0, 1))
    columns = (column - step * row) & (x.shape[1] - 1)
    if interpret:
        return jnp.take_along_axis(x, columns, axis=1)
    _add_to_pallas()
    return taken_p.bind(x, columns)


def rotated_together(x: jax.Array, y: jax.Array, step: int, interpret: bool) -> tuple[jax.Array, jax.Array]:
    """Returns `rotated` of two arrays, both float32 or both bfloat16; float32 numbers are rounded to bfloat16.

    Each pair of numbers is one word of 32 bits, so that both arrays take the way between threads together.
    """
    bits = lambda value, dtype: jax.lax.bitcast_convert_type(value, dtype)
    half = jnp.uint32(16)
    upper, lower = (bits(value.astype(jnp.bfloat16), jnp.uint16).astype(jnp.uint32) for value in (x, y))
    word = rotated((upper << half) | lower, step, interpret)
    if x.dtype == jnp.float32:
        return bits(word & jnp.uint32(_UPPER), jnp.float32), bits(word << half, jnp.float32)
    first, second = (bits(part.astype(jnp.uint16), jnp.bfloat16) for part in (word >> half, word))
    return first, second


@functools.cache
def _add_to_pallas() -> None:
    """Registers the translation to Triton. It is imported late: JAX's packages for CPUs and TPUs need not have it."""
    from jax._src.lib.triton import dialect
    from jax._src.pallas.triton.lowering import register_lowering

    def translated(context: Any, x: Any, columns: Any) -> Any:  # values of MLIR, which has no types here
        del context
        return dialect.gather(x, columns, 1)

    register_lowering(taken_p)(translated)
