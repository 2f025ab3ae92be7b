"""Attention tile by tile, for TPUs and GPUs: forward, no array of queries x keys is in main memory, nor back on TPUs.

    mixed = drop(softmax((query . key + query . position_key[d] + position_query[d] . key) * scale)) . value

with d the distance from the key to the query; without positions it is plain attention. The running maximum and sum are
those of FlashAttention (Dao et al., 2022, algorithms 1 and 4), statistics and sums are float32. A tile needs a
contiguous run of positions, so the kernels take one row for each distance, 2 L of them, and skew products inside the
tile. Gradients are added up in a fixed order: equal inputs give equal bits. Dropout is drawn by counters
(`charlm.nn.draws`), so a mask is never stored and does not depend on the mesh. TPUs have one kernel for each direction
(`charlm.nn.tiles`). GPUs have three for the way back, which hand probabilities and gradients of scores on to each other
for a few rows of the batch at a time (`charlm.nn.gpu_tiles`), and others for windows as short as words
(`charlm.nn.gpu_words`).

On CPUs the same kernels run in Pallas' interpreter, slowly: for tests. Open it to change how long windows are split,
how the kernels are spread over devices, or what they are given.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.nn import gpu_calls, gpu_words, tile_calls
from charlm.nn.choices import Chip
from charlm.nn.draws import threshold
from charlm.nn.scan import BATCH_AXES
from charlm.nn.tile_calls import Given, Spread, StaticArgs, Tables
from charlm.nn.tiles import HIDDEN

TILES = (512, 256, 128)  # sizes of tiles on TPUs: a larger one is read again less, and shifts fewer products out
EMPTY = 1.25  # the largest tile is used that makes the window at most so many times longer
# Queries or keys: the sums of gradients of one row of the batch must fit into a TPU's fast memory. Twice as many do not
# fit into a v5p's in float32, says its compiler.
LONGEST = 4096
HEAD_DIMS = (16, 32, 64, 128)  # on GPUs: Triton's tiles have powers of two
HEADS_AXIS = "model"  # mesh axis over which heads are spread; see `charlm.core.sharding`


class Positions(NamedTuple):
    """Projected relative positions.

    Attributes:
      key_RD, query_RD: the rows of both projections in use, by ascending distance, with the heads side by side.
      rows: int [Q + N - 1], the row of each distance from -(N - 1) to Q - 1.
    """

    key_RD: jax.Array
    query_RD: jax.Array
    rows: np.ndarray


def obstacle(query: jax.Array | jax.ShapeDtypeStruct, keys: int, chip: Chip) -> str:
    """Returns the reason why the kernels cannot compute attention of this size, or ""; `query` is of a head, [Q, K]."""
    queries, head_dim = query.shape
    longest = max(queries, keys)
    if longest > LONGEST:
        return f"its windows have at most {LONGEST} positions, got {longest}"
    if chip == "gpu" and head_dim not in HEAD_DIMS:
        return f"its heads on GPUs are of {', '.join(map(str, HEAD_DIMS))}, got {head_dim}"
    # In float32 heads of 128 need more shared memory than an H100 has, and those of 64 did not compile in minutes.
    if chip == "gpu" and query.dtype != jnp.bfloat16:
        return f"it needs bfloat16 on GPUs, got {query.dtype}"
    return ""


def is_short(queries: int, keys: int, chip: Chip) -> bool:
    """Returns whether several windows of this size share a tile (`charlm.nn.gpu_words`)."""
    return chip == "gpu" and queries == keys <= gpu_words.LONGEST


def fills(queries: int, keys: int, chip: Chip) -> bool:
    """Returns whether windows of this size fill tiles well enough to be computed by them."""
    if chip == "tpu":
        return min(queries, keys) >= TILES[-1]
    return is_short(queries, keys, chip) or min(queries, keys) > gpu_words.LONGEST


def tile_size(length: int) -> int:
    """Returns the size of the tiles for a number of queries or keys, whichever is larger."""
    padded = lambda size: -(-length // size) * size
    fitting = [size for size in TILES if padded(size) <= EMPTY * length]
    return fitting[0] if fitting else min(TILES, key=padded)


def tiled_attention(
    query_BQD: jax.Array,
    key_BND: jax.Array,
    value_BND: jax.Array,
    visible_BN: jax.Array,
    *,
    heads: int,
    scale: float = 1.0,
    positions: Positions | None = None,
    rate: float = 0.0,
    seed_2: jax.Array | None = None,
    chip: Chip = "tpu",
    interpret: bool,
) -> jax.Array:
    """Returns for each query the weighted mean of the values it sees, [B, Q, D].

    Args:
      query_BQD, key_BND, value_BND: D is heads x head_dim, the heads side by side; bfloat16 or float32. Query n stands
        at the position of key n.
      visible_BN: bool, True at keys to see. Hidden keys get probability exactly 0; the output of a query that sees no
        key is finite but meaningless.
      heads: number of heads.
      scale: factor of the scores, those of positions included.
      positions: relative positions; None: none are scored.
      rate: dropout rate of the probabilities, to the next multiple of 1 / 65,536.
      seed_2: uint32, the seed of dropout; only needed if `rate` is not 0.
      chip: whose kernels are used.
      interpret: whether to run in Pallas' interpreter: on CPUs.
    """
    B, Q, D = query_BQD.shape
    N, K = key_BND.shape[1], D // heads
    if not B:
        return jnp.zeros_like(query_BQD)
    one = jax.ShapeDtypeStruct((Q, K), query_BQD.dtype)
    assert interpret or not obstacle(one, N, chip)  # callers ask first
    tile = tile_size(max(Q, N)) if chip == "tpu" else gpu_calls.TILE
    short = is_short(Q, N, chip)
    static = StaticArgs(heads, K, scale, threshold(rate), tile, chip, short, interpret)
    # Keys beyond the last one have no weight even where no key is visible.
    floor_BN = jnp.where(visible_BN, 1.0, HIDDEN).astype(jnp.float32)
    query, key, value = query_BQD, key_BND, value_BND
    if not short:
        floor_BN = _padded(floor_BN, tile, -jnp.inf)
        query, key, value = (_padded(x, tile) for x in (query, key, value))
    seed_2 = jnp.zeros(2, jnp.uint32) if seed_2 is None else seed_2
    tables = () if positions is None else _tables(positions, Q, N, tile, chip)
    mixed: jax.Array = _attention(static, query, key, value, tables, floor_BN[:, None], seed_2)
    return mixed[:, :Q]


def _padded(x: jax.Array, tile: int, value: float = 0.0) -> jax.Array:
    """Returns an array [B, L, ...] with L filled up to a multiple of the tile."""
    more = [(0, 0), (0, -x.shape[1] % tile), *[(0, 0)] * (x.ndim - 2)]
    return jnp.pad(x, more, constant_values=value)


def _tables(positions: Positions, queries: int, keys: int, tile: int, chip: Chip) -> Tables:
    """Returns one row for each distance, descending for keys and ascending for queries, as tiles need them.

    They are float32, so that the gradients of a row that many distances share are added up in float32.
    """
    above, below = (-(-length // tile) * tile for length in (queries, keys))
    step = np.arange(above + below)

    def spread(rows_RD: jax.Array, distance: np.ndarray) -> jax.Array:
        used = positions.rows[np.clip(distance, -(keys - 1), queries - 1) + keys - 1]
        return (_taken if chip == "gpu" else _take)(rows_RD.astype(jnp.float32), used)

    return spread(positions.key_RD, above - step), spread(positions.query_RD, step - below)


def _take(rows_RD: jax.Array, used: np.ndarray) -> jax.Array:
    return jnp.take(rows_RD, used, axis=0)


def _taken(rows_RD: jax.Array, used: np.ndarray) -> jax.Array:
    """Returns `_take`; gradients are products, since XLA for GPUs would add them up by atomics, in no fixed order."""

    def gradient(_: None, grad: jax.Array) -> tuple[jax.Array]:
        uses = (jnp.arange(len(rows_RD))[:, None] == used[None]).astype(jnp.float32)
        return (jnp.dot(uses, grad, precision=jax.lax.Precision.HIGHEST),)

    take = jax.custom_vjp(lambda rows_RD: _take(rows_RD, used))
    take.defvjp(lambda rows_RD: (_take(rows_RD, used), None), gradient)
    return take(rows_RD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(
    static: StaticArgs,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    tables: Tables,
    floor_B1N: jax.Array,
    seed_2: jax.Array,
) -> jax.Array:
    return _forward(static, query, key, value, tables, floor_B1N, seed_2)[0]


# The inputs, the output, and the statistics if the way back needs some.
Kept = tuple[Given[jax.Array], jax.Array, jax.Array | tuple[()]]


def _forward(
    static: StaticArgs,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    tables: Tables,
    floor_B1N: jax.Array,
    seed_2: jax.Array,
) -> tuple[jax.Array, Kept]:
    tables = tuple(table.astype(query.dtype) for table in tables)
    spread = _spread(static, query)
    given = Given(query, key, value, tables, floor_B1N, seed_2)
    run = spread.over(
        functools.partial(_calls(static).call_forward, static, spread),
        (spread.given(len(tables)),),
        (spread.states, () if static.short else spread.statistics),
    )
    out, statistics = run(given)
    return out, (given, out, statistics)


def _backward(
    static: StaticArgs, kept: Kept, grad: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, Tables, None, None]:
    given, out, statistics = kept
    spread = _spread(static, given.query)
    of_given = spread.given(len(given.tables))
    run = spread.over(
        functools.partial(_calls(static).call_backward, static, spread),
        (of_given, spread.states, () if static.short else spread.statistics, spread.states),
        (of_given.query, of_given.key, of_given.value, of_given.tables),
    )
    return *run(given, out, statistics, grad), None, None


_attention.defvjp(_forward, _backward)


def _calls(static: StaticArgs) -> ModuleType:
    return tile_calls if static.chip == "tpu" else gpu_words if static.short else gpu_calls


def _spread(static: StaticArgs, query: jax.Array) -> Spread:
    """Returns how the work is spread over the program's mesh, if that is one of charlm's over several devices."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size == 1 or not {*BATCH_AXES, HEADS_AXIS} <= set(mesh.axis_names):
        return Spread(None, (), None)
    rows = len(query) % math.prod(mesh.shape[axis] for axis in BATCH_AXES) == 0
    heads = static.heads % mesh.shape[HEADS_AXIS] == 0
    return Spread(mesh, BATCH_AXES if rows else (), HEADS_AXIS if heads else None)
