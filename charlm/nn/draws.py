"""Draws the dropout of attention probabilities from counters, so that any tile can be drawn again, on any device.

Whether a probability is kept depends on the seed, the row of the batch, the head, the query and the key, and on nothing
else: not on the tiles, the devices or the direction (forward or backward). The bits are a hash of these, by the
function that draws the other masks, too (`charlm.core.hashed_keys`): some six operations for a probability, where
Threefry, JAX's own generator, would take thirty, forward and back. One call gives the 16 bits of four
probabilities: on TPUs those that stand in the four quarters of a square of 256 queries and keys, on GPUs those of four
keys side by side, and for short windows there one call gives only one's. Open it to change what is drawn.
`charlm.nn.tiled` uses it; `kept` returns the whole mask that was drawn.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from charlm.core.hashed_keys import APART, mixed

PART = 128  # queries and keys of a quarter, and the lanes of a TPU's registers: putting quarters together costs nothing
LEVELS = 2**16  # of 16 bits

Scalar = jax.Array | int
Sharing = Literal["quarters", "neighbours", "none"]


def threshold(rate: float) -> int:
    """Returns how many of the `LEVELS` values of a draw drop a probability."""
    return round(rate * LEVELS)


def amplified(limit: int) -> float:
    """Returns the factor of kept probabilities for a `threshold`, with which the mean stays the same."""
    return LEVELS / (LEVELS - limit) if limit < LEVELS else 0.0


def _words(seed: tuple[jax.Array, jax.Array], place: jax.Array, counter: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns two words of random bits for each counter, uint32.

    Args:
      seed: two uint32 scalars.
      place: uint32, a scalar or as `counter`: the row of the batch and the head.
      counter: uint32 of any shape.
    """
    own = mixed(mixed(place + seed[0]) ^ seed[1])
    other = mixed(own + jnp.uint32(APART))  # two heads whose counters meet once they are shifted still draw differently
    shared = mixed(counter + own)
    return mixed(shared ^ other), mixed(shared ^ (other + jnp.uint32(APART)))


def _both_halves(word: jax.Array) -> tuple[jax.Array, jax.Array]:
    return word & jnp.uint32(LEVELS - 1), word >> jnp.uint32(16)


def kept_tile(
    seed: tuple[jax.Array, jax.Array],
    place: jax.Array,
    query: Scalar,
    key: Scalar,
    *,
    size: int,
    limit: int,
    by_key: bool = False,
) -> jax.Array:
    """Returns what is kept in a square tile of probabilities; for kernels, so it works on whole registers only.

    Args:
      seed: two uint32 scalars.
      place: uint32 scalar, the row of the batch times the number of heads, plus the head.
      query, key: the first query and the first key of the tile, multiples of `size`.
      size: rows and columns of the tile: 128 or a multiple of 256.
      limit: of `threshold`.
      by_key: whether the rows of the tile are keys and its columns queries.

    Returns:
      bool [size, size].
    """
    assert size == PART or size % (2 * PART) == 0, size
    half = max(size // 2, PART)
    query_axis, key_axis = (1, 0) if by_key else (0, 1)
    shrunk = lambda first: (first >> 8) << 7  # half of it, and that of the first quarter; a TPU is slow to divide
    at = lambda first, axis: (
        jax.lax.broadcasted_iota(jnp.int32, (half, half), axis) + shrunk(first)
    ).astype(jnp.uint32)  # fmt: skip
    counter = (at(query, query_axis) << jnp.uint32(16)) | at(key, key_axis)
    words = _words(seed, place, counter)
    if size == PART:
        lower_query, lower_key = (query >> 7) & 1, (key >> 7) & 1
        word = jnp.where(lower_query == 0, words[0], words[1])
        bits = (word >> jnp.asarray(16 * lower_key, jnp.uint32)) & jnp.uint32(LEVELS - 1)
    else:
        quarters = [_both_halves(word) for word in words]  # [half of the queries][half of the keys]
        bits = _put_together(list(zip(*quarters, strict=True)) if by_key else quarters, half // PART)
    return bits.astype(jnp.int32) >= limit


def _put_together(quarters: list[tuple[jax.Array, ...]], count: int) -> jax.Array:
    """Returns the tile from its quarters, interleaved in squares of `PART`, `count` of them in each direction."""
    part = lambda array, m, n: array[m * PART : (m + 1) * PART, n * PART : (n + 1) * PART]
    rows = [
        jnp.concatenate([part(array, m, n) for n in range(count) for array in quarters[side]], axis=1)
        for m in range(count)
        for side in (0, 1)
    ]
    return jnp.concatenate(rows, axis=0)


def kept_neighbours(
    seed: tuple[jax.Array, jax.Array], place: jax.Array, query: Scalar, key: Scalar, *, size: int, limit: int
) -> jax.Array:
    """Returns what is kept in a square tile of probabilities on GPUs, where four keys side by side share a call.

    Args:
      seed, place, limit: as in `kept_tile`.
      query, key: the first query and the first key of the tile; the key is a multiple of 4.
      size: rows and columns of the tile: a power of two, 4 or more.

    Returns:
      bool [queries, keys], `size` of each.
    """
    shape = size, size // 4
    at = lambda first, axis: (jax.lax.broadcasted_iota(jnp.int32, shape, axis) + first).astype(jnp.uint32)
    words = _words(seed, place, (at(query, 0) << jnp.uint32(16)) | at(key >> 2, 1))
    lower, upper = zip(*map(_both_halves, words), strict=True)
    # The last axis is the only one along which Triton puts arrays together.
    bits = jnp.stack([jnp.stack([low, high], axis=-1) for low, high in zip(lower, upper, strict=True)], axis=-1)
    return bits.reshape(size, size).astype(jnp.int32) >= limit


def kept_alone(
    seed: tuple[jax.Array, jax.Array], place: jax.Array, query: jax.Array, key: jax.Array, *, limit: int
) -> jax.Array:
    """Returns what is kept where every probability has a call of its own: of short windows on GPUs.

    Args:
      seed, limit: as in `kept_tile`.
      place, query, key: uint32 arrays that broadcast together; place is as in `kept_tile`.

    Returns:
      bool, of the shape that they broadcast to.
    """
    word, _ = _words(seed, place, (query << jnp.uint32(16)) | key)
    return (word & jnp.uint32(LEVELS - 1)).astype(jnp.int32) >= limit


def kept(
    seed_2: jax.Array, rows: int, heads: int, queries: int, keys: int, rate: float, sharing: Sharing = "quarters"
) -> jax.Array:
    """Returns what is kept of all probabilities: the definition that kernels follow, for tests and studies.

    Args:
      seed_2: uint32.
      rate: the share that is dropped.
      sharing: which probabilities share a call: those of four quarters (`kept_tile`), of four keys side by side
        (`kept_neighbours`), or none (`kept_alone`).

    Returns:
      bool [rows, heads, queries, keys]
    """
    place, query, key = jnp.ix_(*(jnp.arange(size, dtype=jnp.uint32) for size in (rows * heads, queries, keys)))
    seed = seed_2[0], seed_2[1]
    if sharing == "none":
        alone = kept_alone(seed, place, query, key, limit=threshold(rate))
        return alone.reshape(rows, heads, queries, keys)
    neighbours = sharing == "neighbours"
    shrunk = lambda x: x // (2 * PART) * PART + x % PART
    counter = (query << 16) | (key >> 2) if neighbours else (shrunk(query) << 16) | shrunk(key)
    words = _words(seed, place, counter)
    second, upper = (key % 2, key // 2 % 2) if neighbours else (query // PART % 2, key // PART % 2)
    bits = (jnp.where(second == 0, *words) >> (16 * upper)) & (LEVELS - 1)
    return (bits >= threshold(rate)).reshape(rows, heads, queries, keys)
