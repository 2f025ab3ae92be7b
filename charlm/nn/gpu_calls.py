"""Calls the kernels of tiled attention for GPUs: which part of which array a program gets.

Open it to change how many programs there are or what they are given. `charlm.nn.tiled` is the function to use; the
kernels are in `charlm.nn.gpu_tiles`, and `charlm.nn.tile_calls` calls those for TPUs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from charlm.nn import gpu_tiles
from charlm.nn.tile_calls import Spread, StaticArgs, Tables
from charlm.nn.tiles import TileConfig

TILE = 64  # rows and columns: scores, and their products with positions, fit into an H100's registers
ENOUGH = 512  # programs that keep a GPU busy: four on each of 132 multiprocessors
# By the compiler's figures alone: with 4 warps more registers are spilled, and no GPU has run either.
WARPS = 8
TWO_STAGES = 64  # numbers of a head up to which two tiles are in shared memory: the next is read while one is computed


class _Parts(NamedTuple):
    """The parts of arrays that a program gets, for a grid [tiles, H, B]."""

    plan: TileConfig

    def rows(self, length: int) -> pl.BlockSpec:
        """Of arrays [B, length, D]: all rows of a head."""
        return pl.BlockSpec((None, length, self.plan.head_dim), lambda t, h, b: (b, 0, h))

    def tile(self) -> pl.BlockSpec:
        """Of arrays [B, ..., D]: the program's own tile."""
        return pl.BlockSpec((None, self.plan.tile, self.plan.head_dim), lambda t, h, b: (b, t, h))

    def tables(self, tables: Tables) -> list[pl.BlockSpec]:
        """Of the tables: all positions of a head."""
        return [pl.BlockSpec((len(table), self.plan.head_dim), lambda t, h, b: (0, h)) for table in tables]


def _plan(static: StaticArgs, query: jax.Array, keys: int, tables: Tables) -> TileConfig:
    tiles = query.shape[1] // static.tile, keys // static.tile
    return TileConfig(
        static.tile, static.head_dim, 1, static.heads, *tiles, static.scale, static.limit, bool(tables),
        static.interpret,
    )  # fmt: skip


def _call(
    plan: TileConfig,
    kernel: Callable[..., None],  # of any number of parts of arrays
    name: str,
    **rest: Any,  # as `pl.pallas_call` types them
) -> Callable[..., Any]:  # arrays in, one or several out
    stages = 2 if plan.head_dim <= TWO_STAGES else 1
    params = plgpu.CompilerParams(num_warps=WARPS, num_stages=stages)
    return pl.pallas_call(kernel, compiler_params=params, interpret=plan.interpret, name=name, **rest)


_SCALARS = pl.BlockSpec((4,), lambda t, h, b: (0,))


def call_forward(
    static: StaticArgs,
    spread: Spread,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    tables: Tables,
    floor_B1N: jax.Array,
    seed_2: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Returns the output [B, Q, D] and the statistics [B, H, 2, Q] of one device."""
    (B, Q, D), N = query.shape, key.shape[1]
    plan = _plan(static, query, N, tables)
    at, H = _Parts(plan), D // plan.head_dim
    run = _call(
        plan,
        functools.partial(gpu_tiles.forward, plan),
        "tiled_attention",
        grid=(plan.queries, H, B),
        in_specs=[
            _SCALARS, pl.BlockSpec((None, None, N), lambda t, h, b: (b, 0, 0)), at.tile(), at.rows(N), at.rows(N),
            *at.tables(tables),
        ],
        out_specs=[at.tile(), pl.BlockSpec((None, None, 2, plan.tile), lambda t, h, b: (b, h, 0, t))],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype), jax.ShapeDtypeStruct((B, H, 2, Q), jnp.float32)
        ],
    )  # fmt: skip
    return run(spread.scalars(seed_2, B, H), floor_B1N, query, key, value, *tables)


def call_backward(
    static: StaticArgs,
    spread: Spread,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    tables: Tables,
    floor_B1N: jax.Array,
    seed_2: jax.Array,
    out: jax.Array,
    statistics: jax.Array,
    grad: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, Tables]:
    """Returns the gradients of one device's query, key, value and tables; those of tables are sums over all devices."""
    (B, Q, D), N = query.shape, key.shape[1]
    plan = _plan(static, query, N, tables)
    at, H = _Parts(plan), D // plan.head_dim
    by_head = (out.astype(jnp.float32) * grad.astype(jnp.float32)).reshape(B, Q, H, -1)
    deltas = by_head.sum(axis=-1).swapaxes(1, 2)
    given = (spread.scalars(seed_2, B, H), floor_B1N, query, key, value, grad, statistics, deltas, *tables)

    def specs(rows: int | None) -> list[pl.BlockSpec]:
        """Returns the parts of `given`: one row of the batch, or all of `rows`."""
        batch = lambda *shape: (rows, *shape)
        row = lambda b: b if rows is None else 0
        states = lambda length: pl.BlockSpec(batch(length, plan.head_dim), lambda t, h, b: (row(b), 0, h))
        return [
            _SCALARS,
            pl.BlockSpec(batch(None, N), lambda t, h, b: (row(b), 0, 0)),
            states(Q), states(N), states(N), states(Q),
            pl.BlockSpec(batch(None, 2, Q), lambda t, h, b: (row(b), h, 0, 0)),
            pl.BlockSpec(batch(None, Q), lambda t, h, b: (row(b), h, 0)),
            *at.tables(tables),
        ]  # fmt: skip

    like = lambda *arrays: [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    of_query = _call(
        plan, functools.partial(gpu_tiles.backward_of_queries, plan),
        "tiled_attention_backward_of_queries",
        grid=(plan.queries, H, B), in_specs=specs(None), out_specs=[at.tile()], out_shape=like(query),
    )(*given)[0]  # fmt: skip
    of_key, of_value = _call(
        plan, functools.partial(gpu_tiles.backward_of_keys, plan),
        "tiled_attention_backward_of_keys",
        grid=(plan.keys, H, B), in_specs=specs(None), out_specs=[at.tile(), at.tile()], out_shape=like(key, value),
    )(*given)  # fmt: skip
    if not tables:
        return of_query, of_key, of_value, ()

    diagonals = plan.queries + plan.keys - 1
    rows = -(-B // min(B, -(-ENOUGH // (diagonals * H))))
    parts = -(-B // rows)
    own = pl.BlockSpec((None, None, None, 2, plan.tile, plan.head_dim), lambda t, h, b: (b, h, t, 0, 0, 0))
    sums = jax.ShapeDtypeStruct((parts, H, diagonals, 2, plan.tile, plan.head_dim), jnp.float32)
    of_keys, of_queries = _call(
        plan, functools.partial(gpu_tiles.backward_of_positions, plan, rows),
        "tiled_attention_backward_of_positions",
        grid=(diagonals, H, parts), in_specs=specs(B), out_specs=[own, own], out_shape=[sums, sums],
    )(*given)  # fmt: skip
    of_tables = _of_table(of_keys[:, :, ::-1]), _of_table(of_queries)  # a table of position keys descends
    if spread.batch:
        of_tables = tuple(jax.lax.psum(x, spread.batch) for x in of_tables)
    return of_query, of_key, of_value, of_tables


def _of_table(sums: jax.Array) -> jax.Array:
    """Returns the gradients of a table [T, D] from those of `low` and `high` of each diagonal, which overlap by one."""
    _, H, diagonals, _, N, K = sums.shape
    low, high = jnp.moveaxis(sums.sum(axis=0), 2, 0)
    joined = jnp.pad(low, ((0, 0), (0, 1), (0, 0), (0, 0))) + jnp.pad(high, ((0, 0), (1, 0), (0, 0), (0, 0)))
    return joined.reshape(H, (diagonals + 1) * N, K).swapaxes(0, 1).reshape(-1, H * K)
