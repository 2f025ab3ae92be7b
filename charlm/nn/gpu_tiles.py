"""The kernels of tiled attention for GPUs, written in Pallas for Triton: what a program computes, forward and backward.

They compute what `charlm.nn.tiles` computes on TPUs. There a kernel goes through all tiles one after the other, and
sums stay in fast memory; here thousands of programs run at the same time in no order. So every program owns what it
writes, and goes through the tiles that add to it in a loop: one kernel each for the outputs, the gradients of queries,
those of keys and values, and those of positions. Scores are computed again in each of them. No number is added to by
two programs, so equal inputs give equal bits.

The positions of a tile are two blocks of N rows, `low` and `high`: row r and column c meet at row c - r + N of both
laid end to end, which is row c - r of `high`, or row c - r + N of `low`. Modulo N both are the same, so the products
with the two blocks are put together in one array [N, N], and its rows are rotated (`charlm.nn.rotations`).
Notation: N rows (queries or keys) of a tile, K numbers of a head. `charlm.nn.gpu_calls` calls the kernels; open this
module to change what happens inside a tile.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from charlm.nn.draws import amplified, kept_neighbours
from charlm.nn.rotations import rotated
from charlm.nn.tiles import Ref, TileConfig

Pair = tuple[jax.Array, jax.Array]  # blocks `low` and `high` of positions, or their gradients, [N, K] each


class _Side(NamedTuple):
    """What a tile has on one of its sides.

    Attributes:
      states: queries or keys, [N, K].
      others: gradients of the output beside queries, values beside keys, [N, K].
      run: what the positions have for these states: position keys for queries, position queries for keys; None: none.
    """

    states: jax.Array
    others: jax.Array
    run: Pair | None


class _OfQueries(NamedTuple):
    """Float32 [N]: each query's maximum and sum of the softmax, and its output times the output's gradient."""

    maxima: jax.Array
    totals: jax.Array
    deltas: jax.Array


def _high(tile: int) -> jax.Array:
    """Returns in which columns of each row, before rows are rotated, the score is one of `high`, bool [N, N]."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (tile, tile), axis) for axis in (0, 1))
    return column < tile - row


def position_scores(plan: TileConfig, x_NK: jax.Array, run: Pair) -> jax.Array:
    """Returns the float32 scores [r, c] = x[r] . (low, high)[c - r + N]."""
    low, high = (plan.product(x_NK, block, (1, 1)) for block in run)
    return rotated(jnp.where(_high(plan.tile), high, low), 1, plan.interpret)


def _back(plan: TileConfig, grad_NN: jax.Array, dtype: jnp.dtype) -> Pair:
    """Returns the gradients of the two products in `position_scores`."""
    grad, high = rotated(grad_NN, -1, plan.interpret), _high(plan.tile)
    return jnp.where(high, 0.0, grad).astype(dtype), jnp.where(high, grad, 0.0).astype(dtype)


def _states_gradient(plan: TileConfig, grad_NN: jax.Array, one: _Side, other: _Side) -> jax.Array:
    """Returns the gradient of the states of the side that is the rows of a tile, float32 [N, K]."""
    found = plan.product(grad_NN.astype(one.states.dtype), other.states, (1, 0))
    if one.run is not None:
        for grad, block in zip(_back(plan, grad_NN, one.states.dtype), one.run, strict=True):
            found += plan.product(grad, block, (1, 0))
    return found


def _scores(plan: TileConfig, rows: _Side, columns: _Side, floor: jax.Array) -> jax.Array:
    """Returns the float32 scores of a tile; `floor` is as in `forward`, along the axis of the keys."""
    scores = plan.product(rows.states, columns.states, (1, 1))
    if rows.run is not None and columns.run is not None:
        scores += position_scores(plan, rows.states, rows.run)
        scores += position_scores(plan, columns.states, columns.run).T
    return jnp.where(floor > 0, scores * plan.scale, floor)


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


def _gradients(
    plan: TileConfig,
    scalars: Ref,
    at: _Where,
    sides: tuple[_Side, _Side],
    floor_N: jax.Array,
    of: _OfQueries,
    by_key: bool,
) -> Pair:
    """Returns the probabilities after dropout and the gradients of the scores; rows are keys if `by_key`."""
    across = lambda x_N: x_N[None, :] if by_key else x_N[:, None]
    rows, columns = reversed(sides) if by_key else sides
    floor = floor_N[:, None] if by_key else floor_N[None, :]
    probs = jnp.exp(_scores(plan, rows, columns, floor) - across(of.maxima)) * across(1 / of.totals)
    of_probs = plan.product(rows.others, columns.others, (1, 1))
    dropped = probs
    if plan.limit:
        factor = jnp.where(_kept(plan, scalars, at), amplified(plan.limit), 0.0)
        factor = factor.T if by_key else factor
        dropped, of_probs = probs * factor, of_probs * factor
    return dropped, jnp.where(floor > 0, probs * (of_probs - across(of.deltas)) * plan.scale, 0.0)


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
        value_NK = _rows(plan, value, j)
        sides = _Side(query_NK, query_NK, of_query), _Side(_rows(plan, key, j), value_NK, of_key)
        scores = _scores(plan, *sides, _rows(plan, floor, j)[None, :])
        maxima = jnp.maximum(before, scores.max(axis=1))
        probs, shrink = jnp.exp(scores - maxima[:, None]), jnp.exp(before - maxima)
        total = total * shrink + probs.sum(axis=1)
        if plan.limit:
            probs = jnp.where(_kept(plan, scalars, at), probs, 0.0)
        sums = sums * shrink[:, None] + plan.product(probs.astype(value_NK.dtype), value_NK, (1, 0))
        return sums, maxima, total

    empty = jnp.zeros(query_NK.shape, jnp.float32), jnp.full(plan.tile, -jnp.inf), jnp.zeros(plan.tile)
    sums, maxima, total = jax.lax.fori_loop(0, plan.keys, step, empty)
    out[...] = (sums * (amplified(plan.limit) / total)[:, None]).astype(out.dtype)
    statistics[0], statistics[1] = maxima, total


class _Given(NamedTuple):
    """What all kernels of the way back read; `statistics` [2, queries] as `forward` wrote them, `deltas` [queries]."""

    scalars: Ref
    floor: Ref
    query: Ref
    key: Ref
    value: Ref
    grad: Ref
    statistics: Ref
    deltas: Ref

    def gradients(
        self,
        plan: TileConfig,
        at: _Where,
        tables: list[Ref],
        by_key: bool,
        leading: tuple[jax.Array, ...] = (),
    ) -> tuple[tuple[_Side, _Side], Pair]:
        """Returns the sides of a tile, queries and keys, and what `_gradients` does; `leading` is as in `_rows`."""
        of_query, of_key = _runs(plan, tables, at)
        queries = lambda ref, *more: _rows(plan, ref, at.query, (*leading, *more))
        keys = lambda ref: _rows(plan, ref, at.key, leading)
        sides = (
            _Side(queries(self.query), queries(self.grad), of_query),
            _Side(keys(self.key), keys(self.value), of_key),
        )
        of = _OfQueries(queries(self.statistics, 0), queries(self.statistics, 1), queries(self.deltas))
        return sides, _gradients(plan, self.scalars, at, sides, keys(self.floor), of, by_key)


GIVEN = len(_Given._fields)


def backward_of_queries(plan: TileConfig, *refs: Ref) -> None:
    """Computes the gradients of a tile of queries [N, K]; grid [tiles of queries, H, B]; `refs` as in `_Given`."""
    given, (*tables, of_query) = _Given(*refs[:GIVEN]), refs[GIVEN:]
    i, head, row = (pl.program_id(axis) for axis in range(3))

    def step(j: jax.Array, sums: jax.Array) -> jax.Array:
        (queries, keys), (_, grad) = given.gradients(plan, _Where(row, head, i, j), tables, False)
        return sums + _states_gradient(plan, grad, queries, keys)

    sums = jax.lax.fori_loop(0, plan.keys, step, jnp.zeros(of_query.shape, jnp.float32))
    of_query[...] = sums.astype(of_query.dtype)


def backward_of_keys(plan: TileConfig, *refs: Ref) -> None:
    """Computes the gradients of a tile of keys and values [N, K]; grid [tiles of keys, H, B]; `refs` as in `_Given`."""
    given, (*tables, of_key, of_value) = _Given(*refs[:GIVEN]), refs[GIVEN:]
    j, head, row = (pl.program_id(axis) for axis in range(3))

    def step(i: jax.Array, sums: Pair) -> Pair:
        (queries, keys), (dropped, grad) = given.gradients(plan, _Where(row, head, i, j), tables, True)
        of_values = plan.product(dropped.astype(queries.others.dtype), queries.others, (1, 0))
        return sums[0] + _states_gradient(plan, grad, keys, queries), sums[1] + of_values

    none = jnp.zeros(of_key.shape, jnp.float32)
    sums = jax.lax.fori_loop(0, plan.queries, step, (none, none))
    of_key[...], of_value[...] = (x.astype(of_key.dtype) for x in sums)


def backward_of_positions(plan: TileConfig, rows: int, *refs: Ref) -> None:
    """Adds up the gradients of the positions of the tiles on one diagonal; grid [diagonals, H, parts of the batch].

    Args:
      plan: what is fixed.
      rows: rows of a part of the batch; the last part may have fewer.
      refs: as in `_Given`, all but the scalars with an axis of rows of the batch in front; the gradients of `low` and
        `high` of position keys, and of position queries, float32 [2, N, K] each.
    """
    given, (*tables, of_keys, of_queries) = _Given(*refs[:GIVEN]), refs[GIVEN:]
    diagonal, head, part = (pl.program_id(axis) for axis in range(3))
    ahead = diagonal - (plan.keys - 1)  # the tile of queries minus that of keys
    first, last = jnp.maximum(ahead, 0), jnp.minimum(plan.queries, plan.keys + ahead)

    def of_row(row: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        def step(i: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            at = _Where(row, head, i, i - ahead)
            (queries, keys), (_, grad) = given.gradients(plan, at, tables, False, (row,))
            found = [
                plan.product(block, side.states, (0, 0))
                for side, grad_NN in ((queries, grad), (keys, grad.T))
                for block in _back(plan, grad_NN, side.states.dtype)
            ]
            return tuple(x + y for x, y in zip(sums, found, strict=True))

        return jax.lax.fori_loop(first, last, step, sums)

    none = tuple(jnp.zeros(of_keys.shape[1:], jnp.float32) for _ in range(4))
    end = jnp.minimum((part + 1) * rows, given.query.shape[0])
    of_keys[0], of_keys[1], of_queries[0], of_queries[1] = jax.lax.fori_loop(part * rows, end, of_row, none)
