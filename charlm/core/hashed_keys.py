"""Random keys for dropout: a hash of an element's place takes the place of JAX's generator.

Open it to change how dropout masks are drawn. JAX's own generator, Threefry-2x32, takes some 115 integer operations for
one element, several times what reading and writing the element costs on a GPU or a CPU, and as many for the key of each
module that drops something. A mask needs no such bits. Here two rounds of a mixing function, some 18 operations, turn
the element's place and the key into its bits, so that dropout on a CPU takes a seventh of the time. JAX lets programs
bring a generator of their own, and Flax's `nn.Dropout` uses whichever its key belongs to.

Each step's first key still comes from Threefry (`charlm.core.state.stream_key`). Bits depend on the key and the place
alone, not on devices or their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

WORD = 2**32
APART = 0x9E3779B9  # 2^32 over the golden ratio; keeps the second word of a key apart from the first
DTYPES = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}


def hashed(key: jax.Array) -> jax.Array:
    """Returns a key of this module's generator that starts from the two words of another key.

    Args:
      key: a key of `jax.random.key`, of Threefry.
    """
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=GENERATOR)


def mixed(x: jax.Array) -> jax.Array:
    """Returns a word of which every bit depends on every bit of x; different x give different words.

    The shifts and factors are the best known ones for this number of operations, found by search: on average, a changed
    bit of x changes each bit of the result with a probability of 1/2 to within about 0.1 % (hash-prospector, issue 19).

    Args:
      x: uint32.
    """
    x ^= x >> jnp.uint32(16)
    x *= jnp.uint32(0x21F0AAAD)
    x ^= x >> jnp.uint32(15)
    x *= jnp.uint32(0xD35A2D97)
    return x ^ (x >> jnp.uint32(15))


def words(key_2: jax.Array, shape: Sequence[int], most: int = WORD) -> jax.Array:
    """Returns 32 random bits for each element of an array.

    Args:
      key_2: the two words of a key, uint32.
      shape: of the array.
      most: how many places one word counts. The places of larger arrays are counted by two words.

    Returns:
      uint32 array of the shape.
    """
    first, second = key_2[0], key_2[1]
    split = next(n for n in range(len(shape) + 1) if math.prod(shape[n:]) <= most)
    inner = mixed(_places(shape, split, len(shape)) + first)
    return mixed(inner ^ (_places(shape, 0, split) + second if split else second))


def _places(shape: Sequence[int], start: int, stop: int) -> jax.Array:
    """Returns the number of each element in the order of the axes from `start` to `stop`, uint32."""
    place = jnp.zeros(shape, jnp.uint32)
    for axis in range(start, stop):
        step = math.prod(shape[axis + 1 : stop]) % WORD
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(step)
    return place


def _random_bits(key_2: jax.Array, width: int, shape: Sequence[int]) -> jax.Array:
    if width not in DTYPES:
        raise ValueError(f"dropout keys draw 8, 16 or 32 bits for an element, got {width}")
    return (words(key_2, shape) >> jnp.uint32(32 - width)).astype(DTYPES[width])


def _fold_in(key_2: jax.Array, number: jax.Array | int) -> jax.Array:
    first = mixed(key_2[0] + jnp.asarray(number).astype(jnp.uint32))
    return jnp.stack([first, mixed(first ^ (key_2[1] + jnp.uint32(APART)))])


def _split(key_2: jax.Array, shape: Sequence[int]) -> jax.Array:
    first = mixed(_places(shape, 0, len(shape)) + key_2[0])
    second = mixed(first ^ (key_2[1] + jnp.uint32(2 * APART % WORD)))  # of `_fold_in` it is another one
    return jnp.stack([first, second], axis=-1)


def _seed(seed: jax.Array) -> jax.Array:
    return _fold_in(jnp.zeros(2, jnp.uint32), seed)


GENERATOR = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="hashed", tag="hashed"
)
