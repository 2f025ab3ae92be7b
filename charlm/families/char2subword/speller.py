"""Reads a vector as the rows of a table that it resembles: the soft speller of gated mode.

The module's vectors are near the rows of the words meant, but not nearly as near as a transformer needs that knows
nothing but rows. So gated mode gives it the rows themselves: their mean under the softmax that the cross entropy of the
approximation stage trains. Where the module is certain, this is one row; where it is not, several words stay possible,
and the transformer sees them all. Open this module to change how rows are weighed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

AT_ONCE = 256  # vectors that are compared with the whole table at once


def mixed_rows(vectors_UE: jax.Array, table_VE: jax.Array, dtype: DTypeLike = jnp.float32) -> jax.Array:
    """Returns for each vector v the mean of the rows under softmax(v E), float32 [U, E].

    The table gets no gradient. Logits are not kept for the backward pass; those of `AT_ONCE` vectors are in memory.

    Args:
      vectors_UE: float32.
      table_VE: float32.
      dtype: dtype of the inputs of products; their sums are float32.
    """
    table_VE = jax.lax.stop_gradient(table_VE).astype(dtype)

    @jax.checkpoint
    def mixed(vectors_BE: jax.Array) -> jax.Array:
        logits_BV = jnp.einsum("be,ve->bv", vectors_BE.astype(dtype), table_VE, preferred_element_type=jnp.float32)
        weights_BV = jax.nn.softmax(logits_BV, axis=-1).astype(dtype)
        return jnp.einsum("bv,ve->be", weights_BV, table_VE, preferred_element_type=jnp.float32)

    U, E = vectors_UE.shape
    if U <= AT_ONCE:
        return mixed(vectors_UE)
    blocks = -(-U // AT_ONCE)
    padded = jnp.pad(vectors_UE, ((0, blocks * AT_ONCE - U), (0, 0)))
    return jax.lax.map(mixed, padded.reshape(blocks, AT_ONCE, E)).reshape(-1, E)[:U]
