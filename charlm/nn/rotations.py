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


@functools.cache
def _add_to_pallas() -> None:
    """Registers the translation to Triton. It is imported late: JAX's packages for CPUs and TPUs need not have it."""
    from jax._src.lib.triton import dialect
    from jax._src.pallas.triton.lowering import register_lowering

    def translated(context: Any, x: Any, columns: Any) -> Any:  # values of MLIR, which has no types here
        del context
        return dialect.gather(x, columns, 1)

    register_lowering(taken_p)(translated)
