"""Embeddings of the character n-grams of a word by a hash, added to its characters' vectors.

A word's endings and roots then have vectors of their own below all layers. The rows are computed from the characters
inside the program, so the data layer knows nothing of them, and a word's cached vector includes them. Sources: vectors
of the n-grams that end at a byte, by a rolling polynomial hash, added to the byte's (Pagnoni et al., 2024, Byte Latent
Transformer, section 3.2.1); n-grams that tell where a word begins and ends, and one table for all sizes (Bojanowski et
al., 2017, fastText, section 3.2). `charlm.nn.embed` has the table. Open it to change the hash, or what an n-gram is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

FACTOR = 0x01000193  # of the polynomial: the prime of the FNV hash, which fastText uses
MIXERS = (0x85EBCA6B, 0xC2B2AE35)  # of MurmurHash3: so that the lowest bits, which choose the row, depend on all


def ngram_rows(chars: jax.Array, size: int, rows: int) -> tuple[jax.Array, jax.Array]:
    """Returns the row of the n-gram that ends at each slot, and whether there is one; both [..., C], int32 and bool.

    An n-gram is `size` slots of one word; slot 0, [WORD_CLS], counts, so those at a word's beginning differ from the
    same characters inside a word. So do those at its end. The hash is of 32 bits, the same on every machine.

    Args:
      chars: ids [..., C], 0 pads.
      size: slots of an n-gram.
      rows: number of rows to choose from.
    """
    ids = chars.astype(jnp.uint32)
    none = [(0, 0)] * (ids.ndim - 1)
    after = jnp.pad(ids, [*none, (0, 1)])[..., 1:]
    is_last = (ids != 0) & (after == 0)
    padded = jnp.pad(ids, [*none, (size - 1, 0)])
    slots = ids.shape[-1]
    code = jnp.full_like(ids, size) + is_last.astype(jnp.uint32) * jnp.uint32(FACTOR)
    there = ids != 0
    for start in range(size):  # the first character of the n-gram has the highest power
        part = jax.lax.slice_in_dim(padded, start, start + slots, axis=-1)
        code = code * jnp.uint32(FACTOR) + part
        there &= part != 0
    for mixer in MIXERS:
        code = (code ^ (code >> jnp.uint32(15))) * jnp.uint32(mixer)
    code ^= code >> jnp.uint32(16)
    return (code % jnp.uint32(rows)).astype(jnp.int32), there
