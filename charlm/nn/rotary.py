"""Self-attention with rotary positions: queries and keys are turned by their places, so scores tell distances.

Since a position changes queries and keys and adds nothing to the scores, any stock kernel of attention computes it
(`charlm.nn.kernels`). Pairs of columns are turned by angles that grow with the position (Su et al., 2021, RoFormer,
section 3.2.2); a column's partner stands half a head away, as in most released models, or beside it, as in RoFormer's.
HLM's encoder between words has it with `model.position=rotary`; RoFormer's layers (`charlm.nn.blocks`) use `rotated`.
Open it to change the angles, how a local layer is computed, or what is kept of earlier positions where a text is
written from left to right (`KEPT`).
"""

from __future__ import annotations

import math
from typing import TypedDict

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import dense
from charlm.nn.kernels import Drop, attend, choose_tiled, this_machine
from charlm.nn.masks import near, numbers_texts, visible_keys
from charlm.nn.sizes import is_symbolic

KEPT = "kept"  # collection of the keys and values of earlier positions


class Kept(TypedDict):
    """What an attention layer keeps of earlier positions, in the collection `KEPT`.

    Attributes:
      key_BNHK, value_BNHK: keys, turned, and values, in the layer's dtype; N positions, filled from the left.
      start: int32 scalar, the number of positions that are filled.
    """

    key_BNHK: jax.Array
    value_BNHK: jax.Array
    start: jax.Array


def nothing_kept(rows: int, positions: int, heads: int, width: int, dtype: DTypeLike) -> Kept:
    """Returns what a layer of the given width keeps before the first position, with room for `positions`."""
    empty_BNHK = jnp.zeros((rows, positions, heads, width // heads), dtype)
    return Kept(key_BNHK=empty_BNHK, value_BNHK=empty_BNHK, start=jnp.zeros((), jnp.int32))


def rotated(x_BLHK: jax.Array, base: float, start: jax.Array | int = 0, neighbours: bool = False) -> jax.Array:
    """Turns the vectors of each position by its angles; returns float32 of the same shape.

    Columns i and i + K / 2 of position p are turned by p * base^(-2 i / K), so a product of two vectors depends on the
    distance of their positions alone.

    Args:
      x_BLHK: queries or keys, K even; L positions.
      base: one turn of the slowest pair takes 2 pi base^(1 - 2 / K) positions.
      start: the first position.
      neighbours: whether columns 2 i and 2 i + 1 are turned together instead, as in RoFormer.
    """
    length, K = x_BLHK.shape[1], x_BLHK.shape[3]
    speed_K = base ** (-jnp.arange(0, K, 2, dtype=jnp.float32) / K)
    angle_LK = (start + jnp.arange(length)).astype(jnp.float32)[:, None] * speed_K[None]
    cos, sin = (turn(angle_LK)[None, :, None] for turn in (jnp.cos, jnp.sin))
    x_BLHK = x_BLHK.astype(jnp.float32)
    first, second = (x_BLHK[..., 0::2], x_BLHK[..., 1::2]) if neighbours else jnp.split(x_BLHK, 2, axis=-1)
    turned = first * cos - second * sin, second * cos + first * sin
    return jnp.stack(turned, axis=-1).reshape(x_BLHK.shape) if neighbours else jnp.concatenate(turned, axis=-1)


class RotaryAttention(nn.Module):
    """Multi-head self-attention with rotary positions.

    If it is called with a `Kept` in the collection `KEPT`, which must then be mutable, the positions of the call follow
    those that are kept, see them, and are kept with them.

    Attributes:
      heads: number of heads H; the width of a head, D / H, must be even.
      dropout: dropout rate of the attention probabilities.
      kernel: one of `charlm.nn.kernels.KERNELS`.
      bias: whether the projections add a bias.
      base: see `rotated`.
      window: positions on each side that a query sees; 0: all.
      causal: whether a query sees only itself and positions before it.
    """

    heads: int
    dropout: float
    initializer: str
    dtype: DTypeLike
    kernel: str = "auto"
    bias: bool = True
    base: float = 10_000.0
    window: int = 0
    causal: bool = False

    @nn.compact
    def __call__(self, x_BLD: jax.Array, mask_BL: jax.Array, queries: int, deterministic: bool) -> jax.Array:
        """Returns the attention output [B, queries, D] of the first `queries` positions of x_BLD.

        Args:
          x_BLD: states.
          mask_BL: bool, True at real positions, or the numbers of texts (`charlm.nn.masks`); keys that a query does not
            see get probability exactly 0. With kept positions: bool [B, N], of these and the positions of the call.
          queries: number of leading positions used as queries; all L positions give keys and values.
        """
        B, _, D = x_BLD.shape
        K = D // self.heads

        def project(name: str, x: jax.Array) -> jax.Array:
            y = dense(D, D, self.initializer, self.dtype, name, self.bias)(x)
            return y.reshape(*x.shape[:2], self.heads, K)

        follows = self.has_variable(KEPT, "start")
        start = self.get_variable(KEPT, "start") if follows else 0
        query = rotated(project("query", x_BLD[:, :queries]), self.base, start) * (1 / math.sqrt(K))
        query, key = query.astype(self.dtype), rotated(project("key", x_BLD), self.base, start).astype(self.dtype)
        value = project("value", x_BLD)
        reads, drops = self.is_mutable_collection("intermediates"), self.dropout > 0 and not deterministic
        if follows:
            mixed = self._following(query, key, value, mask_BL)
        elif self._by_tiles(jax.ShapeDtypeStruct((queries, K), self.dtype), mask_BL, reads):
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

    def _following(
        self, query_BLHK: jax.Array, key_BLHK: jax.Array, value_BLHK: jax.Array, mask_BN: jax.Array
    ) -> jax.Array:
        """Returns the means of values [B, L, D] over the kept positions and those of the call, which it keeps."""
        B, L = query_BLHK.shape[:2]
        start = self.get_variable(KEPT, "start")

        def keep(name: str, new_BLHK: jax.Array) -> jax.Array:
            all_BNHK = self.get_variable(KEPT, name)
            all_BNHK = jax.lax.dynamic_update_slice_in_dim(all_BNHK, new_BLHK, start, axis=1)
            self.put_variable(KEPT, name, all_BNHK)
            return all_BNHK.swapaxes(1, 2)

        key, value = keep("key_BNHK", key_BLHK), keep("value_BNHK", value_BLHK)
        self.put_variable(KEPT, "start", start + L)
        distance_LN = start + jnp.arange(L)[:, None] - jnp.arange(key.shape[2])[None]
        visible = mask_BN[:, None, None] & near(distance_LN, self.window, True)[None, None]
        mixed, _ = attend(self.kernel, query_BLHK.swapaxes(1, 2), key, value, visible, probabilities=False)
        return mixed.swapaxes(1, 2).reshape(B, L, -1)

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
            blocks, visible = local_blocks(*given, mask_BL, self.window, self.causal)
            return joined(attend(self.kernel, *blocks, visible, drop=drop, probabilities=False)[0], B, L)
        visible = visible_keys(mask_BL, slice(0, queries), self.window, self.causal)[:, None]
        mixed, probs = attend(self.kernel, *given, visible, drop=drop, probabilities=reads)
        if reads:
            self.sow("intermediates", "probs", probs)
        return mixed

    def _by_tiles(self, of_head: jax.ShapeDtypeStruct, mask_BL: jax.Array, reads: bool) -> bool:
        """Whether `tiled_attention` computes it: its tiles know masks of keys alone, not of pairs."""
        if is_symbolic(*of_head.shape, mask_BL.shape[1]) or numbers_texts(mask_BL) or self.window or self.causal:
            return False
        chosen = choose_tiled(self.kernel, this_machine(), of_head, mask_BL.shape[1], reads)
        return chosen and not self.is_initializing()


def local_blocks(
    query_BHLK: jax.Array,
    key_BHLK: jax.Array,
    value_BHLK: jax.Array,
    mask_BL: jax.Array,
    window: int,
    causal: bool = False,
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
    """Cuts rows into blocks as long as the window, each with the keys of its own block and of those beside it.

    So a local layer computes three scores for each visible side instead of one for every position of the row.

    Args:
      mask_BL: as in `RotaryAttention`.
      window: positions on each side that a query sees.
      causal: as in `RotaryAttention`.

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
    seen &= near(place[:window, None] + window - place[None], window, causal)[None, None]
    visible = seen.reshape(B * blocks, 1, window, 3 * window)
    merged = lambda x: x.reshape(B * blocks, *x.shape[2:])
    beside = lambda x: merged(with_sides(cut(x)))
    return (merged(cut(query_BHLK)), beside(key_BHLK), beside(value_BHLK)), visible


def joined(mixed: jax.Array, rows: int, length: int) -> jax.Array:
    """Returns [B, H, L, K] of the blocks [B * blocks, H, window, K] that `local_blocks` made of `rows` B rows."""
    _, H, window, K = mixed.shape
    blocks = mixed.reshape(rows, -1, H, window, K)
    return jnp.moveaxis(blocks, 1, 2).reshape(rows, H, -1, K)[:, :, :length]
