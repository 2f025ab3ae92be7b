"""Tests disentangled attention against a loop over pairs and the released tables; padding has no effect, no NaN."""

import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again

from charlm.nn.attention import DisentangledAttention, relative_bucket, skew, spread

TABLES = np.load(Path(__file__).parents[1] / "goldens" / "hlm_relative_positions.npz")
HEADS, D, L = 2, 8, 11


def attention(max_distance: int = 8, attention_dropout: float = 0.0, position_dropout: float = 0.0):
    return DisentangledAttention(HEADS, max_distance, attention_dropout, position_dropout, "torch", jnp.float32)


@functools.partial(jax.jit, static_argnames=("model", "queries", "deterministic"))
def run(model, params, x, mask, positions, queries, deterministic=True, key=None):
    rngs = None if key is None else {"dropout": key}
    return model.apply({"params": params}, x, mask, positions, queries, deterministic, rngs=rngs)


def inputs(buckets: int, length: int = L, seed: int = 0):
    """Returns states, a mask with holes and padding, a table, and parameters of a scale at which every term matters."""
    mask = np.ones((2, length), bool)
    mask[0, length // 2] = False
    mask[1, length - 3 :] = False
    x, positions, params = drawn(buckets, length, seed)
    return x, mask, positions, params


@functools.cache
def drawn(buckets: int, length: int, seed: int):
    """Returns states, a table and parameters."""

    @jax.jit
    def draw():
        keys = jax.random.split(jax.random.key(seed), 3)
        x = jax.random.normal(keys[0], (2, length, D))
        positions = jax.random.normal(keys[1], (2 * buckets, D))
        params = attention().init(keys[2], x, np.ones((2, length), bool), positions, length, True)["params"]
        return x, positions, jax.tree.map(lambda leaf: 3 * leaf, params)

    return draw()


def naive_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """The formula of the released code for one pair."""
    distance = max(-(max_distance - 1), min(max_distance - 1, distance))
    middle = buckets // 2
    if abs(distance) <= middle:
        return distance
    log = math.log(abs(distance) / middle) / math.log((max_distance - 1) / middle)
    return int(math.copysign(math.ceil(log * (middle - 1)) + middle, distance))


def naive_attention(params, x, mask, positions, max_distance, queries):
    """One pair of positions at a time, in float64."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    x, positions = np.asarray(x, np.float64), np.asarray(positions, np.float64)
    project = lambda name, y: y @ params[name]["kernel"] + params[name]["bias"]
    K, buckets = D // HEADS, len(positions) // 2
    pos_key, pos_query = project("pos_key", positions), project("pos_query", positions)
    out = np.zeros((len(x), queries, D))
    for b in range(len(x)):
        query, key, value = (project(name, x[b]) for name in ("query", "key", "value"))
        for h in range(HEADS):
            head = slice(h * K, (h + 1) * K)
            for q in range(queries):
                scores = np.full(x.shape[1], -np.inf)
                for k in np.nonzero(mask[b])[0]:
                    row = naive_bucket(q - int(k), buckets, max_distance) + buckets
                    scores[k] = query[q, head] @ key[k, head]
                    scores[k] += query[q, head] @ pos_key[row, head] + pos_query[row, head] @ key[k, head]
                probs = np.exp((scores - scores.max()) / math.sqrt(3 * K))
                out[b, q, head] = probs / probs.sum() @ value[:, head]
    return project("output", out)


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith("table_")])
def test_buckets_equal_the_released_tables(name):
    buckets, max_distance = map(int, name.split("_")[1:])
    distance = np.arange(1, 2 * max_distance) - max_distance
    np.testing.assert_array_equal(relative_bucket(distance, buckets, max_distance), TABLES[name][1:])


def test_buckets_equal_the_released_matrix_also_beyond_the_last_distance():
    i = np.arange(600)
    np.testing.assert_array_equal(
        relative_bucket(i[:, None] - i, 256, 512), TABLES["bucket_matrix_600x600_256_512"].astype(np.int64)
    )
    np.testing.assert_array_equal(
        relative_bucket(np.arange(1100), 256, 1024), TABLES["bucket_row0col_1100_256_1024"].astype(np.int64)
    )


def released(distance, buckets, max_distance):
    """The buckets of non-negative distances as DeBERTa's NumPy code computes them: a share, then its ceiling."""
    middle = buckets // 2
    size = np.where(distance < middle, middle - 1, distance)
    with np.errstate(divide="ignore"):
        wide = np.ceil(np.log(size / middle) / np.log((max_distance - 1) / middle) * (middle - 1)) + middle
    return np.where(size <= middle, distance, wide).astype(int)


@pytest.mark.parametrize("buckets", [8, 16, 20, 32, 64, 128, 256, 512])
def test_no_bucket_is_beyond_the_table_and_all_are_as_released(buckets):
    """Of some pairs the last distance is within a rounding error of the next bucket; (256, 200) is one of them."""
    for max_distance in {*range(buckets // 2 + 2, 1500, 1 if buckets < 64 else 7), 200, 400, 2048, 4096}:
        if max_distance - 1 > buckets // 2:
            distance = np.arange(max_distance)
            bucket = relative_bucket(distance, buckets, max_distance)
            assert bucket.max() <= buckets - 1, max_distance
            np.testing.assert_array_equal(bucket, released(distance, buckets, max_distance), str(max_distance))


@pytest.mark.parametrize(("buckets", "max_distance"), [(4, 8), (8, 32), (256, 20), (256, 512)])
def test_buckets_are_odd_and_never_fall(buckets, max_distance):
    distance = np.arange(-2 * max_distance, 2 * max_distance + 1)
    bucket = relative_bucket(distance, buckets, max_distance)
    np.testing.assert_array_equal(bucket, -bucket[::-1])
    assert (np.diff(bucket) >= 0).all()
    assert np.abs(bucket).max() <= buckets - 1
    assert bucket.max() == relative_bucket(np.array(max_distance - 1), buckets, max_distance)


@pytest.mark.parametrize("rows", [1, again(2), 3, again(7)])
@pytest.mark.parametrize("columns", [1, again(2), 5, again(8)])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_skew_equals_a_gather(rows, columns, batch):
    scores = np.random.default_rng(0).normal(size=(*batch, rows, rows + columns - 1)).astype(np.float32)
    r, c = np.arange(rows)[:, None], np.arange(columns)
    np.testing.assert_array_equal(skew(jnp.asarray(scores), columns), scores[..., r, rows - 1 - r + c])


def test_spread_repeats_columns_and_passes_a_plain_run_through():
    scores = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(spread(scores, np.array([0, 0, 1, 2, 2])), scores[:, np.array([0, 0, 1, 2, 2])])
    np.testing.assert_array_equal(spread(scores, np.arange(3)), scores)
    np.testing.assert_array_equal(spread(scores, np.array([1, 2])), scores[:, 1:])
    np.testing.assert_array_equal(spread(scores, np.array([0, 0, 2])), scores[:, np.array([0, 0, 2])])


# 256 buckets: as inside words, a bucket a distance. 4 and 6: beyond the middle and beyond the last distance.
@pytest.mark.parametrize(("buckets", "max_distance"), [(256, 20), (4, 8), (6, 10)])
@pytest.mark.parametrize("queries", [1, 4, L])
def test_equals_a_loop_over_pairs(buckets, max_distance, queries):
    x, mask, positions, params = inputs(buckets)
    got = run(attention(max_distance), params, x, mask, positions, queries)
    want = naive_attention(params, x, mask, positions, max_distance, queries)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=2e-5)


def gather_attention(params, x, mask, positions, max_distance, queries):
    """The same scores by a gather for every pair, in the order of the paper's formula; differentiable."""
    project = lambda name, y: y @ params[name]["kernel"].astype(y.dtype) + params[name]["bias"].astype(y.dtype)[None]
    heads = lambda y: y.reshape(*y.shape[:-1], HEADS, D // HEADS)
    query = heads(project("query", x[:, :queries].reshape(-1, D)).reshape(2, queries, D))
    key, value = (heads(project(name, x.reshape(-1, D)).reshape(x.shape)) for name in ("key", "value"))
    positions = positions.astype(x.dtype)
    pos_key, pos_query = (heads(project(name, positions)) for name in ("pos_key", "pos_query"))
    distance = np.arange(queries)[:, None] - np.arange(x.shape[1])
    at = relative_bucket(distance, len(positions) // 2, max_distance) + len(positions) // 2
    score = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    scores = score("bqhk,blhk->bhql", query, key) + score("bqhk,qlhk->bhql", query, pos_key[at])
    scores = (scores + score("qlhk,blhk->bhql", pos_query[at], key)) / math.sqrt(3 * D // HEADS)
    probs = jax.nn.softmax(jnp.where(mask[:, None, None, :], scores, -1e30), axis=-1).astype(x.dtype)
    mixed = jnp.einsum("bhql,blhk->bqhk", probs, value).reshape(-1, D)
    return project("output", mixed).reshape(2, queries, D)


def outcome(function, dtype, buckets, max_distance, queries, length):
    """Returns a function's outputs and the gradients of a sum of them."""
    x, mask, positions, params = inputs(buckets)
    x, mask = x[:, :length], mask[:, :length]
    weight = jax.random.normal(jax.random.key(4), (2, queries, D))

    def total(params, x, positions):
        out = function(params, x.astype(dtype), mask, positions)
        return (out.astype(jnp.float32) * weight).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(params, x, positions)
    return out, grads


@functools.cache
def by_gather(dtype, buckets, max_distance, queries, length):
    """The outcome of `gather_attention`, which knows no blocks."""
    theirs = lambda params, x, mask, positions: gather_attention(params, x, mask, positions, max_distance, queries)
    return outcome(theirs, dtype, buckets, max_distance, queries, length)


# One block of queries, several, and a last one that is shorter; windows within and beyond the last distance.
@pytest.mark.parametrize(("dtype", "atol"), [(jnp.float32, 1e-4), again(jnp.bfloat16, 0.3)])
@pytest.mark.parametrize("block", [512, 4])
@pytest.mark.parametrize(
    ("buckets", "max_distance", "queries", "length"), [(256, 20, L, L), (4, 8, 6, L), (4, 8, 1, 1)]
)
def test_outputs_and_gradients_equal_a_gather(monkeypatch, dtype, atol, block, buckets, max_distance, queries, length):
    monkeypatch.setattr("charlm.nn.attention.QUERY_BLOCK", block)
    case = (dtype, buckets, max_distance, queries, length)
    model = attention(max_distance).clone(dtype=dtype)
    ours = lambda params, x, mask, positions: model.apply({"params": params}, x, mask, positions, queries, True)
    for a, b in zip(jax.tree.leaves(outcome(ours, *case)), jax.tree.leaves(by_gather(*case)), strict=True):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(a, b, atol=atol * max(1, np.abs(b).max() / 8))


def test_buckets_that_skip_rows_as_often_as_they_repeat_some():
    """Buckets 7, 7, 6, 4: as many distances as table rows, and yet not one by one."""
    x, mask, positions, params = inputs(8, length=8)
    want = naive_attention(params, x, mask, positions, 8, 8)
    np.testing.assert_allclose(run(attention(), params, x, mask, positions, 8), want, atol=2e-5)


def test_one_position_alone():
    x, _, positions, params = inputs(4, length=4)
    x, mask = x[:, :1], np.ones((2, 1), bool)
    want = naive_attention(params, x, mask, positions, 8, 1)
    np.testing.assert_allclose(run(attention(), params, x, mask, positions, 1), want, atol=2e-5)


@pytest.mark.parametrize("queries", [1, L])
def test_what_is_masked_is_never_read(queries):
    x, mask, positions, params = inputs(4)
    want = run(attention(), params, x, mask, positions, queries)
    other = jnp.where(mask[..., None], x, 1e3 * x + 7)
    got = run(attention(), params, other, mask, positions, queries)
    np.testing.assert_array_equal(np.asarray(got)[mask[:, :queries]], np.asarray(want)[mask[:, :queries]])


@pytest.mark.parametrize("more", [1, 13])
def test_padding_never_changes_a_valid_output(more):
    x, mask, positions, params = inputs(4)
    want = run(attention(), params, x, mask, positions, L)
    longer = jnp.concatenate([x, jax.random.normal(jax.random.key(9), (2, more, D))], axis=1)
    got = run(attention(), params, longer, np.pad(mask, ((0, 0), (0, more))), positions, L + more)
    np.testing.assert_allclose(np.asarray(got)[:, :L][mask], np.asarray(want)[mask], atol=1e-5)


def test_rows_without_any_key_are_finite_and_so_are_all_gradients():
    x, mask, positions, params = inputs(4)
    mask[1] = False

    def total(params, x, positions):
        out = run(attention(), params, x, mask, positions, L)
        return (out**2).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(params, x, positions)
    assert np.isfinite(out).all()
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
    alone = run(attention(), params, x[:1], mask[:1], positions, L)
    np.testing.assert_allclose(out[:1], alone, atol=1e-5)  # the empty row disturbs no other


@pytest.mark.parametrize("rates", [{"attention_dropout": 0.5}, {"position_dropout": 0.5}])
def test_each_dropout_acts_in_training_only(rates):
    x, mask, positions, params = inputs(4)
    plain = run(attention(), params, x, mask, positions, L)
    model = attention(**rates)
    np.testing.assert_array_equal(run(model, params, x, mask, positions, L), plain)
    first, again, other = (
        run(model, params, x, mask, positions, L, deterministic=False, key=jax.random.key(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - plain).max() > 1e-2
    assert np.abs(first - other).max() > 1e-2


def test_position_dropout_is_shared_by_the_whole_batch():
    x, mask, positions, params = inputs(4)
    twice = jnp.concatenate([x[:1], x[:1]])
    model = attention(position_dropout=0.5)
    out = run(model, params, twice, mask[[0, 0]], positions, L, deterministic=False, key=jax.random.key(1))
    np.testing.assert_allclose(out[0], out[1], atol=1e-6)
