"""Tests XR-Enc: a word's vector depends only on its characters, for every kind; `compat_padding` is as released."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import applied

from charlm.families.xrayemb.encoder import ENCODER_KINDS, XREncoder, XREncoderConfig, encoder_config

SHAPE = XREncoderConfig(
    char_vocab_size=12, char_embedding=6, hidden=8, output=10, layers=2, heads=2, ffn=12, max_positions=16,
    char_slots=12, projections=2, initializer="lecun",
)  # fmt: skip
E = SHAPE.char_vocab_size - 1  # <e>
kinds = pytest.mark.parametrize("kind", ENCODER_KINDS)
MADE = {}


def shape_of(kind, **changes):
    return dataclasses.replace(SHAPE, kind=kind, projections=1 if kind == "transformer" else 2, **changes)


def made(kind, **changes):
    """Returns an encoder, compiled, and its parameters, all of them random."""
    key = (kind, *sorted(changes.items()))
    if key not in MADE:
        config = shape_of(kind, **changes)
        params = jax.eval_shape(XREncoder(config).init, jax.random.key(0), np.ones((1, 3), np.int32))["params"]
        rng, scale = np.random.default_rng(1), 1.5 if kind == "transformer" else 0.5
        params = jax.tree.map(lambda x: scale * rng.normal(size=x.shape).astype(np.float32), params)
        MADE[key] = jax.jit(lambda params, chars: XREncoder(config).apply({"params": params}, chars)), params
    return MADE[key]


def spelled(words, width):
    rows = np.zeros((len(words), width), np.int32)
    for row, word in zip(rows, words, strict=True):
        row[: len(word) + 2] = [E, *word, E]
    return rows


words = st.lists(st.integers(1, E - 1), min_size=0, max_size=8)


@kinds
@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(words, min_size=3, max_size=3))
def test_neither_padding_nor_other_words_are_read(kind, three):
    encode, params = made(kind)
    together = encode(params, spelled(three, 10))
    for word, vector in zip(three, together, strict=True):
        other = encode(params, spelled([word, [3] * 8, []], 12))[0]
        np.testing.assert_allclose(other, vector, atol=1e-5)


@kinds
def test_a_word_alone_has_the_same_vector(kind):
    encode, params = made(kind)
    word = [2, 9, 4]
    want = encode(params, spelled([word], 5))[0]
    np.testing.assert_allclose(encode(params, spelled([word, [3] * 8, []], 12))[0], want, atol=1e-5)
    theirs, _ = made(kind, compat_padding=True)
    np.testing.assert_allclose(theirs(params, spelled([word], 5))[0], want, atol=1e-5)
    assert np.abs(theirs(params, spelled([word], 12))[0] - want).max() > 1e-3


def test_no_window_beside_a_word_is_read():
    encode, params = made("conv")
    letters = [[letter] for letter in range(1, E)]  # the shorter a word, the fewer windows its maxima are of
    want = encode(params, spelled(letters, 3))
    np.testing.assert_allclose(encode(params, spelled(letters, 12)), want, atol=1e-5)


@kinds
def test_every_character_and_their_order_are_read(kind):
    encode, params = made(kind)
    vectors = np.asarray(encode(params, spelled([[2, 9, 4], [4, 9, 2], [2, 9, 5], [2, 9]], 12)))
    for other in vectors[1:]:
        assert np.abs(other - vectors[0]).max() > 1e-3


@kinds
def test_no_word_gives_something_finite_with_finite_gradients(kind):
    encode, params = made(kind)
    chars = np.array([[0, 0, 0, 0], [E, 5, E, 0]], np.int32)
    value, grads = jax.jit(jax.value_and_grad(lambda params: (encode(params, chars) ** 2).sum()))(params)
    assert np.isfinite(value)
    assert all(np.isfinite(grad).all() for grad in jax.tree.leaves(grads))
    alone = jax.jit(jax.grad(lambda params: (encode(params, chars)[1] ** 2).sum()))(params)
    assert all(np.abs(grad).max() > 1e-4 for path, grad in jax.tree.leaves_with_path(alone) if "query" not in str(path)
               and "key" not in str(path))  # fmt: skip


@pytest.mark.parametrize("kind", [again("conv"), "lstm"])
def test_a_table_longer_than_the_text_gives_the_same(kind):
    encode, params = made(kind)
    chars = spelled([[2, 9, 4]], 6)
    want = encode(params, np.concatenate([chars, chars, chars]))[:1]  # more characters than rows
    np.testing.assert_allclose(encode(params, chars), want, atol=1e-6)  # fewer
    loss = lambda times: lambda params: (encode(params, np.concatenate([chars] * times)) ** 2).sum() / times
    few, many = (jax.jit(jax.grad(loss(times)))(params) for times in (1, 3))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), few, many)


def test_the_papers_size():
    shapes = jax.eval_shape(
        lambda: XREncoder(XREncoderConfig(char_vocab_size=8_740)).init(jax.random.key(0), np.ones((1, 3), np.int32))
    )["params"]
    table = shapes["body"].pop("chars")["embedding"].size
    rest = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert rest == 1_052_160  # "about 1 M" (section 4)
    assert table + rest == 2_800_160  # "about 2.8 M" with the characters of Wikipedia


def test_the_authors_sizes():
    assert encoder_config("conv") == XREncoderConfig()
    lstm, transformer = encoder_config("lstm", output=16), encoder_config("transformer")
    assert (lstm.hidden, lstm.layers, lstm.projections, lstm.output) == (128, 2, 2, 16)
    assert (transformer.hidden, transformer.layers, transformer.ffn) == (256, 6, 3072)


@kinds
def test_bfloat16_is_near_float32(kind):
    """In all of the encoder, and in what is before its projection."""
    _, params = made(kind)
    chars = spelled([[2, 9, 4], [7]], 6)

    def both(dtype):
        encoder = XREncoder(dataclasses.replace(shape_of(kind), dtype=dtype))
        body = lambda encoder, chars: (encoder(chars), encoder.body(chars, True))
        return jax.jit(lambda params: encoder.apply({"params": params}, chars, method=body))(params)

    for half, full in zip(both(jnp.bfloat16), both(jnp.float32), strict=True):
        assert half.dtype == np.float32
        assert 1e-4 < np.linalg.norm(half - full) / np.linalg.norm(full) < 3e-2


@kinds
def test_dropout_is_in_training_alone(kind):
    encode, params = made(kind)
    encoder = XREncoder(dataclasses.replace(shape_of(kind), dropout=0.5))
    chars = spelled([[2, 9, 4]], 5)

    @jax.jit
    def dropped(key):
        return encoder.apply({"params": params}, chars, deterministic=False, rngs={"dropout": key})

    one, again, other = (dropped(jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-3
    np.testing.assert_allclose(applied(encoder)(params, chars), encode(params, chars), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cnn"}, "encoder kind='cnn' is not one of conv, lstm, transformer"),
        ({"projections": 0}, "encoder projections=0, expected a positive number"),
        ({"kind": "transformer", "heads": 3}, "encoder hidden=8 is not a multiple of heads=3"),
        ({"kind": "transformer", "max_positions": 8}, "encoder max_positions=8, expected at least"),
        ({"char_vocab_size": 2}, "encoder char_vocab_size=2, expected 3"),
        ({"char_slots": 2}, "encoder char_slots=2, expected 3"),
    ],
)
def test_impossible_shapes(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SHAPE, **change)
