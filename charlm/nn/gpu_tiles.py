"""The kernels of tiled attention for GPUs, written in Pallas for Triton: what a program computes, forward and backward.

They compute what `charlm.nn.tiles` computes on TPUs. There a kernel goes through all tiles one after the other, and
sums stay in fast memory; here thousands of programs run at the same time in no order. So every program owns what it
writes, and goes through the tiles that add to it in a loop: one kernel each for the outputs, the gradients of queries,
those of keys and values, and those of positions. No number is added to by two programs, so equal inputs give equal
bits. The first kernel of the way back computes the scores again, and writes the dropped probabilities and the gradients
of the scores for the other two: for some rows of the batch at a time (`charlm.nn.gpu_calls`). To compute them in each
kernel took twice as long on an H200.

Scores are powers of two, not of e: they are multiplied by log2(e) before the softmax, because a GPU has an instruction
for powers of two alone.

The positions of a tile are two blocks of N rows, `low` and `high`: row r and column c meet at row c - r + N of both
laid end to end, which is row c - r of `high`, or row c - r + N of `low`. Modulo N both are the same, so the products
with the two blocks are put together in one array [N, N], and its rows are rotated (`charlm.nn.rotations`).
Notation: N rows (queries or keys) of a tile, K numbers of a head. `charlm.nn.gpu_calls` calls the kernels; open this
module to change what happens inside a tile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from charlm.nn.draws import amplified, kept_neighbours
from charlm.nn.rotations import rotated, rotated_together
from charlm.nn.tiles import Ref, TileConfig

LOG2_E = 1 / math.log(2)

Pair = tuple[jax.Array, jax.Array]  # blocks `low` and `high` of positions, or their gradients, [N, K] each


class Side(NamedTuple):
    """What a tile has on one of its sides.

    Attributes:
      states: queries or keys, [N, K].
      run: what the positions have for these states: position keys for queries, position queries for keys; None: none.
    """

    states: jax.Array
    run: Pair | None


def _high(tile: int) -> jax.Array:
    """Returns in which columns of each row, before rows are rotated, the score is one of `high`, bool [N, N]."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (tile, tile), axis) for axis in (0, 1))
    return column < tile - row


def _of_run(plan: TileConfig, x_NK: jax.Array, run: Pair) -> jax.Array:
    """Returns the float32 scores [r, s] = x[r] . (low, high)[s - r], modulo N: those of positions, not yet rotated."""
    low, high = (plan.product(x_NK, block, (1, 1)) for block in run)
    return jnp.where(_high(plan.tile), high, low)


def position_scores(plan: TileConfig, rows: tuple[jax.Array, Pair], columns: tuple[jax.Array, Pair]) -> jax.Array:
    """Returns the float32 scores [r, c] of positions, from the states and the run of both sides of a tile."""
    of_rows, of_columns = _rotated(plan, _of_run(plan, *rows), _of_run(plan, *columns), 1, rows[0].dtype)
    return of_rows + of_columns.T


def _rotated(plan: TileConfig, x: jax.Array, y: jax.Array, step: int, dtype: jnp.dtype) -> Pair:
    """Returns both arrays rotated; where the states are bfloat16, both are rounded to it and rotated together."""
    if dtype == jnp.bfloat16:
        return rotated_together(x, y, step, plan.interpret)
    return rotated(x, step, plan.interpret), rotated(y, step, plan.interpret)


def _of_run_products(plan: TileConfig, grad: jax.Array) -> Pair:
    high, none = _high(plan.tile), jnp.zeros_like(grad)
    return jnp.where(high, none, grad), jnp.where(high, grad, none)


def of_skewed(plan: TileConfig, grad_NN: jax.Array) -> Pair:
    """Returns the gradients of the products with `low` and `high`, of the side whose states are the rows of scores."""
    return _of_run_products(plan, rotated(grad_NN, -1, plan.interpret))


def of_both_skewed(plan: TileConfig, grad_NN: jax.Array) -> tuple[Pair, Pair]:
    """Returns `of_skewed` of the gradients of scores and of their transpose."""
    both = _rotated(plan, grad_NN, grad_NN.T, -1, grad_NN.dtype)
    of_rows, of_columns = (_of_run_products(plan, grad) for grad in both)
    return of_rows, of_columns


def by_positions(plan: TileConfig, of_products: Pair, run: Pair) -> jax.Array:
    """Returns the part of the gradient of the states that comes from positions, float32 [N, K]."""
    low, high = (plan.product(of, block, (1, 0)) for of, block in zip(of_products, run, strict=True))
    return low + high


def tile_scores(plan: TileConfig, rows: Side, columns: Side, floor_N: jax.Array) -> jax.Array:
    """Returns the float32 scores of a tile, as powers of two; `floor_N` is as in `forward`."""
    scores = plan.product(rows.states, columns.states, (1, 1))
    if rows.run is not None and columns.run is not None:
        scores += position_scores(plan, (rows.states, rows.run), (columns.states, columns.run))
    # A hidden key's own score is lost in the floor, which is so far below: one operation for the factor and the mask.
    return scores * (plan.scale * LOG2_E) + jnp.where(floor_N > 0, 0.0, floor_N)[None, :]


class _Where(NamedTuple):
    """Where a tile lies: row of the batch and head on this device, and its place among the tiles of both axes."""

    row: jax.Array
    head: jax.Array
    query: jax.Array
    key: jax.Array


def _kept(plan: TileConfig, scalars: Ref, at: _Where) -> jax.Array:
    """Returns what dropout keeps of a tile, bool [queries, keys]."""
    unsigned = lambda x: jnp.asarray(x, jnp.int32).astype(jnp.uint32)
    place = (scalars[2] + unsigned(at.row)) * jnp.uint32(plan.heads) + scalars[3] + unsigned(at.head)
    seed, first = (scalars[0], scalars[1]), (at.query * plan.tile, at.key * plan.tile)
    return kept_neighbours(seed, place, *first, size=plan.tile, limit=plan.limit)


def _rows(plan: TileConfig, ref: Ref, number: jax.Array, leading: tuple[jax.Array | int, ...] = ()) -> jax.Array:
    """Returns the rows of one tile, of an array with `leading` indices before the axis of rows."""
    return ref[(*leading, pl.ds(number * plan.tile, plan.tile))]


def _runs(plan: TileConfig, tables: list[Ref], at: _Where) -> tuple[Pair | None, Pair | None]:
    """Returns the blocks of position keys (descending distances) and of position queries (ascending) of a tile."""
    if not plan.positions:
        return None, None
    of_keys, of_queries = tables
    first, second = plan.queries - 1 - at.query + at.key, plan.keys - 1 - at.key + at.query
    pair = lambda ref, number: (_rows(plan, ref, number), _rows(plan, ref, number + 1))
    return pair(of_keys, first), pair(of_queries, second)


def power_of_two(x: jax.Array, interpret: bool) -> jax.Array:
    """Returns 2 ** x of float32 numbers, to some 2e-7, by the one instruction that `jnp.exp2` surrounds by others."""
    if interpret:
        return jnp.exp2(x)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (power,) = plgpu.elementwise_inline_asm(
        "ex2.approx.ftz.f32 $0, $1;", args=[x], constraints="=f,f", pack=1, result_shape_dtypes=[like]
    )
    return power


def forward(plan: TileConfig, scalars: Ref, floor: Ref, query: Ref, key: Ref, value: Ref, *refs: Ref) -> None:
    """Computes the output of a tile of queries; grid [tiles of queries, H, B].

    Args:
      scalars: uint32, two of the seed, the first row of the batch and the first head on this device.
      floor: float32 [keys]: positive where a key is visible; else the score in place of its own.
      query: [N, K].
      key, value: [keys, K].
      refs: with positions the tables of position keys and queries [positions, K]; the output [N, K]; the statistics
        float32 [2, N]: each query's maximum and sum.
    """
    *tables, out, statistics = refs
    i, head, row = (pl.program_id(axis) for axis in range(3))
    query_NK = query[...]

    def step(j: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        sums, before, total = carry
        at = _Where(row, head, i, j)
        of_query, of_key = _runs(plan, tables, at)
        value_NK = _rows(plan, value, j)  # with the other reads, so that one wait is for all
        sides = Side(query_NK, of_query), Side(_rows(plan, key, j), of_key)
        scores = tile_scores(plan, *sides, _rows(plan, floor, j))
        maxima = jnp.maximum(before, scores.max(axis=1))
        probs = power_of_two(scores - maxima[:, None], plan.interpret)
        shrink = power_of_two(before - maxima, plan.interpret)
        total = total * shrink + probs.sum(axis=1)
        if plan.limit:
            probs = jnp.where(_kept(plan, scalars, at), probs, 0.0)
        sums = sums * shrink[:, None] + plan.product(probs.astype(value_NK.dtype), value_NK, (1, 0))
        return sums, maxima, total

    empty = jnp.zeros(query_NK.shape, jnp.float32), jnp.full(plan.tile, -jnp.inf), jnp.zeros(plan.tile)
    sums, maxima, total = jax.lax.fori_loop(0, plan.keys, step, empty)
    out[...] = (sums * (amplified(plan.limit) / total)[:, None]).astype(out.dtype)
    statistics[0], statistics[1] = maxima, total


def backward_of_queries(
    plan: TileConfig,
    scalars: Ref,
    floor: Ref,
    query: Ref,
    key: Ref,
    value: Ref,
    grad: Ref,
    statistics: Ref,
    deltas: Ref,
    *refs: Ref,
) -> None:
    """Computes the gradients of a tile of queries, and what other kernels need; grid [tiles of queries, H, rows].

    Args:
      scalars, floor, query, key, value: as in `forward`.
      grad: the gradient of the output, [N, K].
      statistics: as `forward` wrote them.
      deltas: float32 [N], each query's output times the gradient of it.
      refs: with positions the tables, as in `forward`; the gradients of the queries [N, K]; the probabilities after
        dropout and the gradients of the scores before they are scaled, [N, keys] each.
    """
    *tables, of_query, dropped, of_scores = refs
    i, head, row = (pl.program_id(axis) for axis in range(3))
    query_NK, grad_NK = query[...], grad[...]
    maxima, shares, delta = statistics[0], 1 / statistics[1], deltas[...]

    def step(j: jax.Array, sums: jax.Array) -> jax.Array:
        at = _Where(row, head, i, j)
        run, of_key = _runs(plan, tables, at)
        key_NK, value_NK, floor_N = (_rows(plan, ref, j) for ref in (key, value, floor))
        scores = tile_scores(plan, Side(query_NK, run), Side(key_NK, of_key), floor_N)
        probs = power_of_two(scores - maxima[:, None], plan.interpret) * shares[:, None]
        columns = pl.ds(j * plan.tile, plan.tile)
        factor = jnp.where(_kept(plan, scalars, at), amplified(plan.limit), 0.0) if plan.limit else 1.0
        dropped[:, columns] = (probs * factor).astype(dropped.dtype)
        of_probs = plan.product(grad_NK, value_NK, (1, 1)) * factor
        grad_NN = jnp.where(floor_N[None, :] > 0, probs * (of_probs - delta[:, None]), 0.0).astype(key_NK.dtype)
        of_scores[:, columns] = grad_NN
        sums += plan.product(grad_NN, key_NK, (1, 0))
        return sums if run is None else sums + by_positions(plan, of_skewed(plan, grad_NN), run)

    sums = jax.lax.fori_loop(0, plan.keys, step, jnp.zeros(of_query.shape, jnp.float32))
    of_query[...] = (sums * plan.scale).astype(of_query.dtype)


def backward_of_keys(plan: TileConfig, query: Ref, grad: Ref, dropped: Ref, of_scores: Ref, *refs: Ref) -> None:
    """Computes the gradients of a tile of keys and values; grid [tiles of keys, H, rows].

    Args:
      query: [queries, K].
      grad: the gradient of the output, [queries, K].
      dropped, of_scores: as `backward_of_queries` wrote them, [queries, N].
      refs: with positions the tables, as in `forward`; the gradients of keys and values, [N, K] each.
    """
    *tables, of_key, of_value = refs
    j, head, row = (pl.program_id(axis) for axis in range(3))

    def step(i: jax.Array, sums: Pair) -> Pair:
        _, run = _runs(plan, tables, _Where(row, head, i, j))
        grad_NN = _rows(plan, of_scores, i)
        of_keys = plan.product(grad_NN, _rows(plan, query, i), (0, 0))
        of_values = plan.product(_rows(plan, dropped, i), _rows(plan, grad, i), (0, 0))
        if run is not None:
            of_keys += by_positions(plan, of_skewed(plan, grad_NN.T), run)
        return sums[0] + of_keys, sums[1] + of_values

    none = jnp.zeros(of_key.shape, jnp.float32)
    sums = jax.lax.fori_loop(0, plan.queries, step, (none, none))
    of_key[...], of_value[...] = (sums[0] * plan.scale).astype(of_key.dtype), sums[1].astype(of_value.dtype)


def backward_of_positions(
    plan: TileConfig, rows: int, query: Ref, key: Ref, of_scores: Ref, of_keys: Ref, of_queries: Ref
) -> None:
    """Adds up the gradients of the positions of the tiles on one diagonal; grid [diagonals, H, parts of the rows].

    Args:
      plan: what is fixed.
      rows: rows of the batch in a part; the last part may have fewer.
      query, key: [all rows, length, K].
      of_scores: as `backward_of_queries` wrote them, [all rows, queries, keys].
      of_keys, of_queries: the gradients of `low` and `high` of position keys, and of position queries, float32
        [2, N, K] each.
    """
    diagonal, part = pl.program_id(0), pl.program_id(2)
    ahead = diagonal - (plan.keys - 1)  # the tile of queries minus that of keys
    first, last = jnp.maximum(ahead, 0), jnp.minimum(plan.queries, plan.keys + ahead)

    def of_row(row: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        def step(i: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            j = i - ahead
            grad_NN = of_scores[row, pl.ds(i * plan.tile, plan.tile), pl.ds(j * plan.tile, plan.tile)]
            states = _rows(plan, query, i, (row,)), _rows(plan, key, j, (row,))
            pairs = zip(of_both_skewed(plan, grad_NN), states, strict=True)
            found = [plan.product(block, side_NK, (0, 0)) for pair, side_NK in pairs for block in pair]
            return tuple(x + y for x, y in zip(sums, found, strict=True))

        return jax.lax.fori_loop(first, last, step, sums)

    none = tuple(jnp.zeros(of_keys.shape[1:], jnp.float32) for _ in range(4))
    end = jnp.minimum((part + 1) * rows, query.shape[0])
    sums = jax.lax.fori_loop(part * rows, end, of_row, none)
    of_keys[0], of_keys[1], of_queries[0], of_queries[1] = (x * plan.scale for x in sums)
