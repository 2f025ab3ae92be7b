"""Masks of rows: which positions are real and, where several texts share a row, which text each position is of.

A mask bool [B, L] is True at real positions of rows that hold one text each. A mask of integers numbers the texts of a
row: 1 at the positions of the first text, 2 at those of the second, and so on, one after the other, and 0 at padding.
Attention then stays within a text, and positions are counted from its start, so a text's states are those that it has
in a row of its own. An integer mask of 0 and 1 thus means the same as a bool one. BERT, RoBERTa, RoFormer, GPT-2 and
HLM take either kind, and the families on them; CharBERT takes bool alone. Open it when a model should read rows of
several texts (`charlm.families.unpadded`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def numbers_texts(mask_BL: jax.Array) -> bool:
    """Returns whether a mask numbers the texts of its rows."""
    return jnp.issubdtype(mask_BL.dtype, jnp.integer)


def real_positions(mask_BL: jax.Array) -> jax.Array:
    """Returns bool [B, L], True at the positions of texts."""
    return mask_BL != 0 if numbers_texts(mask_BL) else mask_BL


def starts(states_BLD: jax.Array, mask_BL: jax.Array | None) -> jax.Array:
    """Returns the states at the starts of texts: [B, D], those of the first position of each row.

    Where the mask numbers the texts of rows, [B, L, D]: those of every position, since a text may start at any.
    """
    return states_BLD if mask_BL is not None and numbers_texts(mask_BL) else states_BLD[:, 0]


def means(states_BLD: jax.Array, mask_BL: jax.Array | None) -> jax.Array:
    """Returns the mean states of texts, [B, D] in the dtype of the states; the sums are float32.

    Where the mask numbers the texts of rows, [B, L, D]: at every position the mean of its text, 0 at padding.
    """
    if mask_BL is None:
        return states_BLD.mean(axis=1, dtype=jnp.float32).astype(states_BLD.dtype)
    real_BL = real_positions(mask_BL)
    if not numbers_texts(mask_BL):
        sums_BD = jnp.einsum("bl,bld->bd", real_BL.astype(jnp.float32), states_BLD.astype(jnp.float32))
        return (sums_BD / jnp.maximum(real_BL.sum(axis=1), 1)[:, None]).astype(states_BLD.dtype)
    same_BLN = (mask_BL[:, :, None] == mask_BL[:, None, :]) & real_BL[:, :, None]
    shares_BLN = same_BLN / jnp.maximum(same_BLN.sum(axis=-1, keepdims=True), 1)
    return jnp.einsum("bln,bnd->bld", shares_BLN, states_BLD.astype(jnp.float32)).astype(states_BLD.dtype)


def visible_keys(mask_BL: jax.Array, queries: slice = slice(None), window: int = 0, causal: bool = False) -> jax.Array:
    """Returns which keys the positions `queries` see: bool [B, 1, N] or [B, queries, N].

    The latter with numbered texts, a window or causal attention. What a query at padding sees has no meaning.

    Args:
      window: keys on each side of a query that it sees; 0: all of its text.
      causal: whether a query sees only itself and keys before it.
    """
    seen = mask_BL[:, None, :] if not numbers_texts(mask_BL) else mask_BL[:, queries, None] == mask_BL[:, None, :]
    if not (window or causal):
        return seen
    place_L = jnp.arange(mask_BL.shape[1])
    return seen & near(place_L[queries, None] - place_L[None], window, causal)[None]


def near(distance: jax.Array, window: int, causal: bool) -> jax.Array:
    """Returns bool, True at distances, query - key, that a query sees; the arguments are those of `visible_keys`."""
    inside = jnp.abs(distance) <= window if window else jnp.full(distance.shape, True)
    return inside & (distance >= 0) if causal else inside


def counted(is_counted_BL: jax.Array, mask_BL: jax.Array) -> jax.Array:
    """Returns the number of counted positions from the start of the own text up to and with each position, int32.

    The first text of a row starts where the row does, even if padding stands before it; every further one starts at its
    first position.

    Args:
      is_counted_BL: bool, the positions to count.
      mask_BL: the mask; if it is bool, a row is one text.
    """
    count_BL = jnp.cumsum(is_counted_BL, axis=1, dtype=jnp.int32)
    if not numbers_texts(mask_BL):
        return count_BL
    most_BL = jax.lax.cummax(mask_BL.astype(jnp.int32), axis=1)
    begins_BL = (most_BL > 1) & (jnp.diff(most_BL, axis=1, prepend=most_BL[:, :1]) > 0)
    before_BL = jnp.where(begins_BL, count_BL - is_counted_BL, 0)  # what texts before this one have
    return count_BL - jax.lax.cummax(before_BL, axis=1)
