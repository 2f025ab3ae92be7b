"""Calls the kernels of tiled attention on TPUs: which block of which array a tile gets, and how devices share work.

Open it to change the order of tiles, the memory that they take, or what every device computes. `charlm.nn.tiled` is
the function to use; the kernels are in `charlm.nn.tiles`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from charlm.nn import tiles
from charlm.nn.choices import Chip

LANES = 128  # of a TPU's registers
FAST_MEMORY = 100 * 2**20  # bytes of a TPU's fast memory that a kernel may use, of 128 MiB in v5e and v6e

Tables = tuple[jax.Array, ...]
Leaf = TypeVar("Leaf", jax.Array, P)


class StaticArgs(NamedTuple):
    """What is fixed when the attention is traced; see `tiles.TileConfig`.

    Attributes:
      chip: that of `tiled_attention`.
      short: whether several windows share a tile.
    """

    heads: int
    head_dim: int
    scale: float
    limit: int
    tile: int
    chip: Chip
    short: bool
    interpret: bool


class Given(NamedTuple, Generic[Leaf]):
    """What the kernels of one device are given; the way back gets it a second time. Or the partitions of these arrays.

    Attributes:
      query: [B, Q, D].
      key, value: [B, N, D].
      tables: position keys and position queries [T, D], or nothing.
      floor: float32 [B, 1, N]: positive where a key is visible; else the score in place of its own.
      seed: uint32 [2], of dropout.
    """

    query: Leaf
    key: Leaf
    value: Leaf
    tables: tuple[Leaf, ...]
    floor: Leaf
    seed: Leaf


class Spread(NamedTuple):
    """How devices share the work.

    Attributes:
      mesh: the mesh; None: one device.
      batch: mesh axes over which the rows of the batch are spread.
      heads: the mesh axis over which the heads are spread; None: every device computes all.
    """

    mesh: jax.sharding.AbstractMesh | None
    batch: tuple[str, ...]
    heads: str | None

    @property
    def states(self) -> P:
        """Of arrays [B, L, D]."""
        return P(self.batch or None, None, self.heads)

    @property
    def tables(self) -> P:
        """Of arrays [T, D]."""
        return P(None, self.heads)

    @property
    def rows(self) -> P:
        """Of arrays [B, ...]."""
        return P(self.batch or None)

    @property
    def statistics(self) -> P:
        """Of arrays [B, blocks of heads, ...]."""
        return P(self.batch or None, self.heads)

    def given(self, tables: int) -> Given[P]:
        """Of what the kernels are given, with so many tables."""
        return Given(self.states, self.states, self.states, (self.tables,) * tables, self.rows, P())

    def over(
        self,
        function: Callable[..., Any],  # any number of arrays, one or several returned
        given: Any,  # trees of partitions
        returned: Any,
    ) -> Callable[..., Any]:  # like `function`
        """Returns a function of whole arrays that runs on every device's part: XLA cannot split kernels itself.

        Args:
          function: a function of arrays.
          given, returned: trees of partitions like its arguments and results, and so are those of what is returned.
        """
        if self.mesh is None:
            return function
        return jax.shard_map(function, mesh=self.mesh, in_specs=given, out_specs=returned, check_vma=False)

    def scalars(self, seed_2: jax.Array, rows: int, heads: int) -> jax.Array:
        """Returns uint32 [4]: the seed, and the first row and head of this device, which has `rows` and `heads`."""
        row, head = (jax.lax.axis_index(axes) if axes else 0 for axes in (self.batch, self.heads))
        first = jnp.stack([jnp.asarray(row * rows, jnp.uint32), jnp.asarray(head * heads, jnp.uint32)])
        return jnp.concatenate([seed_2, first])


class _Blocks(NamedTuple):
    """The blocks of arrays that a tile gets; `order` turns the grid's indices into (block of heads, row, query, key).

    The indices count tiles.
    """

    plan: tiles.TileConfig
    order: Callable[..., tuple[jax.Array, ...]]

    def spec(self, shape: tuple[int, ...], place: Callable[..., tuple[jax.Array | int, ...]]) -> pl.BlockSpec:
        """Returns a block of this shape at a place that depends on (block of heads, row, query, key)."""
        return pl.BlockSpec(shape, lambda *grid: place(*self.order(*grid[:4])))

    def queries(self) -> pl.BlockSpec:
        """Of arrays [B, Q, D]."""
        return self.spec((1, self.plan.tile, self.plan.lanes), lambda g, b, i, j: (b, i, g))

    def keys(self) -> pl.BlockSpec:
        """Of arrays [B, N, D]."""
        return self.spec((1, self.plan.tile, self.plan.lanes), lambda g, b, i, j: (b, j, g))

    def floor(self) -> pl.BlockSpec:
        """Of an array [B, 1, N]."""
        return self.spec((1, 1, self.plan.tile), lambda g, b, i, j: (b, 0, j))

    def statistics(self, kinds: int) -> pl.BlockSpec:
        """Of an array [B, blocks of heads, kinds x heads of a block, Q]."""
        return self.spec((1, 1, kinds * self.plan.block_heads, self.plan.tile), lambda g, b, i, j: (b, g, 0, i))

    def runs(self) -> list[pl.BlockSpec]:
        """Of the tables: two halves of position keys, which descend, and two of position queries, which ascend."""
        plan = self.plan
        if not plan.positions:
            return []
        of_keys = lambda more: lambda g, b, i, j: (plan.queries - 1 - i + j + more, g)
        of_queries = lambda more: lambda g, b, i, j: (plan.keys - 1 - j + i + more, g)
        shape = (plan.tile, plan.lanes)
        return [self.spec(shape, of(more)) for of in (of_keys, of_queries) for more in (0, 1)]


def _plan(static: StaticArgs, query: jax.Array, keys: int, tables: Tables) -> tiles.TileConfig:
    _, Q, D = query.shape
    lanes = math.lcm(static.head_dim, LANES)
    lanes = D if D % lanes else lanes  # a block may be the whole width, however narrow
    return tiles.TileConfig(
        static.tile, static.head_dim, lanes // static.head_dim, static.heads, Q // static.tile, keys // static.tile,
        static.scale, static.limit, bool(tables), static.interpret,
    )  # fmt: skip


def _twice(tables: Tables) -> list[jax.Array]:
    return [table for table in tables for _ in (0, 1)]


def _cost(plan: tiles.TileConfig, products: float, grid: tuple[int, ...], *arrays: jax.Array) -> pl.CostEstimate:
    """Returns the cost estimate of a kernel for the compiler: `products` of [N, E] x [E, N] for each head and tile."""
    count = math.prod(grid)
    return pl.CostEstimate(
        flops=int(count * plan.block_heads * products * 2 * plan.tile**2 * plan.lanes),
        transcendentals=count * plan.block_heads * plan.tile**2,
        bytes_accessed=sum(array.size * array.dtype.itemsize for array in arrays),
    )


def call_forward(static: StaticArgs, spread: Spread, given: Given[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Returns the output [B, Q, D] and the statistics [B, blocks of heads, 2 x heads of a block, Q] of one device."""
    query, key, value, tables, floor_B1N, seed_2 = given
    B, Q, D = query.shape
    plan = _plan(static, query, key.shape[1], tables)
    blocks = D // plan.lanes
    grid = blocks, B, plan.queries, plan.keys
    at = _Blocks(plan, lambda g, b, i, j: (g, b, i, j))
    column = pltpu.VMEM((plan.block_heads, plan.tile, 1), jnp.float32)
    strips = 2 * (1 + tiles.ROWS / plan.tile) if tables else 0
    return pl.pallas_call(
        functools.partial(tiles.forward, plan),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid,
            in_specs=[at.floor(), at.queries(), at.keys(), at.keys(), *at.runs()],
            out_specs=[at.queries(), at.statistics(2)],
            scratch_shapes=[pltpu.VMEM((plan.tile, plan.lanes), jnp.float32), column, column],
        ),
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((B, blocks, 2 * plan.block_heads, Q), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"), vmem_limit_bytes=FAST_MEMORY
        ),
        cost_estimate=_cost(plan, 2 + strips, grid, query, query, key, value, *tables),
        interpret=plan.interpret,
        name="tiled_attention",
    )(spread.scalars(seed_2, B, D // plan.head_dim), floor_B1N, query, key, value, *_twice(tables))


def call_backward(
    static: StaticArgs,
    spread: Spread,
    given: Given[jax.Array],
    out: jax.Array,
    statistics: jax.Array,
    grad: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, Tables]:
    """Returns the gradients of one device's query, key, value and tables; those of tables are sums over all devices."""
    query, key, value, tables, floor_B1N, seed_2 = given
    B, Q, D = query.shape
    plan = _plan(static, query, key.shape[1], tables)
    blocks = D // plan.lanes
    grid = blocks, B, plan.keys, plan.queries
    at = _Blocks(plan, lambda g, b, j, i: (g, b, i, j))
    by_head = (out.astype(jnp.float32) * grad.astype(jnp.float32)).reshape(B, Q, blocks, plan.block_heads, -1)
    deltas = by_head.sum(axis=-1).transpose(0, 2, 3, 1)
    sums = lambda length: pltpu.VMEM((length, plan.lanes), jnp.float32)
    whole = at.spec((1, Q, plan.lanes), lambda g, b, i, j: (b, 0, g))
    of_tables = [pl.BlockSpec((len(table), plan.lanes), lambda g, *_: (0, g)) for table in tables]
    strips = 6 * (1 + tiles.ROWS / plan.tile) if tables else 0
    of_query, of_key, of_value, *of_rows = pl.pallas_call(
        functools.partial(tiles.backward, plan),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid,
            in_specs=[
                at.floor(), at.queries(), at.keys(), at.keys(), at.queries(), at.statistics(2), at.statistics(1),
                *at.runs(),
            ],
            out_specs=[whole, at.keys(), at.keys(), *of_tables],
            scratch_shapes=[sums(Q), sums(plan.tile), sums(plan.tile)],
        ),
        out_shape=[
            *[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)],
            *[jax.ShapeDtypeStruct(table.shape, jnp.float32) for table in tables],
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary", "arbitrary"), vmem_limit_bytes=FAST_MEMORY
        ),
        cost_estimate=_cost(plan, 5 + strips, grid, query, query, key, key, value, value, grad, *tables),
        interpret=plan.interpret,
        name="tiled_attention_backward",
    )(
        spread.scalars(seed_2, B, D // plan.head_dim), floor_B1N, query, key, value, grad, statistics, deltas,
        *_twice(tables),
    )  # fmt: skip
    if spread.batch:
        of_rows = [jax.lax.psum(rows, spread.batch) for rows in of_rows]
    return of_query, of_key, of_value, tuple(of_rows)
