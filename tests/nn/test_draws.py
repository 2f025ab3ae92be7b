"""Tests dropout by counters: a tile draws what the definition says, whatever the tile; rates; seeds."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.core.hashed_keys import mixed
from charlm.nn.draws import LEVELS, Sharing, _words, amplified, kept, kept_alone, kept_neighbours, kept_tile, threshold

SEED = jnp.array([3, 2**32 - 5], jnp.uint32)
ROWS, HEADS, QUERIES, KEYS, RATE = 2, 3, 512, 768, 0.3


@pytest.fixture(scope="module", params=["quarters", "neighbours", "none"])
def sharing(request) -> Sharing:
    return request.param


@pytest.fixture(scope="module")
def everything(sharing) -> np.ndarray:
    return np.asarray(jax.jit(lambda: kept(SEED, ROWS, HEADS, QUERIES, KEYS, RATE, sharing))())


@pytest.mark.parametrize(("size", "query", "key"), [(128, 128, 640), (128, 256, 0), (256, 256, 512), (512, 0, 0)])
def test_a_tile_is_a_part_of_the_definition(everything, sharing, size, query, key):
    row, head = 1, 2
    want = everything[row, head, query : query + size, key : key + size]
    given = (SEED[0], SEED[1]), jnp.uint32(row * HEADS + head)
    if sharing == "none":
        places = (np.arange(first, first + size, dtype=np.uint32) for first in (query, key))
        alone = kept_alone(*given, *jnp.ix_(*places), limit=threshold(RATE))
        np.testing.assert_array_equal(alone, want)
        return
    if sharing == "neighbours":
        draw = functools.partial(kept_neighbours, *given, size=size, limit=threshold(RATE))
        np.testing.assert_array_equal(jax.jit(draw)(query, key), want)
        return
    for by_key in (False, True):
        draw = functools.partial(kept_tile, *given, size=size, limit=threshold(RATE), by_key=by_key)
        np.testing.assert_array_equal(jax.jit(draw)(query, key), want.T if by_key else want)


def test_the_share_is_the_rate_and_every_place_draws_for_itself(everything):
    assert everything.mean() == pytest.approx(1 - RATE, abs=4 * np.sqrt(RATE * (1 - RATE) / everything.size))
    x = everything.astype(np.float32) - (1 - RATE)
    noise = 4.5 * RATE * (1 - RATE) / np.sqrt(x.size)
    nearest = [(axis, 1) for axis in range(4)]
    for axis, lag in (*nearest, (2, 128), (3, 128), (2, 256), (3, 256), (3, 2), (3, 3)):  # some are of one word of bits
        assert abs((x * np.roll(x, lag, axis)).mean()) < noise, (axis, lag)


def test_another_seed_draws_another_mask(everything, sharing):
    other = jax.jit(lambda: kept(SEED.at[1].add(1), ROWS, HEADS, QUERIES, KEYS, RATE, sharing))()
    agree = (1 - RATE) ** 2 + RATE**2
    assert (other == everything).mean() == pytest.approx(agree, abs=0.005)


def test_heads_whose_counters_meet_draw_differently():
    seed, place = (SEED[0], SEED[1]), jnp.uint32(4)
    counter = jnp.arange(2**12, dtype=jnp.uint32)
    own = lambda place: mixed(mixed(place + seed[0]) ^ seed[1])
    met = counter + own(place) - own(place + 1)  # with the next head's offset these are the counters of this head
    for here, there in zip(_words(seed, place, counter), _words(seed, place + 1, met), strict=True):
        assert (here != there).mean() > 0.99


def test_heads_and_rows_draw_independently(everything):
    x = everything.reshape(ROWS * HEADS, -1).astype(np.float32) - (1 - RATE)
    agreement = x @ x.T / (RATE * (1 - RATE) * x.shape[1])
    assert (np.abs(agreement[~np.eye(len(x), dtype=bool)]) * np.sqrt(x.shape[1]) < 4.5).all()


def test_kept_probabilities_keep_the_mean():
    for rate in (0.0, 0.1, 0.5, 0.999):
        assert threshold(rate) == pytest.approx(rate * LEVELS, abs=0.5)
        assert amplified(threshold(rate)) * (1 - threshold(rate) / LEVELS) == pytest.approx(1)
    assert amplified(threshold(1.0)) == 0  # nothing is left, as with Flax's dropout
