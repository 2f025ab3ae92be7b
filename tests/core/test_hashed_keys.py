"""Tests the generator of dropout masks: shares, independence of neighbours, keys and modules; devices; large arrays."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from charlm.config import get_config
from charlm.core.hashed_keys import GENERATOR, hashed, mixed, words
from charlm.core.sharding import make_mesh
from charlm.core.state import stream_key

KEY = hashed(stream_key(7, "dropout", 3))
SHAPE = (6, 4, 64, 128)


def bits_of(word: np.ndarray) -> np.ndarray:
    """Returns the 32 bits of each word, as -1 and 1, on a last axis."""
    return (np.asarray(word)[..., None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.float32) * 2 - 1


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Returns how far the bits of two arrays of words agree more than chance would have it, in standard deviations."""
    product = bits_of(one) * bits_of(other)
    return abs(float(product.mean())) * math.sqrt(product.size)


def draw(key: jax.Array, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.asarray(jax.random.bits(key, shape))


def test_words_are_spread_evenly_and_every_bit_is():
    word = draw(KEY)
    counts = np.bincount(word.ravel() >> 24, minlength=256)
    expected = word.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 256 + 5 * math.sqrt(2 * 256)  # chi-square
    assert (np.abs(bits_of(word).reshape(-1, 32).mean(axis=0)) * math.sqrt(word.size) < 4.5).all()
    assert len(np.unique(word)) > 0.9999 * word.size


def test_places_are_independent_of_their_neighbours():
    word = draw(KEY)
    for axis in range(word.ndim):
        for lag in (1, 2, 3):
            assert correlation(word, np.roll(word, lag, axis)) < 4.5, (axis, lag)


def test_keys_of_steps_modules_and_parts_draw_independently():
    folded = [jax.random.fold_in(KEY, n) for n in (0, 1, 2, 255, 256, 2**31)]
    parts = list(jax.random.split(KEY, 3))
    again = [jax.random.fold_in(folded[0], 1), jax.random.fold_in(folded[1], 0)]
    steps = [hashed(stream_key(7, "dropout", step)) for step in (2, 4)]
    drawn = [draw(key, (64, 256)) for key in (KEY, *folded, *parts, *again, *steps, jax.random.key(0))]
    for n, one in enumerate(drawn):
        for other in drawn[:n]:
            assert correlation(one, other) < 4.5


def test_both_words_of_a_key_count():
    one, other = (jax.random.wrap_key_data(jnp.array([7, second], jnp.uint32), impl=GENERATOR) for second in (1, 2))
    shifted = jax.random.wrap_key_data(jnp.array([8, 2], jnp.uint32), impl=GENERATOR)
    assert correlation(draw(one), draw(other)) < 4.5
    assert correlation(draw(one, (2**15,))[1:], draw(shifted, (2**15,))[:-1]) < 4.5  # their places meet
    folded = [jax.random.key_data(jax.random.fold_in(key, 3)) for key in (one, other)]
    assert folded[0][1] != folded[1][1]
    parts = {tuple(x) for x in np.asarray(jax.random.key_data(jax.random.split(one, 64)))}
    assert len(parts) == 64
    assert not parts & {tuple(np.asarray(jax.random.key_data(jax.random.fold_in(one, n)))) for n in range(64)}


@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_streams_do_not_depend_on_jax_s_generator(kind):
    with jax.default_prng_impl(kind):
        key = hashed(stream_key(7, "dropout", 3))
    np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(KEY))


def test_a_sum_of_masks_varies_as_independent_masks_would():
    """Each of 2,000 keys, folded one into the other, gives one mask: the count of kept elements is binomial."""
    rate, size = 0.1, 512
    keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.fold_in(KEY, n // 40), n % 40))(jnp.arange(2000))
    kept = np.asarray(jax.jit(jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, (size,)).sum()))(keys))
    assert kept.mean() / size == pytest.approx(1 - rate, abs=4.5 * math.sqrt(rate * (1 - rate) / (2000 * size)))
    assert kept.var() == pytest.approx(size * rate * (1 - rate), rel=4.5 * math.sqrt(2 / 2000))


def test_flax_drops_at_the_rate_and_each_module_on_its_own():
    class Two(nn.Module):
        @nn.compact
        def __call__(self, x):
            return tuple(nn.Dropout(0.25, deterministic=False)(x) for _ in range(2))

    ones = jnp.ones((200, 300))
    one, other = jax.jit(lambda key: Two().apply({}, ones, rngs={"dropout": key}))(KEY)
    for drawn in (one, other):
        assert set(np.unique(drawn)) == {0, np.float32(1 / 0.75)}
        assert (np.asarray(drawn) == 0).mean() == pytest.approx(0.25, abs=0.01)
    assert ((np.asarray(one) == 0) & (np.asarray(other) == 0)).mean() == pytest.approx(0.25**2, abs=0.006)


def test_fewer_bits_are_the_upper_ones_and_more_are_refused():
    word = draw(KEY)
    np.testing.assert_array_equal(jax.random.bits(KEY, SHAPE, jnp.uint8), word >> 24)
    with jax.enable_x64(), pytest.raises(ValueError, match="8, 16 or 32 bits for an element, got 64"):
        jax.random.bits(KEY, (2,), jnp.uint64)


def test_places_of_arrays_beyond_one_word_are_counted_by_two():
    key = jax.random.key_data(KEY)
    shape = (5, 7, 8)
    one, two = (np.asarray(words(key, shape, most)) for most in (2**32, 56))
    assert len(np.unique(two)) == two.size
    np.testing.assert_array_equal(one[0], two[0])  # their places are equal
    assert (one[1:] != two[1:]).all()
    assert correlation(two, np.roll(two, 1, 0)) < 4.5
    jax.eval_shape(lambda: words(key, (2**20, 2**14)))  # more places than one word has


def test_different_words_stay_different():
    x = np.arange(2**20, dtype=np.uint32) * np.uint32(4099)
    assert len(np.unique(mixed(jnp.asarray(x)))) == x.size


def test_masks_do_not_depend_on_the_devices():
    config = get_config()
    config.mesh.update({"data": 2, "fsdp": 2, "model": 2})
    mesh = make_mesh(config)
    with jax.set_mesh(mesh):
        rows = NamedSharding(mesh, P(("data", "fsdp"), None, "model"))
        spread = jax.jit(lambda: jax.random.bits(KEY, (4, *SHAPE[1:])), out_shardings=rows)()
    assert len(spread.sharding.device_set) == 8
    np.testing.assert_array_equal(spread, draw(KEY, (4, *SHAPE[1:])))
