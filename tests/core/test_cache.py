"""Tests the caches of inference: exact, bounded, dropping the least recently used, separate for other parameters."""

from __future__ import annotations

import functools
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied, drawn

from charlm.core import cache as cache_module
from charlm.core.cache import CALL_SLOTS, CHUNKS, FIRST_CACHE_ROWS, OncePerParams, WordCache, _cheapest
from charlm.data.word_batch import reshape_batch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.model import HLM

WIDTH = 4
BUCKETS = (4, 8)


class Encoder:
    """Stands in for the intra-word encoder: a vector that tells the word, and a record of what was computed."""

    def __init__(self) -> None:
        self.words: list[tuple[int, ...]] = []
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, params: jax.Array, chars_UC: np.ndarray) -> jax.Array:
        self.words += [tuple(row[row != 0].tolist()) for row in chars_UC if row.any()]
        self.shapes.append(chars_UC.shape)
        return vectors(params, chars_UC)


def vectors(params: jax.Array, chars_UC: np.ndarray) -> jax.Array:
    weights = 1.0 + np.arange(chars_UC.shape[1])
    return jnp.asarray((chars_UC * weights).sum(axis=1, keepdims=True) * np.arange(1, WIDTH + 1), jnp.float32) * params


def words(*numbers: int, slots: int = 8) -> np.ndarray:
    """Returns [1, W, slots]: a word of two or (multiples of 3) six characters for each number, no word for 0."""
    rows = np.zeros((1, len(numbers), slots), np.uint16)
    for w, number in enumerate(numbers):
        if number:
            rows[0, w, : 6 if number % 3 == 0 else 2] = number
    return rows


@pytest.fixture
def encoder():
    return Encoder()


def make(encoder: Encoder, limit: int = 100) -> WordCache:
    return WordCache(encoder, WIDTH, jnp.float32, BUCKETS, max_words=limit)


ONE = jnp.ones(())


def check(cache: WordCache, chars_NWC: np.ndarray, params: jax.Array = ONE) -> None:
    expected = vectors(params, chars_NWC.reshape(-1, chars_NWC.shape[-1])).reshape(*chars_NWC.shape[:2], WIDTH)
    np.testing.assert_array_equal(cache.read(params, chars_NWC), expected)


def test_every_word_gets_its_vector_and_is_computed_once(encoder):
    cache = make(encoder)
    check(cache, words(1, 2, 3, 2, 0, 256))
    assert sorted(encoder.words) == [(1, 1), (2, 2), (3,) * 6, (256, 256)]
    check(cache, words(3, 3, 0, 1))
    assert len(encoder.words) == 4
    assert cache.stats == (2, 4, 4, 100)
    assert cache.stats.hit_rate == 2 / 6
    check(cache, words(1, 2, slots=4))  # the same words, less padding
    assert len(encoder.words) == 4
    check(cache, words(0, 0))


def test_words_are_encoded_in_few_shapes(encoder):
    cache = make(encoder, 5000)
    for count in (1, 31, 40, 700, 900):
        check(cache, words(*range(1, 3 * count, 3)))  # all short
        check(cache, words(*range(3, 3 * count, 3)))  # all long
    assert set(encoder.shapes) <= {(size, slots) for size in CHUNKS for slots in BUCKETS}
    assert len(encoder.words) == len(set(encoder.words))


@pytest.mark.parametrize("count", [1, 32, 33, 200, 700])
def test_words_are_encoded_in_the_cheapest_arrays(count):
    slots_U, buckets = np.random.default_rng(count).integers(1, 21, count), (4, 5, 8, 20)
    arrays = list(_cheapest(slots_U, buckets))
    assert sorted(np.concatenate([part for part, _, _ in arrays]).tolist()) == list(range(count))
    for part, rows, slots in arrays:
        assert 1 <= len(part) <= rows
        assert rows in CHUNKS
        assert slots == min(bucket for bucket in buckets if bucket >= slots_U[part].max())

    @functools.cache
    def least(at: int) -> int:
        """Tries every array for the words that are left when the longest `at` have theirs."""
        if at >= count:
            return 0
        slots = min(bucket for bucket in buckets if bucket >= sorted(slots_U)[::-1][at])
        return min(CALL_SLOTS + rows * slots + least(at + rows) for rows in CHUNKS)

    assert sum(CALL_SLOTS + rows * slots for _, rows, slots in arrays) == least(0)


def test_a_few_words_of_any_length_are_one_array(encoder):
    """A sentence with new words costs one call, not one for each length."""
    check(make(encoder), words(1, 2, 3, 4, 6))
    assert encoder.shapes == [(CHUNKS[-1], BUCKETS[-1])]


def test_those_not_read_for_the_longest_time_make_room(encoder):
    cache = make(encoder, 3)
    check(cache, words(1, 2, 3))
    check(cache, words(1))
    check(cache, words(4))  # in place of 2
    encoder.words.clear()
    check(cache, words(1, 3, 4))
    assert encoder.words == []
    check(cache, words(2, 4))
    assert encoder.words == [(2, 2)]
    assert cache.stats.words == 3
    assert cache._table.shape[0] == 4


def test_words_that_the_index_finds_are_read_as_all_others(encoder, monkeypatch):
    cache = make(encoder, 5)
    check(cache, words(1, 2, 3, 256, 4))
    check(cache, words(1, 2, 3, 256, 4))  # makes the index: all were there
    monkeypatch.setattr(cache_module, "_distinct", None)
    for read in (words(4, 3, 0, 3, 256), words(0, 0), words(1, 2, 4, slots=4), words(1, slots=12)):
        check(cache, read)
    assert cache.stats == (5 + 3 + 3 + 1, 5, 5, 5)
    monkeypatch.undo()
    check(cache, words(5))  # takes the place of one that was read through the index last of all
    assert encoder.words[-1] == (5, 5)
    check(cache, words(5, 1, 2, 3, 4))
    assert len(encoder.words) == 7  # 256 and one of the others went: their order within the index is not known


def test_reading_through_the_index_keeps_words(encoder):
    cache = make(encoder, 3)
    check(cache, words(1, 2, 4))
    check(cache, words(1, 2, 4))
    for _ in range(3):
        check(cache, words(1, 2))  # found by the index: 4 is the oldest now
    check(cache, words(5))
    check(cache, words(1, 2))
    assert len(encoder.words) == 4
    check(cache, words(4))
    assert encoder.words[-1] == (4, 4)


def test_the_index_knows_parameters_and_other_integers(encoder):
    cache, two = make(encoder), jnp.full((), 2.0)
    for _ in range(3):
        check(cache, words(1, 2))
    check(cache, words(1, 2), two)
    assert len(encoder.words) == 4
    wide = words(1, 3, 6).astype(np.int32)
    for _ in range(3):
        check(cache, wide, two)
    check(cache, words(6, 1), two)
    assert len(encoder.words) == 6
    for wrong in (-1, 2**16):
        with pytest.raises(ValueError, match=r"^character ids from .*, expected 0 to 65535$"):
            cache.read(two, np.full_like(wide, wrong))


def test_a_call_that_adds_words_makes_no_index(encoder, monkeypatch):
    monkeypatch.setattr(cache_module, "WordIndex", None)
    cache = make(encoder)
    check(cache, words(0, 0))
    for number in range(1, 20, 3):
        check(cache, words(number, number + 1, 1))


def test_a_call_with_more_words_than_there_is_room_for_is_answered_and_nothing_kept(encoder):
    cache = make(encoder, 3)
    check(cache, words(1, 2))
    check(cache, words(*range(1, 50)))
    assert (cache.stats.words, cache._table.shape[0]) == (2, 4)
    encoder.words.clear()
    check(cache, words(1, 2))
    assert encoder.words == []


def test_the_table_grows_and_keeps_what_it_has(encoder):
    cache = make(encoder, 10_000)
    numbers = range(1, 3 * FIRST_CACHE_ROWS)
    for start in range(0, len(numbers), 700):
        check(cache, words(*numbers[start : start + 700]))
    encoder.words.clear()
    check(cache, words(*numbers))
    assert encoder.words == []


def test_other_parameters_are_another_word(encoder):
    cache = make(encoder)
    two = 2 * ONE
    check(cache, words(1, 2))
    check(cache, words(1, 2), two)
    check(cache, words(1, 2))
    assert len(encoder.words) == 4
    assert cache.stats.words == 4
    del two
    for value in range(3, 8):  # an array may get the memory, and the id, of one that is gone
        check(cache, words(1, 2), value * jnp.ones(()))


def test_threads_share_it(encoder):
    cache = make(encoder, 60)
    rng = np.random.default_rng(0)
    batches = [words(*rng.integers(0, 100, 40)) for _ in range(60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda batch: check(cache, batch), batches))
    assert cache.stats.words <= 60


def test_a_failure_leaves_no_word_without_its_vector(encoder):
    calls = []

    def failing(params: jax.Array, chars_UC: np.ndarray) -> jax.Array:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return encoder(params, chars_UC)

    cache = WordCache(failing, WIDTH, jnp.float32, BUCKETS, max_words=100)
    with pytest.raises(MemoryError):
        cache.read(ONE, words(*range(1, 81)))
    assert encoder.words  # the first array was computed
    check(cache, words(*range(1, 81)))


@pytest.mark.parametrize("step", ["concatenate", "_write"])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_table_that_cannot_be_written_is_begun_anew(encoder, monkeypatch, step, error):
    cache = make(encoder, 5000)
    check(cache, words(*range(1, FIRST_CACHE_ROWS)))

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*((cache_module.jnp, step) if step == "concatenate" else (cache_module, step)), fail)
        with pytest.raises(error):
            cache.read(ONE, words(*range(2000, 2000 + FIRST_CACHE_ROWS)))
    for numbers in (range(3000, 4000), range(4000, 4200), range(1, FIRST_CACHE_ROWS), range(3000, 4000)):
        check(cache, words(*numbers))


def test_narrow_arrays_and_names_of_parameters(encoder):
    cache = make(encoder)
    check(cache, words(1, 2, slots=3))  # fewer slots than the first bucket
    params = {"x": jnp.ones(()), "y": jnp.zeros(())}
    named = WordCache(lambda p, chars: vectors(p["x"], chars), WIDTH, jnp.float32, BUCKETS, max_words=9)
    swapped = {"x": params["y"], "y": params["x"]}
    renamed = {"w": params["x"], "x": params["y"]}  # the same arrays, in the same order
    assert np.any(named.read(params, words(1)))
    assert not np.any(named.read(swapped, words(1)))
    assert not np.any(named.read(renamed, words(1)))


def test_clear_and_warm(encoder):
    cache = make(encoder, 3)
    cache.warm(ONE, words(1, 2, 3, 4)[0])
    assert (cache.stats.hits, cache.stats.misses, cache.stats.words) == (0, 0, 3)
    encoder.words.clear()
    check(cache, words(2, 3, 4))
    assert encoder.words == []
    assert cache.stats.hit_rate == 1.0
    cache.warm(ONE, words(5, 6, 0, 5, 6, 6, 5)[0])  # repeats take no room
    assert cache.stats.words == 3
    encoder.words.clear()
    check(cache, words(5, 6, 4))
    assert encoder.words == []
    cache.clear()
    check(cache, words(2, 3))
    assert len(encoder.words) == 2


def test_what_does_not_fit_is_refused(encoder):
    with pytest.raises(ValueError, match="a cache of 0 words holds nothing"):
        WordCache(encoder, WIDTH, jnp.float32, BUCKETS, max_bytes=10)
    assert WordCache(encoder, WIDTH, jnp.float32, BUCKETS, max_bytes=160).limit == 10
    with pytest.raises(ValueError, match="a word of 12 slots, expected at most 8"):
        make(encoder).read(ONE, np.ones((1, 1, 12), np.uint16))


@pytest.mark.parametrize("aggregation", ["word_cls", "mean", "max"])
def test_cached_vectors_are_those_of_the_model(aggregation):
    config = HLMConfig(
        vocab_size=64, hidden=16, heads=2, intra_layers=2, inter_layers=1, head_layers=1, intra_ffn=32, inter_ffn=32,
        char_slots=8, position_buckets=16, max_relative_words=32, aggregation=aggregation,
    )  # fmt: skip
    model = HLM(config)
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, (3, 12))
    chars_BWC = (rng.integers(1, 64, (3, 12, 8)) * (np.arange(8) < lengths[..., None])).astype(np.uint16)
    chars_BWC[2, 4:8] = chars_BWC[0, 4:8]
    params = drawn(model, reshape_batch(chars_BWC), scale=0.2)
    encode = jax.jit(lambda p, chars_UC: model.apply({"params": p}, chars_UC, method="encode_words"))
    cache = WordCache(encode, config.hidden, config.dtype, BUCKETS, max_words=40)
    whole = applied(model)(params, reshape_batch(chars_BWC))
    for _ in range(2):
        words_BWD = cache.read(params, chars_BWC)
        mask_BW = chars_BWC[..., 0] != 0
        np.testing.assert_allclose(words_BWD[mask_BW], whole.words_NWD[mask_BW], atol=1e-5)
        context = applied(model, method="contextualize")(params, words_BWD, mask_BW)
        np.testing.assert_allclose(context[mask_BW], whole.context_NWD[mask_BW], atol=1e-5)
    assert cache.stats.hits > 0


def test_a_function_of_parameters_is_computed_once_for_each():
    computed = []
    double = OncePerParams(lambda params: computed.append(1) or jax.tree.map(lambda x: 2 * x, params))
    one, other = {"a": jnp.ones(2), "b": jnp.ones(3)}, {"a": jnp.ones(2), "b": jnp.ones(3)}
    for params, count in ((one, 1), (dict(one), 1), (other, 2), (other, 2), ({"a": one["a"]}, 3), (one, 4)):
        jax.tree.map(np.testing.assert_array_equal, double(params), jax.tree.map(lambda x: 2 * x, params))
        assert len(computed) == count
    one["b"] = jnp.zeros(3)  # another array in the same place
    np.testing.assert_array_equal(double(one)["b"], np.zeros(3))
    renamed = {"b": one["a"], "c": one["b"]}
    assert double(renamed).keys() == renamed.keys()
    kept = weakref.ref(one["a"])
    del one, renamed, params
    gc.collect()
    assert kept() is None  # parameters that nobody needs any more are let go
