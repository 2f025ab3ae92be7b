"""Self-attention with rotary positions: queries and keys are turned by their places, so scores tell distances.

Since a position changes queries and keys and adds nothing to the scores, any stock kernel of attention computes it
(`charlm.nn.kernels`). Pairs of columns are turned by angles that grow with the position (Su et al., 2021, RoFormer,
section 3.2.2); a column's partner stands half a head away, as in most released models. HLM's encoder between words has
it with `model.position=rotary`. Open it to change the angles, or how a local layer is computed.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import dense
from charlm.nn.kernels import Drop, attend, choose_tiled, this_machine
from charlm.nn.masks import numbers_texts, visible_keys
from charlm.nn.sizes import is_symbolic


def rotated(x_BLHK: jax.Array, base: float) -> jax.Array:
    """Turns the vectors of each position by its angles; returns float32 of the same shape.

    Columns i and i + K / 2 of position p are turned by p * base^(-2 i / K), so a product of two vectors depends on the
    distance of their positions alone.

    Args:
      x_BLHK: queries or keys, K even; L positions from 0.
      base: one turn of the slowest pair takes 2 pi base^(1 - 2 / K) positions.
    """
    length, K = x_BLHK.shape[1], x_BLHK.shape[3]
    speed_K = base ** (-jnp.arange(0, K, 2, dtype=jnp.float32) / K)
    angle_LK = jnp.arange(length, dtype=jnp.float32)[:, None] * speed_K[None]
    cos, sin = (turn(angle_LK)[None, :, None] for turn in (jnp.cos, jnp.sin))
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class RotaryAttention(nn.Module):
    """Multi-head self-attention with rotary positions.

    Attributes:
      heads: number of heads H; the width of a head, D / H, must be even.
      dropout: dropout rate of the attention probabilities.
      kernel: one of `charlm.nn.kernels.KERNELS`.
      bias: whether the projections add a bias.
      base: see `rotated`.
      window: positions on each side that a query sees; 0: all.
    """

    heads: int
    dropout: float
    initializer: str
    dtype: DTypeLike
    kernel: str = "auto"
    bias: bool = True
    base: float = 10_000.0
    window: int = 0

    @nn.compact
    def __call__(self, x_BLD: jax.Array, mask_BL: jax.Array, queries: int, deterministic: bool) -> jax.Array:
        """Returns the attention output [B, queries, D] of the first `queries` positions of x_BLD.

        Args:
          x_BLD: states.
          mask_BL: bool, True at real positions, or the numbers of texts (`charlm.nn.masks`); keys that a query does not
            see get probability exactly 0.
          queries: number of leading positions used as queries; all L positions give keys and values.
        """
        B, _, D = x_BLD.shape
        K = D // self.heads

        def project(name: str, x: jax.Array) -> jax.Array:
            y = dense(D, D, self.initializer, self.dtype, name, self.bias)(x)
            return y.reshape(*x.shape[:2], self.heads, K)

        query = rotated(project("query", x_BLD[:, :queries]), self.base) * (1 / math.sqrt(K))
        query, key = query.astype(self.dtype), rotated(project("key", x_BLD), self.base).astype(self.dtype)
        value = project("value", x_BLD)
        reads, drops = self.is_mutable_collection("intermediates"), self.dropout > 0 and not deterministic
        if self._by_tiles(jax.ShapeDtypeStruct((queries, K), self.dtype), mask_BL, reads):
            from charlm.nn import tiled  # see `charlm.nn.kernels`

            side_by_side = lambda y_BNHK: y_BNHK.reshape(*y_BNHK.shape[:2], D)
            mixed = tiled.tiled_attention(
                side_by_side(query),
                side_by_side(key),
                side_by_side(value),
                mask_BL,
                heads=self.heads,
                rate=self.dropout if drops else 0.0,
                seed_2=jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32) if drops else None,
                chip=this_machine().tiles,
                interpret=this_machine().platform == "cpu",
            )
        else:
            drop = nn.Dropout(self.dropout, deterministic=False) if drops else None
            query, key, value = (y.swapaxes(1, 2) for y in (query, key, value))
            mixed = self._mixed(query, key, value, mask_BL, drop, reads)
            mixed = mixed.swapaxes(1, 2).reshape(B, queries, D)
        self.sow("intermediates", "mixed", mixed)
        return dense(D, D, self.initializer, self.dtype, "output", self.bias)(mixed)

    def _mixed(
        self,
        query_BHQK: jax.Array,
        key_BHLK: jax.Array,
        value_BHLK: jax.Array,
        mask_BL: jax.Array,
        drop: Drop | None,
        reads: bool,
    ) -> jax.Array:
        """Returns the means of values [B, H, Q, K] by a stock kernel, in blocks where a window leaves out most keys."""
        queries, (B, L) = query_BHQK.shape[2], mask_BL.shape
        given = query_BHQK, key_BHLK, value_BHLK
        if self.window and not (reads or is_symbolic(L, queries)) and queries == L > 3 * self.window:
            blocks, visible = local_blocks(*given, mask_BL, self.window)
            return joined(attend(self.kernel, *blocks, visible, drop=drop, probabilities=False)[0], B, L)
        visible = visible_keys(mask_BL, slice(0, queries), self.window)[:, None]
        mixed, probs = attend(self.kernel, *given, visible, drop=drop, probabilities=reads)
        if reads:
            self.sow("intermediates", "probs", probs)
        return mixed

    def _by_tiles(self, of_head: jax.ShapeDtypeStruct, mask_BL: jax.Array, reads: bool) -> bool:
        """Whether `tiled_attention` computes it: its tiles know masks of keys alone, not texts in a row or windows."""
        if is_symbolic(*of_head.shape, mask_BL.shape[1]) or numbers_texts(mask_BL) or self.window:
            return False
        chosen = choose_tiled(self.kernel, this_machine(), of_head, mask_BL.shape[1], reads)
        return chosen and not self.is_initializing()


def local_blocks(
    query_BHLK: jax.Array, key_BHLK: jax.Array, value_BHLK: jax.Array, mask_BL: jax.Array, window: int
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
    """Cuts rows into blocks as long as the window, each with the keys of its own block and of those beside it.

    So a local layer computes three scores for each visible side instead of one for every position of the row.

    Args:
      mask_BL: as in `RotaryAttention`.
      window: positions on each side that a query sees.

    Returns:
      Queries [B * blocks, H, window, K]; keys and values [B * blocks, H, 3 * window, K]; and bool [B * blocks, 1,
      window, 3 * window], True where a query sees a key.
    """
    B, _, L, _ = query_BHLK.shape
    blocks = -(-L // window)
    beyond = blocks * window - L

    def cut(x: jax.Array) -> jax.Array:  # [B, ..., L, K] -> [B, blocks, ..., window, K]
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, beyond), (0, 0)])
        return jnp.moveaxis(padded.reshape(*x.shape[:-2], blocks, window, x.shape[-1]), -3, 1)

    def with_sides(x: jax.Array) -> jax.Array:  # [B, blocks, ..., window, K] -> [B, blocks, ..., 3 * window, K]
        more = jnp.pad(x, [(0, 0), (1, 1)] + [(0, 0)] * (x.ndim - 2))
        return jnp.concatenate([more[:, :-2], more[:, 1:-1], more[:, 2:]], axis=-2)

    own = cut(mask_BL.astype(jnp.int32)[..., None])
    text_BJN = with_sides(own)[..., 0]
    if numbers_texts(mask_BL):
        seen = own == text_BJN[:, :, None]
    else:
        seen = jnp.broadcast_to(text_BJN[:, :, None] != 0, (B, blocks, window, 3 * window))
    place = jnp.arange(3 * window)
    near = jnp.abs(place[None] - window - place[:window, None]) <= window
    visible = (seen & near[None, None]).reshape(B * blocks, 1, window, 3 * window)
    merged = lambda x: x.reshape(B * blocks, *x.shape[2:])
    beside = lambda x: merged(with_sides(cut(x)))
    return (merged(cut(query_BHLK)), beside(key_BHLK), beside(value_BHLK)), visible


def joined(mixed: jax.Array, rows: int, length: int) -> jax.Array:
    """Returns [B, H, L, K] of the blocks [B * blocks, H, window, K] that `local_blocks` made of `rows` B rows."""
    _, H, window, K = mixed.shape
    blocks = mixed.reshape(rows, -1, H, window, K)
    return jnp.moveaxis(blocks, 1, 2).reshape(rows, H, -1, K)[:, :, :length]
