"""Disentangled self-attention: scores of content and relative position add up (He et al., 2021; HLM, section 3.5).

    A[q, k] = (Q_q . K_k  +  Q_q . Kr[d]  +  Qr[d] . K_k) / sqrt(3 K),      d = bucket(q - k)

There is no gather. The distances within a window are a contiguous run of rows, so both position terms are scored
against that run and skewed into place by a reshape, which is exact and faster. On TPUs and GPUs the same can be done
tile by tile inside a kernel (`charlm.nn.tiled`). HLM's encoder (`charlm.nn.transformer`) uses it; open it to change how
positions enter the scores.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from charlm.nn.embed import Dense, dense
from charlm.nn.kernels import attend, choose_tiled, product, this_machine
from charlm.nn.masks import numbers_texts, visible_keys
from charlm.nn.sizes import is_symbolic

QUERY_BLOCK = 512  # queries scored at once; a longer window is computed in blocks of this size
PROJECTED = "projected"  # collection of values that depend on parameters alone; see `Encoder.project_positions`


def relative_bucket(distance: np.ndarray, buckets: int, max_distance: int) -> np.ndarray:
    """Returns the signed bucket of each distance (query position - key position).

    Distances up to `buckets / 2` have a bucket each. Beyond, buckets widen logarithmically and end at
    `max_distance - 1` (He et al., 2021, as released).

    Args:
      distance: int [...].
      buckets: number of buckets in each direction.
      max_distance: all distances from this one on share the last bucket.

    Returns:
      int64 [...] in [-(buckets - 1), buckets - 1].
    """
    distance = np.clip(distance, -(max_distance - 1), max_distance - 1)
    middle = buckets // 2
    if max_distance - 1 <= middle:
        return distance.astype(np.int64)
    size = np.maximum(np.abs(distance), middle)  # the logarithm is used only beyond the middle
    # Divided first, as released: multiplied first, the last distance could be rounded up into a bucket beyond the last.
    # The two logarithms of one number need not be equal to the last bit, so it is also said.
    share = np.log(size / middle) / math.log((max_distance - 1) / middle)
    wide = np.minimum(np.ceil(share * (middle - 1)), middle - 1) + middle
    return np.where(np.abs(distance) <= middle, distance, np.sign(distance) * wide).astype(np.int64)


def skew(scores: jax.Array, columns: int) -> jax.Array:
    """Shifts row r of [..., R, N] left by R - 1 - r and keeps `columns` columns.

    Exact and without a gather: the rows are laid end to end and cut again, each one element shorter.

    Args:
      scores: [..., R, N] with N = R + columns - 1.
      columns: number of columns to keep.

    Returns:
      [..., R, columns] with element (r, c) = scores[..., r, R - 1 - r + c].
    """
    *batch, rows, width = scores.shape
    assert width == rows + columns - 1, (scores.shape, columns)
    if rows == 1:
        return scores
    flat = scores.reshape(*batch, rows * width)
    flat = jax.lax.slice_in_dim(flat, rows - 1, rows - 1 + rows * (width - 1), axis=-1)
    return flat.reshape(*batch, rows, width - 1)[..., :columns]


def spread(scores: jax.Array, rows: np.ndarray) -> jax.Array:
    """Returns scores[..., rows], one column per distance instead of per bucket; a slice if each row is used once."""
    low, high = int(rows[0]), int(rows[0]) + len(rows)
    if np.array_equal(rows, np.arange(low, high)):  # their number alone would not show one skipped and one repeated
        return scores[..., low:high]
    return jnp.take(scores, rows, axis=-1)


class DisentangledAttention(nn.Module):
    """Multi-head self-attention with content-to-position and position-to-content scores.

    Attributes:
      heads: number of heads H; the width D must be a multiple of it.
      max_distance: distance at which the logarithmic buckets end.
      attention_dropout: dropout rate of the attention probabilities.
      position_dropout: dropout rate of the table of relative positions, drawn once per call (He et al., 2021, as
        released).
      kernel: one of `charlm.nn.kernels.KERNELS`.
      bias: whether the projections add a bias.
      window: positions on each side that a query sees; 0: all. Scores outside are computed and hidden.
    """

    heads: int
    max_distance: int
    attention_dropout: float
    position_dropout: float
    initializer: str
    dtype: DTypeLike
    kernel: str = "auto"
    bias: bool = True
    window: int = 0

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, positions_RD: jax.Array, queries: int, deterministic: bool
    ) -> jax.Array:
        """Returns the attention output [B, queries, D] of the first `queries` positions of x_BLD.

        Args:
          x_BLD: states.
          mask_BL: bool, True at real positions, or the numbers of texts (`charlm.nn.masks`); keys that a query does not
            see get probability exactly 0.
          positions_RD: float32 [2 * buckets, D] from `RelativeTable`.
          queries: number of leading positions used as queries; all L positions give keys and values.
        """
        B, L, D = x_BLD.shape
        H, K = self.heads, D // self.heads
        any_length = is_symbolic(L, queries)
        if any_length:
            first, R, rows = 0, positions_RD.shape[0], np.zeros(0, np.int32)
        else:
            first, rows = self._window(L, queries, positions_RD.shape[0] // 2)
            R = int(rows[-1]) + 1
        reads, drops = self.is_mutable_collection("intermediates"), self.attention_dropout > 0 and not deterministic
        of_head = jax.ShapeDtypeStruct((queries, K), self.dtype)
        # The tiles know masks of keys alone: rows that texts share, and windows, are the reference's.
        may = not (any_length or numbers_texts(mask_BL) or self.window)
        tiled = may and choose_tiled(self.kernel, this_machine(), of_head, L, reads)
        if tiled and not self.is_initializing():
            table_RD = positions_RD, first, first + R
            return self._by_tiles(x_BLD, mask_BL, table_RD, rows, queries, deterministic)

        # Heads come first and the batch's rows are laid end to end: no product below has to copy this layout.
        query_HNK = self._project("query", x_BLD[:, :queries])
        key_HNK, value_HNK = self._project("key", x_BLD), self._project("value", x_BLD)
        pos_key_HRK, pos_query_HRK = self._project_positions(positions_RD, first, first + R, deterministic)
        query = query_HNK.reshape(H, B, queries, K)
        key, value = key_HNK.reshape(H, B, L, K), value_HNK.reshape(H, B, L, K)

        to_position = product("hnk,hrk->hnr", query_HNK, pos_key_HRK).reshape(H, B, queries, R)
        from_position = product("hnk,hrk->hnr", key_HNK, pos_query_HRK).reshape(H, B, L, R)
        drop = nn.Dropout(self.attention_dropout, deterministic=False) if drops else None

        def block(start: int) -> tuple[jax.Array, jax.Array | None]:
            if any_length:
                stop, row_QL = queries, self._row_of_each(queries, L, R // 2)
                to_key = _along(to_position, R - 1 - row_QL)
                from_key = _along(from_position, row_QL.T).swapaxes(-1, -2)
            else:
                stop = min(start + QUERY_BLOCK, queries)
                used = rows[start : stop + L - 1]
                to_key = skew(spread(to_position[:, :, start:stop], R - 1 - used[::-1]), L)
                from_key = skew(spread(from_position, used), stop - start).swapaxes(-1, -2)
            return attend(
                self.kernel, query[:, :, start:stop], key, value,
                visible_keys(mask_BL, slice(start, stop), self.window)[None],
                biases=(to_key, from_key), scale=1 / math.sqrt(3 * K), drop=drop, probabilities=reads,
            )  # fmt: skip

        starts = (0,) if any_length else range(0, queries, QUERY_BLOCK)
        mixed, probs = zip(*map(block, starts), strict=True)
        if reads:
            self.sow("intermediates", "probs", jnp.concatenate(probs, axis=2).swapaxes(0, 1))
        mixed = jnp.concatenate(mixed, axis=2).transpose(1, 2, 0, 3).reshape(B, queries, D)
        self.sow("intermediates", "mixed", mixed)
        return self._dense(D, "output")(mixed)

    def _dense(self, D: int, name: str) -> Dense:
        return dense(D, D, self.initializer, self.dtype, name, self.bias)

    def _by_tiles(
        self,
        x_BLD: jax.Array,
        mask_BL: jax.Array,
        table: tuple[jax.Array, int, int],
        rows: np.ndarray,
        queries: int,
        deterministic: bool,
    ) -> jax.Array:
        """Returns what `__call__` does, by `tiled_attention`; `table` has positions_RD and the range of rows in use."""
        from charlm.nn import tiled  # see `charlm.nn.kernels`

        D = x_BLD.shape[-1]
        project = lambda name, x: self._dense(D, name)(x)
        query_BQD = project("query", x_BLD[:, :queries])
        key_BLD, value_BLD = project("key", x_BLD), project("value", x_BLD)
        pos_key_HRK, pos_query_HRK = self._project_positions(*table, deterministic)
        side_by_side = lambda y_HRK: y_HRK.swapaxes(0, 1).reshape(-1, D)
        drops = self.attention_dropout > 0 and not deterministic
        mixed = tiled.tiled_attention(
            query_BQD,
            key_BLD,
            value_BLD,
            mask_BL,
            heads=self.heads,
            scale=1 / math.sqrt(3 * D / self.heads),
            positions=tiled.Positions(side_by_side(pos_key_HRK[:, ::-1]), side_by_side(pos_query_HRK), rows),
            rate=self.attention_dropout if drops else 0.0,
            seed_2=jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32) if drops else None,
            chip=this_machine().tiles,
            interpret=this_machine().platform == "cpu",
        )
        return self._dense(D, "output")(mixed)

    def _project(self, name: str, x: jax.Array) -> jax.Array:
        """Returns a projection of states [..., D] as [H, N, K]."""
        D = x.shape[-1]
        y = self._dense(D, name)(x)
        return y.reshape(-1, self.heads, D // self.heads).swapaxes(0, 1)

    def _project_positions(
        self, table_TD: jax.Array, low: int, high: int, deterministic: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Returns rows low to high of the table as keys (descending, for `skew`) and as queries, [H, R, K] each."""

        def project(low: int, high: int) -> tuple[jax.Array, jax.Array]:
            positions = nn.Dropout(self.position_dropout)(table_TD, deterministic=deterministic)
            positions_RD = positions[low:high].astype(self.dtype)
            return self._project("pos_key", positions_RD[::-1]), self._project("pos_query", positions_RD)

        asked = self.is_mutable_collection(PROJECTED) and not self.is_initializing()
        if not deterministic or not (asked or self.has_variable(PROJECTED, "positions")):
            return project(low, high)
        T = len(table_TD)
        key_HTK, query_HTK = self.variable(PROJECTED, "positions", project, 0, T).value
        return key_HTK[:, T - high : T - low], query_HTK[:, low:high]

    def _window(self, keys: int, queries: int, buckets: int) -> tuple[int, np.ndarray]:
        """Returns the first table row in use, and the row of each distance (ascending), counted from the first."""
        bucket = relative_bucket(np.arange(-(keys - 1), queries), buckets, self.max_distance)
        return int(bucket[0]) + buckets, (bucket - bucket[0]).astype(np.int32)

    def _row_of_each(self, queries: int, keys: int, buckets: int) -> jax.Array:
        """Returns the table row of each query and key, int32 [queries, keys], whose numbers the program alone knows."""
        most = self.max_distance - 1
        row_of = relative_bucket(np.arange(-most, most + 1), buckets, self.max_distance) + buckets
        distance_QL = jnp.arange(queries)[:, None] - jnp.arange(keys)[None]
        return jnp.asarray(row_of, jnp.int32)[jnp.clip(distance_QL, -most, most) + most]


def _along(scores: jax.Array, row_MN: jax.Array) -> jax.Array:
    """Returns scores[..., m, row_MN[m, n]], [..., M, N], of scores [H, B, M, R]."""
    return jnp.take_along_axis(scores, row_MN[None, None], axis=-1)
