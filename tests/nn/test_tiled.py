"""Tests tiled attention in Pallas' interpreter: values and gradients against plain products and a gather.

Cases are those of the kernels for TPUs unless they name a chip.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from charlm.nn import draws, gpu_calls, gpu_words, skews, tiled
from charlm.nn.attention import relative_bucket
from charlm.nn.rotations import rotated, rotated_together
from charlm.nn.tiled import Positions, tile_size, tiled_attention

SEED = jnp.array([5, 7], jnp.uint32)
NAMES = ("query", "key", "value", "position keys", "position queries")


class Case:
    """Inputs of an attention whose first row sees no key; beyond 16 positions several distances share a bucket."""

    def __init__(
        self, batch: int, queries: int, keys: int, heads: int, head_dim: int, dtype=jnp.float32, chip: str = "tpu"
    ) -> None:
        self.chip = chip
        rng, D = np.random.default_rng(queries + keys), heads * head_dim
        normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
        bucket = relative_bucket(np.arange(-(keys - 1), queries), 32, 80)
        self.rows = (bucket - bucket[0]).astype(np.int32)
        self.inputs = (
            normal(batch, queries, D), normal(batch, keys, D), normal(batch, keys, D),
            normal(self.rows[-1] + 1, D), normal(self.rows[-1] + 1, D),
        )  # fmt: skip
        self.visible = rng.random((batch, keys)) < 0.8
        self.visible[0] = False
        self.visible[-1, 0] = True
        self.weight = np.asarray(rng.normal(size=(batch, queries, D)), np.float32)
        self.heads, self.scale = heads, 1 / np.sqrt(3 * head_dim)

    def tiled(self, query, key, value, pos_key, pos_query, *, rate: float = 0.0, positions: bool = True) -> jax.Array:
        return tiled_attention(
            query, key, value, self.visible, heads=self.heads, scale=self.scale, rate=rate, seed_2=SEED,
            positions=Positions(pos_key, pos_query, self.rows) if positions else None, chip=self.chip, interpret=True,
        )  # fmt: skip

    def plain(self, *inputs, rate: float = 0.0, positions: bool = True) -> jax.Array:
        (B, Q, D), (N, H) = inputs[0].shape, (inputs[1].shape[1], self.heads)
        split = lambda x: x.astype(jnp.float32).reshape(*x.shape[:-1], H, D // H)
        query, key, value, pos_key, pos_query = map(split, inputs)
        scores = jnp.einsum("bqhk,bnhk->bhqn", query, key)
        if positions:
            rows = self.rows[np.arange(Q)[:, None] - np.arange(N) + N - 1]
            scores += jnp.einsum("bqhk,qnhk->bhqn", query, pos_key[rows])
            scores += jnp.einsum("bnhk,qnhk->bhqn", key, pos_query[rows])
        probs = jax.nn.softmax(jnp.where(self.visible[:, None, None], scores * self.scale, -1e30), axis=-1)
        if rate:
            sharing = "quarters" if self.chip == "tpu" else "none" if Q == N <= 32 else "neighbours"
            kept = draws.kept(SEED, B, H, Q, N, rate, sharing)
            probs = jnp.where(kept, probs * draws.amplified(draws.threshold(rate)), 0)
        return jnp.einsum("bhqn,bnhk->bqhk", probs, value).reshape(B, Q, D)

    def outcome(self, function: Callable[..., jax.Array], *inputs: jax.Array) -> tuple[Any, ...]:
        """Returns the value of `tiled` or `plain`, float32, and all gradients."""

        def total(inputs):
            mixed = function(*inputs).astype(jnp.float32)
            return (mixed * self.weight).sum(), mixed

        (_, mixed), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(inputs or self.inputs)
        return mixed, *grads


def assert_near(got: tuple[Any, ...], want: tuple[Any, ...], tolerance: float) -> None:
    for name, x, y in zip(("mixed", *NAMES), got, want, strict=True):
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        np.testing.assert_allclose(x, y, atol=tolerance * max(abs(y).max(), 1), rtol=0, err_msg=name)


# One query; a tile that is not full; more keys than queries. Slow: one full tile; several tiles of 128 and of 256.
SIZES = [(1, 200), again(128, 128), (100, 257), again(300, 300)]
MORE = [again(n, n) for n in (1, 7, 1100, 4096)]


@pytest.mark.parametrize(("queries", "keys"), [*SIZES, *MORE])
def test_values_and_gradients_are_those_of_plain_products(queries, keys):
    case = Case(2, queries, keys, 2, 8)
    for rate in (0.0, 0.3) if keys == 257 else (0.3,):
        got = case.outcome(functools.partial(case.tiled, rate=rate))
        want = case.outcome(functools.partial(case.plain, rate=rate))
        assert_near(got, want, 1e-5 if keys < 1000 else 3e-5)  # the gather adds up a million terms one by one
        assert keys == 1 or all(np.abs(x).max() > 0.01 for x in want)


@pytest.mark.slow
def test_heads_that_share_lanes_and_heads_that_need_blocks_of_their_own():
    for heads, head_dim in ((4, 64), (2, 128), (3, 24)):
        case = Case(1, 40, 40, heads, head_dim)
        case.visible[:] = np.arange(40) < 33
        assert_near(case.outcome(functools.partial(case.tiled, rate=0.1)), case.outcome(
            functools.partial(case.plain, rate=0.1)), 1e-5)  # fmt: skip


# Tiles that are not full, more keys than queries; on GPUs a tile has 64 of both. Slow: one query; many tiles.
@pytest.mark.parametrize(("queries", "keys"), [again(1, 70), (100, 150), again(1100, 1100)])
def test_on_gpus_values_and_gradients_are_those_of_plain_products(queries, keys, monkeypatch):
    monkeypatch.setattr(gpu_calls, "ENOUGH", 16)  # so that three rows of the batch are summed up in two parts
    case = Case(3, queries, keys, 2, 16, chip="gpu")
    got = case.outcome(functools.partial(case.tiled, rate=0.3))
    want = case.outcome(functools.partial(case.plain, rate=0.3))
    assert_near(got, want, 1e-5 if keys < 1000 else 3e-5)
    assert all(np.abs(x).max() > 0.01 for x in want)
    jax.tree.map(np.testing.assert_array_equal, case.outcome(functools.partial(case.tiled, rate=0.3)), got)


# Windows as short as words share a tile, whose last rows may be no window's, and the last tile may not be full.
@pytest.mark.parametrize(
    ("batch", "length"), [(31, 7), again(3, 5), again(11, 12), again(7, 20), again(3, 31), (3, 32), (70, 1)]
)
def test_short_windows_share_tiles_on_gpus(batch, length, monkeypatch):
    monkeypatch.setattr(gpu_words, "PARTS", 2)
    case = Case(batch, length, length, 2, 16, chip="gpu")
    assert tiled.is_short(length, length, "gpu")
    for options in ({"rate": 0.3}, {"rate": 0.3, "positions": False}):
        got = case.outcome(functools.partial(case.tiled, **options))
        assert_near(got, case.outcome(functools.partial(case.plain, **options)), 1e-5)
        jax.tree.map(np.testing.assert_array_equal, case.outcome(functools.partial(case.tiled, **options)), got)
    assert np.abs(got[0]).max() > 1
    case = Case(batch, length, length, 2, 16, jnp.bfloat16, "gpu")
    for rate in (0.0, 0.3):
        got = case.outcome(functools.partial(case.tiled, rate=rate))
        assert_near(got, case.outcome(functools.partial(case.plain, rate=rate)), 0.015)


def test_on_gpus_33_positions_are_a_window_of_their_own_and_all_may_be_dropped_or_none_be_there():
    case = Case(3, 33, 33, 2, 16, chip="gpu")
    assert not tiled.is_short(33, 33, "gpu")
    assert tiled.fills(33, 33, "gpu")
    got = case.outcome(functools.partial(case.tiled, rate=0.3))
    assert_near(got, case.outcome(functools.partial(case.plain, rate=0.3)), 1e-5)
    for length in (9, 33):
        case = Case(3, length, length, 2, 16, chip="gpu")
        assert not any(np.any(x) for x in case.outcome(functools.partial(case.tiled, rate=1.0)))
        empty = jnp.zeros((0, length, 32))
        none = tiled_attention(empty, empty, empty, jnp.zeros((0, length), bool), heads=2, chip="gpu", interpret=True)
        assert none.shape == empty.shape


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_on_gpus_the_way_back_goes_through_blocks_of_rows(rows, monkeypatch):
    case = Case(4 if rows == 2 else 5, 100, 100, 2, 16, chip="gpu")  # 5 rows: the last block is not full
    attend = functools.partial(case.tiled, rate=0.3)
    want = case.outcome(attend)
    monkeypatch.setattr(gpu_calls, "SCORE_BYTES", rows * 2 * 2 * 128 * 128 * 4)
    assert gpu_calls._blocks(4, 2 * 128 * 128 * 4) == {1: (4, 1), 2: (2, 2), 3: (2, 2)}[rows]
    assert gpu_calls._blocks(7, 2 * 128 * 128 * 4) == {1: (7, 1), 2: (4, 2), 3: (3, 3)}[rows]
    assert gpu_calls._blocks(10, 2 * 128 * 128 * 4) == {1: (10, 1), 2: (5, 2), 3: (4, 3)}[rows]
    got = case.outcome(functools.partial(case.tiled, rate=0.3))
    for one, other in zip(got[:4], want[:4], strict=True):
        np.testing.assert_array_equal(one, other)
    assert_near(got, want, 1e-6)  # the gradients of positions are added up in another order


@pytest.mark.parametrize("chip", ["tpu", "gpu"])
def test_plain_attention_has_no_positions(chip):
    case = Case(3, 130, 300, 2, 16, chip=chip)
    got = case.outcome(functools.partial(case.tiled, rate=0.2, positions=False))
    assert_near(got, case.outcome(functools.partial(case.plain, rate=0.2, positions=False)), 1e-5)
    assert not np.any(got[-1])


@pytest.mark.parametrize(("chip", "length"), [("tpu", 200), again("gpu", 100)])
def test_bfloat16_is_as_near_as_it_rounds(chip, length):
    case = Case(2, length, length, 2, 64, jnp.bfloat16, chip)
    got = case.outcome(functools.partial(case.tiled, rate=0.1))
    assert case.tiled(*case.inputs).dtype == jnp.bfloat16
    assert_near(got, case.outcome(functools.partial(case.plain, rate=0.1)), 0.01)


def test_hidden_keys_and_strong_scores_do_no_harm():
    case = Case(2, 150, 150, 2, 8)
    query, key, value, *positions = case.inputs
    strong = case.outcome(case.tiled, 300 * query, key, value, *positions)
    assert_near(strong, case.outcome(case.plain, 300 * query, key, value, *positions), 1e-4)
    hidden = ~case.visible[1:, :, None]
    assert hidden.any()
    changed = [jnp.concatenate([x[:1], jnp.where(hidden, 1e4, x[1:])]) for x in (key, value)]
    want, got = case.outcome(case.tiled), case.outcome(case.tiled, query, *changed, *positions)
    np.testing.assert_array_equal(got[0][1:], want[0][1:])
    np.testing.assert_array_equal(np.asarray(got[2][1:])[hidden[..., 0]], 0)


def test_two_runs_have_the_same_bits_and_draws_do_not_depend_on_tiles(monkeypatch):
    case = Case(2, 512, 512, 1, 8)
    one = lambda: case.outcome(functools.partial(case.tiled, rate=0.5))
    first = one()
    jax.tree.map(np.testing.assert_array_equal, one(), first)
    for sizes in ((256,), (128,)):
        monkeypatch.setattr(tiled, "TILES", sizes)
        assert_near(one(), first, 1e-5)


def test_rotations_shift_as_reshapes_do():
    wide = np.asarray(jax.random.normal(jax.random.key(0), (skews.ROWS, skews.ROWS + 256)))
    narrow = np.asarray(jax.random.normal(jax.random.key(1), (skews.ROWS, 256)))
    both = lambda function, x: [np.asarray(jax.jit(function, static_argnums=1)(x, flag)) for flag in (True, False)]
    reshaped, rotated = both(skews.skewed, wide)
    np.testing.assert_array_equal(rotated, reshaped)
    back, rotated_back = both(skews.unskewed, narrow)
    np.testing.assert_array_equal(rotated_back, back)
    r, c = 100, 70
    assert reshaped[r, c] == wide[r, c + skews.ROWS - r]
    np.testing.assert_allclose((reshaped * narrow).sum(), (wide * back).sum(), rtol=1e-4)  # they are transposes


def test_rows_are_rotated_by_their_number():
    x = np.arange(64.0).reshape(8, 8)
    for step in (1, -1):
        want = np.stack([np.roll(row, step * r) for r, row in enumerate(x)])
        np.testing.assert_array_equal(rotated(jnp.asarray(x), step, True), want)
        for dtype in (jnp.bfloat16, jnp.float32):
            third = jnp.asarray(x / 3, dtype)
            both = rotated_together(jnp.asarray(x, dtype), third, step, True)
            for got, one in zip(both, (jnp.asarray(x), third), strict=True):
                assert got.dtype == dtype
                np.testing.assert_array_equal(got, rotated(one.astype(jnp.bfloat16).astype(dtype), step, True))
            wrong = jax.lax.bitcast_convert_type(jnp.full((8, 8), 0x7FFFFFFF, jnp.uint32), jnp.float32).astype(dtype)
            first, second = rotated_together(wrong, jnp.full((8, 8), -jnp.inf, dtype), step, True)
            assert jnp.isnan(first).all()
            assert (second == -jnp.inf).all()


@pytest.mark.parametrize(("length", "size"), [(1, 128), (128, 128), (140, 256), (300, 128), (512, 512), (1100, 256)])
def test_tiles_leave_little_of_a_window_empty(length, size):
    assert tile_size(length) == size


# ---- Devices ----


# The same code spreads over all meshes, on both kinds of chips.
MESHES = [
    ((2, 2, 2), "tpu", 40), again((8, 1, 1), "tpu", 40), again((1, 2, 4), "tpu", 40), again((2, 2, 2), "gpu", 40),
    ((2, 2, 2), "gpu", 20),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "chip", "length"), MESHES)
def test_any_mesh_computes_and_draws_the_same(shape, chip, length):
    case = Case(4, length, length, 2, 128, chip=chip)  # four rows do not divide by eight devices, nor two heads by four
    attend = functools.partial(case.tiled, rate=0.3)
    want = case.outcome(attend)
    mesh = jax.make_mesh(shape, ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        rows = ("data", "fsdp") if shape[0] < 8 else None
        put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
        inputs = [put(x, rows, None, None) for x in case.inputs[:3]] + [put(x) for x in case.inputs[3:]]
        got = case.outcome(attend, *inputs)
    assert_near(got, want, 1e-5)
    own = (1 if shape[0] < 8 and shape[2] < 4 else 2 if shape[2] == 4 else 4, length, 128 if shape[2] == 2 else 256)
    assert got[0].sharding.shard_shape(got[0].shape) == own  # every device computes its own rows and heads
