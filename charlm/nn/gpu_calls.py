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
from charlm.nn.tile_calls import Given, Spread, StaticArgs, Tables
from charlm.nn.tiles import TileConfig

TILE = 64  # rows and columns: scores, and their products with positions, fit into an H100's registers
ENOUGH = 1024  # programs that keep a GPU busy: eight on each of 132 multiprocessors
WARPS = 4  # an H200 takes 1.2 ms forward with 4 and 1.9 with 8, though registers are spilled with 4
# Bytes of the probabilities and gradients of scores that the way back holds at a time: 64 rows of 512 words in 12 heads
# take 0.8 GiB in bfloat16.
SCORE_BYTES = 2**30


class _Parts(NamedTuple):
    """The parts of arrays that a program gets, for a grid [tiles, H, B]."""

    plan: TileConfig

    def rows(self, length: int) -> pl.BlockSpec:
        """Of arrays [B, length, D]: all rows of a head."""
        return pl.BlockSpec((None, length, self.plan.head_dim), lambda t, h, b: (b, 0, h))

    def tile(self) -> pl.BlockSpec:
        """Of arrays [B, ..., D]: the program's own tile."""
        return pl.BlockSpec((None, self.plan.tile, self.plan.head_dim), lambda t, h, b: (b, t, h))

    def of_forward(self, keys: int, tables: Tables) -> list[pl.BlockSpec]:
        """What `gpu_tiles.forward` reads."""
        floor = pl.BlockSpec((None, None, keys), lambda t, h, b: (b, 0, 0))
        return [_SCALARS, floor, self.tile(), self.rows(keys), self.rows(keys), *self.tables(tables)]

    def tables(self, tables: Tables) -> list[pl.BlockSpec]:
        """Of the tables: all positions of a head."""
        return [pl.BlockSpec((len(table), self.plan.head_dim), lambda t, h, b: (0, h)) for table in tables]


def _plan(static: StaticArgs, query: jax.Array, keys: int, tables: Tables) -> TileConfig:
    tiles = query.shape[1] // static.tile, keys // static.tile
    return TileConfig(
        static.tile, static.head_dim, 1, static.heads, *tiles, static.scale, static.limit, bool(tables),
        static.interpret,
    )  # fmt: skip


def call(
    plan: TileConfig,
    kernel: Callable[..., None],  # of any number of parts of arrays
    name: str,
    **rest: Any,  # as `pl.pallas_call` types them
) -> Callable[..., Any]:  # arrays in, one or several out
    """Returns `pl.pallas_call` of a kernel, with the settings that all kernels for GPUs share."""
    params = plgpu.CompilerParams(num_warps=WARPS, num_stages=1)
    return pl.pallas_call(kernel, compiler_params=params, interpret=plan.interpret, name=name, **rest)


_SCALARS = pl.BlockSpec((4,), lambda t, h, b: (0,))


def call_forward(static: StaticArgs, spread: Spread, given: Given[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Returns the output [B, Q, D] and the statistics [B, H, 2, Q] of one device."""
    query, key, value, tables, floor_B1N, seed_2 = given
    (B, Q, D), N = query.shape, key.shape[1]
    plan = _plan(static, query, N, tables)
    at, H = _Parts(plan), D // plan.head_dim
    run = call(
        plan,
        functools.partial(gpu_tiles.forward, plan),
        "tiled_attention",
        grid=(plan.queries, H, B),
        in_specs=at.of_forward(N, tables),
        out_specs=[at.tile(), pl.BlockSpec((None, None, 2, plan.tile), lambda t, h, b: (b, h, 0, t))],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype), jax.ShapeDtypeStruct((B, H, 2, Q), jnp.float32)
        ],
    )  # fmt: skip
    return run(spread.scalars(seed_2, B, H), floor_B1N, query, key, value, *tables)


def call_backward(
    static: StaticArgs,
    spread: Spread,
    given: Given[jax.Array],
    out: jax.Array,
    statistics: jax.Array,
    grad: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, Tables]:
    """Returns the gradients of one device's query, key, value and tables; those of tables are sums over all devices.

    The rows of the batch are gone through in blocks of equal size, one after the other (`_blocks`).
    """
    query, key, value, tables, floor_B1N, seed_2 = given
    (B, Q, D), N = query.shape, key.shape[1]
    plan = _plan(static, query, N, tables)
    H = D // plan.head_dim
    by_head = (out.astype(jnp.float32) * grad.astype(jnp.float32)).reshape(B, Q, H, -1)
    deltas = by_head.sum(axis=-1).swapaxes(1, 2)
    scalars = spread.scalars(seed_2, B, H)
    count, rows = _blocks(B, H * Q * N * query.dtype.itemsize)

    def of_block(number: jax.Array, read: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        here = jnp.stack([jnp.uint32(0), jnp.uint32(0), number.astype(jnp.uint32) * rows, jnp.uint32(0)])
        return _gradients_of_rows(plan, scalars + here, tables, *read)

    read = floor_B1N, query, key, value, grad, statistics, deltas
    if count == 1:
        of_query, of_key, of_value, *summed = of_block(jnp.uint32(0), read)
    else:
        # Rows that are filled in see no key, and their gradients are 0.
        empty = -jnp.inf, 0, 0, 0, 0, 1, 0
        more = lambda x: [(0, count * rows - B), *[(0, 0)] * (x.ndim - 1)]
        filled = [jnp.pad(x, more(x), constant_values=value) for x, value in zip(read, empty, strict=True)]
        blocks = [x.reshape(count, rows, *x.shape[1:]) for x in filled]
        of_query, of_key, of_value, summed = _in_turn(of_block, blocks, tables)
        of_query, of_key, of_value = (x.reshape(-1, *x.shape[2:])[:B] for x in (of_query, of_key, of_value))
    if spread.batch:
        summed = [jax.lax.psum(x, spread.batch) for x in summed]
    return of_query, of_key, of_value, tuple(summed)


def _in_turn(
    of_block: Callable[[jax.Array, tuple[jax.Array, ...]], tuple[jax.Array, ...]],
    blocks: list[jax.Array],
    tables: Tables,
) -> tuple[jax.Array, jax.Array, jax.Array, tuple[jax.Array, ...]]:
    """Returns the gradients of all blocks, [count, rows, ...], and the sums over blocks of those of the tables."""

    def step(sums: Tables, block: tuple[jax.Array, ...]) -> tuple[Tables, tuple[jax.Array, ...]]:
        number, *read = block
        of_query, of_key, of_value, *of_tables = of_block(number, tuple(read))
        return tuple(x + y for x, y in zip(sums, of_tables, strict=True)), (of_query, of_key, of_value)

    none = tuple(jnp.zeros(table.shape, jnp.float32) for table in tables)
    summed, (of_query, of_key, of_value) = jax.lax.scan(step, none, (jnp.arange(len(blocks[0])), *blocks))
    return of_query, of_key, of_value, summed


def _blocks(rows: int, score_bytes: int) -> tuple[int, int]:
    """Returns in how many blocks the way back goes through the batch, and the rows of each; the last may have fewer.

    Args:
      rows: all rows.
      score_bytes: bytes of a row's scores, of all heads.
    """
    fewest = -(-rows // max(1, SCORE_BYTES // (2 * score_bytes)))
    each = -(-rows // fewest)
    return -(-rows // each), each


def _gradients_of_rows(
    plan: TileConfig,
    scalars: jax.Array,
    tables: Tables,
    floor: jax.Array,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    grad: jax.Array,
    statistics: jax.Array,
    deltas: jax.Array,
) -> tuple[jax.Array, ...]:
    """Returns the gradients of query, key and value of some rows, and the sums over these of those of the tables."""
    (B, Q, D), N = query.shape, key.shape[1]
    at, H = _Parts(plan), D // plan.head_dim
    like = lambda *arrays: [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    scores = jax.ShapeDtypeStruct((B, H, Q, N), query.dtype)
    of_tile = pl.BlockSpec((None, None, plan.tile, N), lambda t, h, b: (b, h, t, 0))
    of_query, dropped, of_scores = call(
        plan, functools.partial(gpu_tiles.backward_of_queries, plan),
        "tiled_attention_backward_of_queries",
        grid=(plan.queries, H, B),
        in_specs=[
            *at.of_forward(N, tables[:0]), at.tile(),
            pl.BlockSpec((None, None, 2, plan.tile), lambda t, h, b: (b, h, 0, t)),
            pl.BlockSpec((None, None, plan.tile), lambda t, h, b: (b, h, t)),
            *at.tables(tables),
        ],
        out_specs=[at.tile(), of_tile, of_tile], out_shape=[*like(query), scores, scores],
    )(scalars, floor, query, key, value, grad, statistics, deltas, *tables)  # fmt: skip
    of_column = pl.BlockSpec((None, None, Q, plan.tile), lambda t, h, b: (b, h, 0, t))
    of_key, of_value = call(
        plan, functools.partial(gpu_tiles.backward_of_keys, plan),
        "tiled_attention_backward_of_keys",
        grid=(plan.keys, H, B), in_specs=[at.rows(Q), at.rows(Q), of_column, of_column, *at.tables(tables)],
        out_specs=[at.tile(), at.tile()], out_shape=like(key, value),
    )(query, grad, dropped, of_scores, *tables)  # fmt: skip
    if not tables:
        return of_query, of_key, of_value

    diagonals = plan.queries + plan.keys - 1
    rows = -(-B // min(B, -(-ENOUGH // (diagonals * H))))
    whole = lambda length: pl.BlockSpec((B, length, plan.head_dim), lambda t, h, b: (0, 0, h))
    own = pl.BlockSpec((None, None, None, 2, plan.tile, plan.head_dim), lambda t, h, b: (b, h, t, 0, 0, 0))
    sums = jax.ShapeDtypeStruct((-(-B // rows), H, diagonals, 2, plan.tile, plan.head_dim), jnp.float32)
    of_keys, of_queries = call(
        plan, functools.partial(gpu_tiles.backward_of_positions, plan, rows),
        "tiled_attention_backward_of_positions",
        grid=(diagonals, H, len(range(0, B, rows))),
        in_specs=[whole(Q), whole(N), pl.BlockSpec((B, None, Q, N), lambda t, h, b: (0, h, 0, 0))],
        out_specs=[own, own], out_shape=[sums, sums],
    )(query, key, of_scores)  # fmt: skip
    # A table of position keys descends.
    return of_query, of_key, of_value, of_table(of_keys[:, :, ::-1]), of_table(of_queries)


def of_table(sums: jax.Array) -> jax.Array:
    """Returns the gradients of a table [T, D] from those of `low` and `high` of each diagonal, which overlap by one."""
    _, H, diagonals, _, N, K = sums.shape
    low, high = jnp.moveaxis(sums.sum(axis=0), 2, 0)
    joined = jnp.pad(low, ((0, 0), (0, 1), (0, 0), (0, 0))) + jnp.pad(high, ((0, 0), (1, 0), (0, 0), (0, 0)))
    return joined.reshape(H, (diagonals + 1) * N, K).swapaxes(0, 1).reshape(-1, H * K)
