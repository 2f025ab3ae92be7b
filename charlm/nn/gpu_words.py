"""Attention inside many short windows on GPUs, such as the characters of words: several windows share a tile.

The windows of a batch lie end to end in memory, so a tile of 64 rows holds as many whole windows as fit, and nothing is
copied. Scores of two different windows are computed and thrown away. Within a window, row r and column c of the tile
are as far apart as the query and the key, so relative positions are those of any tile (`charlm.nn.gpu_tiles`), and one
block of them serves all tiles. A tile has all keys of its queries, so one kernel computes the way back; only the
gradients of positions are added up over tiles, by another, in a fixed order.

`charlm.nn.tiled` is the function to use. Open it to change which windows share a tile or what a tile computes.
Notation: T tiles, N rows of a tile, L positions of a window, K numbers of a head.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from charlm.nn import gpu_calls, gpu_tiles
from charlm.nn.draws import amplified, kept_alone
from charlm.nn.tile_calls import Given, Spread, StaticArgs, Tables
from charlm.nn.tiles import HIDDEN, Ref, TileConfig

LONGEST = 32  # positions of a window: two of them fit into a tile
PARTS = 64  # programs of a head that add up gradients of positions


class _Layout(NamedTuple):
    """How windows lie in tiles.

    Attributes:
      plan: what is fixed in all kernels of tiles.
      length: L.
      rows: rows of all windows together.
    """

    plan: TileConfig
    length: int
    rows: int

    @property
    def windows(self) -> int:
        """Windows of a tile."""
        return self.plan.tile // self.length

    @property
    def tiles(self) -> int:
        """T."""
        return -(-self.rows // (self.windows * self.length))

    def start(self, tile: jax.Array) -> jax.Array:
        """Returns the first row of a tile."""
        return tile * (self.windows * self.length)

    def own_N(self, tile: jax.Array) -> jax.Array:
        """Returns which rows of a tile are its own; those behind its windows are the next tile's, or beyond the end."""
        row = jax.lax.broadcasted_iota(jnp.int32, (self.plan.tile,), 0)
        return (row < self.windows * self.length) & (row + self.start(tile) < self.rows)

    def place(self, axis: int) -> tuple[jax.Array, jax.Array]:
        """Returns the number of the window and the position in it, int32 [N, 1] for axis 0, [1, N] for axis 1."""
        shape = (self.plan.tile, 1) if axis == 0 else (1, self.plan.tile)
        row = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
        window = row // self.length
        return window, row - window * self.length

    def read(self, ref: Ref, tile: jax.Array, otherwise: float = 0.0) -> jax.Array:
        """Returns the rows of a tile, with another value in those that are not its own."""
        own_N = self.own_N(tile)
        mask = own_N if len(ref.shape) == 1 else own_N[:, None]
        return plgpu.load(ref.at[pl.ds(self.start(tile), self.plan.tile)], mask=mask, other=otherwise)

    def write(self, ref: Ref, tile: jax.Array, value_NK: jax.Array) -> None:
        """Writes the rows that are a tile's own."""
        at = ref.at[pl.ds(self.start(tile), self.plan.tile)]
        plgpu.store(at, value_NK.astype(ref.dtype), mask=self.own_N(tile)[:, None])


class _Probabilities(NamedTuple):
    """Of a tile, [N, N] each: probabilities before dropout, its factors (None: no dropout), and what is shown."""

    probs: jax.Array
    factor: jax.Array | None
    shown: jax.Array

    def dropped(self) -> jax.Array:
        """Returns the probabilities after dropout."""
        return self.probs if self.factor is None else self.probs * self.factor


def _runs(tables: list[Ref], tile: int) -> tuple[gpu_tiles.Pair | None, ...]:
    """Returns the blocks of position keys and of position queries, which are the same in all tiles."""
    if not tables:
        return None, None
    return tuple((table[pl.ds(0, tile)], table[pl.ds(tile, tile)]) for table in tables)


def _probabilities(
    layout: _Layout,
    scalars: Ref,
    floor: Ref,
    query: gpu_tiles.Side,
    key: gpu_tiles.Side,
    at: tuple[jax.Array, jax.Array],
) -> _Probabilities:
    """Returns the probabilities of a tile; `at` is its number and its head. Those of other windows are 0."""
    (tile, head), plan = at, layout.plan
    (window_N1, position_N1), (window_1N, position_1N) = layout.place(0), layout.place(1)
    floor_N = layout.read(floor, tile, -jnp.inf)
    together = window_N1 == window_1N
    scores = jnp.where(together, gpu_tiles.tile_scores(plan, query, key, floor_N), -jnp.inf)
    # Rows behind the tile's windows see no key at all, not even a hidden one.
    maxima = jnp.maximum(scores.max(axis=1), HIDDEN)
    powers = gpu_tiles.power_of_two(scores - maxima[:, None], plan.interpret)
    total = powers.sum(axis=1)
    probs = powers * (1 / jnp.where(total > 0, total, 1.0))[:, None]
    factor = None
    if plan.limit:
        unsigned = lambda x: jnp.asarray(x, jnp.int32).astype(jnp.uint32)
        row = scalars[2] + unsigned(tile * layout.windows) + unsigned(window_N1)
        place_N1 = row * jnp.uint32(plan.heads) + scalars[3] + unsigned(head)
        seed, counters = (scalars[0], scalars[1]), (unsigned(position_N1), unsigned(position_1N))
        kept = kept_alone(seed, place_N1, *counters, limit=plan.limit)
        factor = jnp.where(kept, amplified(plan.limit), 0.0)
    return _Probabilities(probs, factor, together & (floor_N > 0)[None, :])


def forward(layout: _Layout, scalars: Ref, floor: Ref, query: Ref, key: Ref, value: Ref, *refs: Ref) -> None:
    """Computes the output of a tile; grid [T, H].

    Args:
      layout: what is fixed.
      scalars, floor: as in `charlm.nn.gpu_tiles.forward`; the floor of all rows.
      query, key, value: [rows, K].
      refs: with positions the tables of position keys and queries [2 N, K]; the output [rows, K].
    """
    *tables, out = refs
    at = tile, _ = pl.program_id(0), pl.program_id(1)
    of_query, of_key = _runs(tables, layout.plan.tile)
    sides = gpu_tiles.Side(layout.read(query, tile), of_query), gpu_tiles.Side(layout.read(key, tile), of_key)
    probs = _probabilities(layout, scalars, floor, *sides, at).dropped()
    value_NK = layout.read(value, tile)
    layout.write(out, tile, layout.plan.product(probs.astype(value_NK.dtype), value_NK, (1, 0)))


def backward(
    layout: _Layout, scalars: Ref, floor: Ref, query: Ref, key: Ref, value: Ref, grad: Ref, *refs: Ref
) -> None:
    """Computes the gradients of a tile's queries, keys and values; grid [T, H].

    Args:
      layout: what is fixed.
      scalars, floor, query, key, value: as in `forward`.
      grad: the gradient of the output, [rows, K].
      refs: with positions the tables, as in `forward`; the gradients of queries, keys and values [rows, K]; with
        positions those of the scores [N, N], for `backward_of_positions`.
    """
    plan, count = layout.plan, 2 * layout.plan.positions
    tables, (of_query, of_key, of_value, *of_scores) = list(refs[:count]), refs[count:]
    at = tile, _ = pl.program_id(0), pl.program_id(1)
    query_run, key_run = _runs(tables, plan.tile)
    query_NK, key_NK, value_NK, grad_NK = (layout.read(ref, tile) for ref in (query, key, value, grad))
    sides = gpu_tiles.Side(query_NK, query_run), gpu_tiles.Side(key_NK, key_run)
    found = _probabilities(layout, scalars, floor, *sides, at)
    layout.write(of_value, tile, plan.product(found.dropped().astype(grad_NK.dtype), grad_NK, (0, 0)))
    of_probs = plan.product(grad_NK, value_NK, (1, 1))
    of_probs = of_probs if found.factor is None else of_probs * found.factor
    delta = (found.probs * of_probs).sum(axis=1)
    grad_NN = jnp.where(found.shown, found.probs * (of_probs - delta[:, None]), 0.0).astype(key_NK.dtype)
    of_queries, of_keys = plan.product(grad_NN, key_NK, (1, 0)), plan.product(grad_NN, query_NK, (0, 0))
    if query_run is not None and key_run is not None:
        of_scores[0][...] = grad_NN
        by_query, by_key = gpu_tiles.of_both_skewed(plan, grad_NN)
        of_queries += gpu_tiles.by_positions(plan, by_query, query_run)
        of_keys += gpu_tiles.by_positions(plan, by_key, key_run)
    layout.write(of_query, tile, of_queries * plan.scale)
    layout.write(of_key, tile, of_keys * plan.scale)


def backward_of_positions(
    layout: _Layout, tiles: int, query: Ref, key: Ref, of_scores: Ref, of_keys: Ref, of_queries: Ref
) -> None:
    """Adds up the gradients of the positions over a part of the tiles; grid [parts, H].

    Args:
      layout: what is fixed.
      tiles: tiles of a part; the last part may have fewer.
      query, key: [rows, K].
      of_scores: as `backward` wrote them, [T, N, N].
      of_keys, of_queries: the gradients of `low` and `high` of position keys, and of position queries, float32
        [2, N, K] each.
    """
    part, plan = pl.program_id(0), layout.plan

    def step(tile: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        states = layout.read(query, tile), layout.read(key, tile)
        pairs = zip(gpu_tiles.of_both_skewed(plan, of_scores[tile]), states, strict=True)
        found = [plan.product(block, side_NK, (0, 0)) for pair, side_NK in pairs for block in pair]
        return tuple(x + y for x, y in zip(sums, found, strict=True))

    none = tuple(jnp.zeros(of_keys.shape[1:], jnp.float32) for _ in range(4))
    sums = jax.lax.fori_loop(part * tiles, jnp.minimum((part + 1) * tiles, layout.tiles), step, none)
    of_keys[0], of_keys[1], of_queries[0], of_queries[1] = (x * plan.scale for x in sums)


# ---- Calls ----


def _layout(static: StaticArgs, query: jax.Array, length: int, tables: Tables) -> _Layout:
    plan = TileConfig(
        static.tile, static.head_dim, 1, static.heads, 1, 1, static.scale, static.limit, bool(tables), static.interpret
    )
    return _Layout(plan, length, query.shape[0])


def _parts(layout: _Layout, tables: Tables) -> tuple[list[pl.BlockSpec], pl.BlockSpec, list[pl.BlockSpec]]:
    """Returns the parts of arrays that a program gets: scalars and floor; all rows of a head; the tables."""
    of_head = lambda rows: pl.BlockSpec((rows, layout.plan.head_dim), lambda t, h: (0, h))
    first = [pl.BlockSpec((4,), lambda t, h: (0,)), pl.BlockSpec((layout.rows,), lambda t, h: (0,))]
    return first, of_head(layout.rows), [of_head(len(table)) for table in tables]


def call_forward(static: StaticArgs, spread: Spread, given: Given[jax.Array]) -> tuple[jax.Array, tuple[()]]:
    """Returns the output [B, L, D] of one device; the way back needs no statistics."""
    query, key, value, tables, floor_B1L, seed_2 = given
    B, L, D = query.shape
    H = D // static.head_dim
    flat = [x.reshape(B * L, D) for x in (query, key, value)]
    layout = _layout(static, flat[0], L, tables)
    first, rows, of_tables = _parts(layout, tables)
    out = gpu_calls.call(
        layout.plan, functools.partial(forward, layout), "tiled_attention_of_words", grid=(layout.tiles, H),
        in_specs=[*first, rows, rows, rows, *of_tables], out_specs=rows,
        out_shape=jax.ShapeDtypeStruct(flat[0].shape, query.dtype),
    )(spread.scalars(seed_2, B, H), floor_B1L.reshape(-1), *flat, *tables)  # fmt: skip
    return out.reshape(B, L, D), ()


def call_backward(
    static: StaticArgs,
    spread: Spread,
    given: Given[jax.Array],
    out: jax.Array,
    statistics: tuple[()],
    grad: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, Tables]:
    """Returns the gradients of one device's query, key, value and tables; those of tables are sums over all devices."""
    query, key, value, tables, floor_B1L, seed_2 = given
    del out, statistics
    B, L, D = query.shape
    N, K, H = static.tile, static.head_dim, D // static.head_dim
    query, key, value, grad = (x.reshape(B * L, D) for x in (query, key, value, grad))
    layout = _layout(static, query, L, tables)
    first, rows, of_tables = _parts(layout, tables)
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)]
    scores = [jax.ShapeDtypeStruct((layout.tiles, H, N, N), query.dtype)] if tables else []
    of_scores = [pl.BlockSpec((None, None, N, N), lambda t, h: (t, h, 0, 0))] if tables else []
    *of_states, of_scores = gpu_calls.call(
        layout.plan, functools.partial(backward, layout), "tiled_attention_of_words_backward", grid=(layout.tiles, H),
        in_specs=[*first, *[rows] * 4, *of_tables], out_specs=[rows, rows, rows, *of_scores],
        out_shape=[*like, *scores],
    )(spread.scalars(seed_2, B, H), floor_B1L.reshape(-1), query, key, value, grad, *tables)  # fmt: skip
    if not tables:
        of_query, of_key, of_value = (x.reshape(B, L, D) for x in (*of_states, of_scores))
        return of_query, of_key, of_value, ()
    of_query, of_key, of_value = (x.reshape(B, L, D) for x in of_states)
    tiles = -(-layout.tiles // min(layout.tiles, PARTS))
    parts = -(-layout.tiles // tiles)
    own = pl.BlockSpec((None, None, None, 2, N, K), lambda t, h: (t, h, 0, 0, 0, 0))
    sums = jax.ShapeDtypeStruct((parts, H, 1, 2, N, K), jnp.float32)
    whole = pl.BlockSpec((layout.tiles, None, N, N), lambda t, h: (0, h, 0, 0))
    found = gpu_calls.call(
        layout.plan, functools.partial(backward_of_positions, layout, tiles),
        "tiled_attention_of_words_backward_of_positions", grid=(parts, H), in_specs=[rows, rows, whole],
        out_specs=[own, own], out_shape=[sums, sums],
    )(query, key, of_scores)  # fmt: skip
    summed = tuple(map(gpu_calls.of_table, found))
    if spread.batch:
        summed = tuple(jax.lax.psum(x, spread.batch) for x in summed)
    return of_query, of_key, of_value, summed
