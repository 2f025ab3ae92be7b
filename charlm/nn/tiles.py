"""The two kernels of tiled attention, written in Pallas: what is computed for a tile of scores, forward and backward.

A tile is a square of scores of one row of the batch. A block of heads (as many as fill the 128 lanes of a TPU's
registers) is computed together: products use the states of all its heads with those of the others set to zero, which
costs a TPU nothing and spares every copy to another layout. Notation: N rows (queries or keys) of a tile, P = 2 N
positions of its run, E lanes of a block of heads. `charlm.nn.tiled` calls the kernels and documents them; open it to
change what happens inside a tile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from charlm.nn.draws import amplified, kept_tile
from charlm.nn.skews import ROWS, skewed, unskewed

HIDDEN = -1e30  # the score of a hidden key: finite, so that a query without any key gives finite values and gradients

Ref = Any  # a block in a chip's memory; Pallas has several classes of them and no common type


class TileConfig(NamedTuple):
    """What is fixed when a kernel is traced.

    Attributes:
      tile: N.
      head_dim: K.
      block_heads: heads of a block.
      heads: heads of the whole model, on all devices.
      queries, keys: tiles of queries and of keys.
      scale: factor of the scores.
      limit: see `charlm.nn.draws.threshold`; 0: nothing is dropped.
      positions: whether relative positions are scored.
      interpret: whether the kernels run in Pallas' interpreter.
    """

    tile: int
    head_dim: int
    block_heads: int
    heads: int
    queries: int
    keys: int
    scale: float
    limit: int
    positions: bool
    interpret: bool

    @property
    def lanes(self) -> int:
        """E, the lanes of a block of heads."""
        return self.head_dim * self.block_heads

    def of_head(self, x: jax.Array, head: int) -> jax.Array:
        """Returns x [..., E] with zeros in the lanes of all heads but one."""
        if self.block_heads == 1:
            return x
        lane, first = self._lane(x.shape), head * self.head_dim
        return jnp.where((lane >= first) & (lane < first + self.head_dim), x, jnp.zeros_like(x))

    def by_head(self, parts: list[jax.Array]) -> jax.Array:
        """Returns an array [..., E] with the lanes of each head from its own part."""
        lane = self._lane(parts[0].shape)
        return functools.reduce(
            lambda x, head: jnp.where(lane >= head * self.head_dim, parts[head], x),
            range(1, self.block_heads),
            parts[0],
        )

    def _lane(self, shape: tuple[int, ...]) -> jax.Array:
        return jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)

    def product(self, x: jax.Array, y: jax.Array, over: tuple[int, int]) -> jax.Array:
        """Returns the product of two matrices, summed in float32 over an axis of each."""
        if self.interpret:  # XLA for CPUs would sum in bfloat16
            x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
        axes = (((over[0],), (over[1],)), ((), ()))
        return jax.lax.dot_general(x, y, axes, precision, preferred_element_type=jnp.float32)

    def kept(self, scalars: Ref, head: int, row: jax.Array, tile: tuple[jax.Array, jax.Array], by_key: bool):
        """Returns what dropout keeps of a tile (of queries, of keys), bool [N, N]."""
        block = pl.program_id(0)
        head_of_all = scalars[3] + (block * self.block_heads + head).astype(jnp.uint32)
        place = (scalars[2] + row.astype(jnp.uint32)) * jnp.uint32(self.heads) + head_of_all
        first = [n * self.tile for n in tile]
        return kept_tile(
            (scalars[0], scalars[1]), place, *first, size=self.tile, limit=self.limit, by_key=by_key
        )  # fmt: skip


def _strips(plan: TileConfig) -> list[tuple[slice, slice]]:
    """Returns the rows of each strip of a tile, and the positions of the run that it needs."""
    n = plan.tile
    return [(slice(at, at + ROWS), slice(n - at - ROWS, 2 * n - at)) for at in range(0, n, ROWS)]


def position_scores(plan: TileConfig, x_NE: jax.Array, run_PE: jax.Array) -> jax.Array:
    """Returns the float32 scores [r, c] = x[r] . run[c - r + N]."""
    strips = [
        skewed(plan.product(x_NE[rows], run_PE[places], (1, 1)), plan.interpret) for rows, places in _strips(plan)
    ]
    return jnp.concatenate(strips, axis=0)


def position_gradients(
    plan: TileConfig, grad_NN: jax.Array, x_NE: jax.Array, run_PE: jax.Array
) -> tuple[jax.Array, list[jax.Array]]:
    """Returns the gradients of `position_scores`: of x_NE, and of the run's `_strips`, float32."""
    of_x, of_run = [], []
    for rows, places in _strips(plan):
        grad = unskewed(grad_NN[rows], plan.interpret).astype(x_NE.dtype)
        of_x.append(plan.product(grad, run_PE[places], (1, 0)))
        of_run.append(plan.product(grad, x_NE[rows], (0, 0)))
    return jnp.concatenate(of_x, axis=0), of_run


def _runs(refs: list[Ref]) -> tuple[jax.Array, jax.Array]:
    """Returns the runs of position keys (descending distances) and position queries (ascending), [P, E] each."""
    join = lambda low, high: jnp.concatenate([low[...], high[...]], axis=0)
    return join(*refs[:2]), join(*refs[2:4])


def forward(plan: TileConfig, scalars: Ref, floor: Ref, query: Ref, key: Ref, value: Ref, *refs: Ref) -> None:
    """Adds a tile of keys to the output of a tile of queries; grid [blocks of heads, B, tiles of queries, of keys].

    Args:
      scalars: uint32, two of the seed, the first row of the batch and the first head on this device.
      floor: float32 [1, 1, N] of the keys: positive where a key is visible; else the score in place of its own.
      query, key, value: [1, N, E] each.
      refs: with positions four halves of runs [N, E] (see `_runs`); the output [1, N, E]; the statistics
        [1, 1, 2 x heads of a block, N] (each head's maximum, then each head's sum); memory for the sums, float32
        [N, E], [heads of a block, N, 1] and again.
    """
    row, i, j = pl.program_id(1), pl.program_id(2), pl.program_id(3)
    *position_refs, out, statistics, sums, maxima, totals = refs

    @pl.when(j == 0)
    def _() -> None:
        sums[...] = jnp.zeros_like(sums)
        maxima[...] = jnp.full_like(maxima, -jnp.inf)
        totals[...] = jnp.zeros_like(totals)

    query_NE, key_NE, value_NE, floor_1N = query[0], key[0], value[0], floor[0]
    runs = _runs(position_refs) if plan.positions else None
    mixed, shrunk = [], []
    for head in range(plan.block_heads):
        own_query = plan.of_head(query_NE, head)
        scores = plan.product(own_query, key_NE, (1, 1))
        if runs is not None:
            scores += position_scores(plan, own_query, runs[0])
            scores += position_scores(plan, plan.of_head(key_NE, head), runs[1]).T
        scores = jnp.where(floor_1N > 0, scores * plan.scale, floor_1N)
        before = maxima[head]
        maximum = jnp.maximum(before, scores.max(axis=1, keepdims=True))
        probs = jnp.exp(scores - maximum)
        shrink = jnp.exp(before - maximum)
        totals[head] = totals[head] * shrink + probs.sum(axis=1, keepdims=True)
        maxima[head] = maximum
        if plan.limit:
            probs = jnp.where(plan.kept(scalars, head, row, (i, j), False), probs, 0.0)
        mixed.append(plan.product(probs.astype(value_NE.dtype), value_NE, (1, 0)))
        shrunk.append(jnp.broadcast_to(shrink, mixed[0].shape))
    sums[...] = sums[...] * plan.by_head(shrunk) + plan.by_head(mixed)

    @pl.when(j == plan.keys - 1)
    def _() -> None:
        factor = amplified(plan.limit)
        factors = [jnp.broadcast_to(factor / totals[head], mixed[0].shape) for head in range(plan.block_heads)]
        out[0] = (sums[...] * plan.by_head(factors)).astype(out.dtype)
        for head in range(plan.block_heads):
            statistics[0, 0, head : head + 1] = _as_row(maxima[head])
            statistics[0, 0, plan.block_heads + head : plan.block_heads + head + 1] = _as_row(totals[head])


def _as_row(column_N1: jax.Array) -> jax.Array:
    return jnp.broadcast_to(column_N1, (len(column_N1), ROWS)).T[:1]


def _as_column(row_1N: jax.Array) -> jax.Array:
    return jnp.broadcast_to(row_1N, (ROWS, row_1N.shape[1])).T[:, :1]


class _Tile(NamedTuple):
    """What the backward pass reads of a tile: states [N, E], float32 statistics [heads, N], runs [P, E] or None."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    grad: jax.Array
    floor: jax.Array
    maxima: jax.Array
    totals: jax.Array
    deltas: jax.Array
    runs: tuple[jax.Array, jax.Array] | None


def _head_gradients(
    plan: TileConfig, one: _Tile, head: int, kept: Callable[[], jax.Array]
) -> dict[str, Any]:  # arrays, and pairs of them for positions
    """Returns the gradients of one head in a tile, float32; only the lanes of that head mean something.

    Scores and probabilities have keys as rows here: the statistics of queries are rows of memory then, and two of the
    three products with queries need no transpose.
    """
    own_query, own_key = plan.of_head(one.query, head), plan.of_head(one.key, head)
    scores = plan.product(own_key, one.query, (1, 1))
    if one.runs is not None:
        scores += position_scores(plan, own_key, one.runs[1])
        scores += position_scores(plan, own_query, one.runs[0]).T
    row = slice(head, head + 1)
    probs = jnp.exp(jnp.where(one.floor > 0, scores * plan.scale, one.floor) - one.maxima[row]) / one.totals[row]
    of_probs = plan.product(plan.of_head(one.value, head), one.grad, (1, 1))
    dropped = probs
    if plan.limit:
        factor = jnp.where(kept(), amplified(plan.limit), 0.0)
        dropped, of_probs = probs * factor, of_probs * factor
    grad = jnp.where(one.floor > 0, probs * (of_probs - one.deltas[row]) * plan.scale, 0.0)
    across, dtype = grad.T, one.query.dtype
    found: dict[str, Any] = {  # arrays, and lists of them
        "value": plan.product(dropped.astype(dtype), one.grad, (1, 0)),
        "key": plan.product(grad.astype(dtype), one.query, (1, 0)),
        "query": plan.product(across.astype(dtype), one.key, (1, 0)),
    }
    if one.runs is not None:
        of_query, found["position_keys"] = position_gradients(plan, across, one.query, one.runs[0])
        of_key, found["position_queries"] = position_gradients(plan, grad, one.key, one.runs[1])
        found["query"] += of_query
        found["key"] += of_key
    return found


def backward(
    plan: TileConfig, scalars: Ref, floor: Ref, query: Ref, key: Ref, value: Ref, grad: Ref, *refs: Ref
) -> None:
    """Adds the gradients of a tile; grid [blocks of heads, B, tiles of keys, of queries], one after the other.

    The gradients of all queries of a row of the batch, and of the positions over all rows, stay in the chip's memory
    while they are added up.

    Args:
      scalars, floor, query, key, value: as in `forward`.
      grad: the output's gradient [1, N, E].
      refs: `statistics` as in `forward`; deltas [1, 1, heads of a block, N], the sums of output times its gradient;
        with positions four halves of runs; the gradients of queries [1, Q, E], of keys and of values [1, N, E], with
        positions those of both runs, float32 [positions, E]; memory for sums, float32 [Q, E], [N, E] and [N, E].
    """
    row, j, i = pl.program_id(1), pl.program_id(2), pl.program_id(3)
    statistics, deltas, *rest = refs
    runs, rest = (_runs(rest), rest[4:]) if plan.positions else (None, rest)
    of_query, of_key, of_value, *of_runs, query_sums, key_sums, value_sums = rest
    n, heads = plan.tile, plan.block_heads
    one = _Tile(
        query[0], key[0], value[0], grad[0], _as_column(floor[0]),
        statistics[0, 0, :heads], statistics[0, 0, heads:], deltas[0, 0], runs,
    )  # fmt: skip
    kept = lambda head: lambda: plan.kept(scalars, head, row, (i, j), True)
    found = [_head_gradients(plan, one, head, kept(head)) for head in range(heads)]
    joined = lambda name: plan.by_head([own[name] for own in found])
    for sums, name in ((key_sums, "key"), (value_sums, "value")):
        _add(sums, slice(None), joined(name), i == 0)
    queries = pl.ds(i * n, n)
    _add(query_sums, queries, joined("query"), j == 0)

    if plan.positions:

        @pl.when((row == 0) & (i == 0) & (j == 0))
        def _() -> None:
            for sums in of_runs:
                sums[...] = jnp.zeros_like(sums)

        # The run of position keys, which descend, starts at tile `queries - 1 - i + j`; that of queries the other way.
        starts = plan.queries - 1 - i + j, plan.keys - 1 - j + i
        for name, sums, start in zip(("position_keys", "position_queries"), of_runs, starts, strict=True):
            parts = zip(*(own[name] for own in found), strict=True)
            runs_of_strips = [places for _, places in _strips(plan)]
            for places, by_head in zip(runs_of_strips, parts, strict=True):
                at = pl.ds(start * n + places.start, places.stop - places.start)
                sums[at] += plan.by_head(list(by_head))

    @pl.when(i == plan.queries - 1)
    def _() -> None:
        of_key[0] = key_sums[...].astype(of_key.dtype)
        of_value[0] = value_sums[...].astype(of_value.dtype)

    @pl.when(j == plan.keys - 1)
    def _() -> None:
        of_query[0, queries] = query_sums[queries].astype(of_query.dtype)


def _add(
    sums: Ref,
    at: Any,  # a slice, or one of Pallas, which has no public type
    value: jax.Array,
    first: jax.Array,
) -> None:
    """Adds to a part of memory, or sets it if it is the first value."""
    sums[at] = jnp.where(first, value, sums[at] + value)
