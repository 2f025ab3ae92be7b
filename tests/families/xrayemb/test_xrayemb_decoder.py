"""Tests XR-Dec: generation equals teacher forcing on its own words; how words begin and end; random draws."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied

from charlm.families.xrayemb.decoder import Generated, XRDecoder, XRDecoderConfig, spelled_rows

CONFIG = XRDecoderConfig(char_vocab_size=9, char_embedding=5, hidden=6, vector=7, char_slots=12)
END, SPACE, U, T = 8, 2, 40, 6
END_BIAS = 2.0
SPACES = np.arange(9) == SPACE


@pytest.fixture(scope="module")
def params():
    inputs = jnp.ones((1, 7)), jnp.ones((1, 3), jnp.int32)
    params = jax.eval_shape(XRDecoder(CONFIG).init, jax.random.key(0), *inputs)["params"]
    rng = np.random.default_rng(4)
    params = jax.tree.map(lambda x: (1.5 * rng.normal(size=x.shape)).astype(np.float32), params)
    params["output_projection"]["bias"][END - 1] += END_BIAS  # so that words end at different lengths
    return params


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(U, 7)).astype(np.float32)


def generate(params, vectors, config=CONFIG, **options):
    options = {"max_steps": T, "spaces_V": SPACES} | options
    run = jax.jit(lambda params, vectors: XRDecoder(config).apply(params, vectors, method="generate", **options))
    return jax.device_get(run({"params": params}, vectors))


def choices(params, vectors, words):
    """What teacher forcing finds likeliest behind the characters of words, and what may not begin one is left out."""
    chars = np.concatenate([np.full((len(words), 1), END), words], axis=1)
    logits = np.array(applied(XRDecoder(CONFIG))(params, vectors, chars))
    logits[:, 0, [END - 1, SPACE - 1]] = -np.inf
    return logits.argmax(axis=-1) + 1


def test_generation_is_teacher_forcing_on_its_own_words(params, vectors):
    words = generate(params, vectors)
    place = np.arange(T)[None]
    ended = words.length_U < T
    assert 5 < ended.sum() < U
    assert len(set(words.length_U)) > 2
    inside = place <= words.length_U[:, None]
    np.testing.assert_array_equal(np.where(inside, choices(params, vectors, words.ids_UT), 0), words.ids_UT)
    assert (words.ids_UT[ended, words.length_U[ended]] == END).all()
    assert not np.isin(words.ids_UT[~ended], [0, END]).any()
    assert not np.isin(words.ids_UT[:, 0], [0, END, SPACE]).any()
    assert (words.ids_UT[place < words.length_U[:, None]] == SPACE).any()
    assert words.length_U.min() > 0


@pytest.mark.parametrize("scrambled", [False, True])
@pytest.mark.parametrize("slots", [(5, 9, 12), (12, 5, 5), (7,)], ids=str)
def test_words_of_several_tables_are_those_of_one(params, vectors, slots, scrambled):
    """Two shards; as many words as tables in each of them, every table of other words."""
    rng = np.random.default_rng(1)
    config = dataclasses.replace(CONFIG, compat_scramble=scrambled)
    chars = [rng.integers(1, END + 1, (2, 3 + table, C)) for table, C in enumerate(slots)]
    taken = np.split(vectors, np.cumsum([2 * (3 + table) for table in range(len(slots))]))
    given = [x.reshape(2, -1, 7) for x in taken[: len(slots)]]
    order = sorted(range(len(slots)), key=lambda table: -slots[table])
    C = max(slots)
    rows = np.concatenate([np.pad(chars[table], ((0, 0), (0, 0), (0, C - slots[table]))) for table in order], axis=1)
    joined = np.concatenate([given[table] for table in order], axis=1)
    want = np.array(applied(XRDecoder(config))(params, joined.reshape(-1, 7), rows.reshape(-1, C)))
    want = want.reshape(*rows.shape[:2], C - 1, -1)
    lengths = np.concatenate([np.full(len(chars[table][0]), slots[table] - 1) for table in order])
    found = applied(XRDecoder(config), method="tables")(params, given, chars)
    begin = 0
    for part in found:
        end = begin + len(part.logits_NBV)
        words = lengths >= end
        np.testing.assert_allclose(
            part.logits_NBV, np.moveaxis(want[:, words, begin:end], 2, 0).reshape(end - begin, -1, END), atol=1e-5
        )
        np.testing.assert_array_equal(
            part.ids_NB, np.moveaxis(rows[:, words, begin + 1 : end + 1], 2, 0).reshape(end - begin, -1)
        )
        begin = end
    assert begin == C - 1
    assert sum(part.ids_NB.size for part in found) == sum(x[..., 1:].size for x in chars)  # nothing twice, nothing else


def test_spaces_end_words(params, vectors):
    words, before = (generate(params, vectors, spaces_end=ends) for ends in (True, False))
    for row, length, other in zip(words.ids_UT, words.length_U, before.ids_UT, strict=True):
        stops = [place for place, index in enumerate(other) if index in (END, SPACE)]
        assert length == (stops[0] if stops else T)
        np.testing.assert_array_equal(row[: length + 1], other[: length + 1])
        assert not row[length + 1 :].any()


def test_a_word_is_the_same_alone_and_in_a_batch(params, vectors):
    words = generate(params, vectors)
    for row in range(3):
        np.testing.assert_array_equal(generate(params, vectors[row : row + 1]).ids_UT[0], words.ids_UT[row])


def test_the_loop_ends_with_the_last_word(params, vectors):
    steps = []

    class Counted(XRDecoder):
        def step(self, *arguments):
            jax.debug.callback(lambda: steps.append(1))
            return super().step(*arguments)

    always = jax.tree.map(np.copy, params)
    always["output_projection"]["bias"][END - 1] = 1e4
    words = Counted(CONFIG).apply({"params": always}, vectors, max_steps=T, method="generate")
    jax.effects_barrier()
    assert (words.length_U == 1).all()
    assert len(steps) == 2  # a character, and what ends the word


def test_draws(params, vectors):
    greedy = generate(params, vectors)
    one, again = (generate(params, vectors, key=jax.random.key(5)) for _ in range(2))
    np.testing.assert_array_equal(one.ids_UT, again.ids_UT)
    assert (one.ids_UT != generate(params, vectors, key=jax.random.key(6)).ids_UT).any()
    cold = generate(params, vectors, key=jax.random.key(5), temperature=1e-4)
    assert (cold.ids_UT == greedy.ids_UT).mean() > 0.99
    same = np.repeat(vectors[:1], 4000, axis=0)
    first = generate(params, same, key=jax.random.key(7), max_steps=1, temperature=2.0).ids_UT[:, 0]
    logits = np.array(applied(XRDecoder(CONFIG))(params, vectors[:1], np.array([[END, 1]])))[0, 0]
    logits[[END - 1, SPACE - 1]] = -np.inf
    expected = np.asarray(jax.nn.softmax(logits / 2))
    np.testing.assert_allclose(np.bincount(first - 1, minlength=8) / 4000, expected, atol=0.03)


def test_characters_of_a_word_are_drawn_independently(params):
    """Where all are equally likely, one says nothing of the next."""
    equal = jax.tree.map(np.zeros_like, params)
    ids = generate(equal, np.zeros((2000, 7), np.float32), key=jax.random.key(8)).ids_UT
    for now in range(1, T):
        going = ids[:, now] != 0
        assert (ids[going, now] == ids[going, now - 1]).mean() < 0.25  # a seventh or an eighth


def test_rows_that_encoder_and_generator_read():
    ids = np.array([[3, 4, END, 0], [5, 6, 7, 1], [3, SPACE, 0, 0]], np.int32)
    rows = spelled_rows(Generated(jnp.asarray(ids), jnp.array([2, 4, 1])), END)
    want = [[END, 3, 4, END, 0, 0], [END, 5, 6, 7, 1, END], [END, 3, END, 0, 0, 0]]
    np.testing.assert_array_equal(rows, want)


def test_scrambled_states_are_those_of_other_words(params, vectors):
    mixed = dataclasses.replace(CONFIG, compat_scramble=True)
    two = vectors[:2]
    right, wrong = (applied(XRDecoder(c), method="start_states")(params, two) for c in (CONFIG, mixed))
    assert right.shape == wrong.shape == (2, 2, 6)
    np.testing.assert_allclose(wrong[0, 1], right[1, 0], atol=1e-6)  # the second layer's of the first word
    np.testing.assert_allclose(wrong[1, 0], right[0, 1], atol=1e-6)
    np.testing.assert_allclose(wrong[0, 0], right[0, 0], atol=1e-6)


def test_mistakes():
    with pytest.raises(ValueError, match=r"tables of \[1, 1\] slots, expected two"):
        XRDecoder(CONFIG).apply({}, [jnp.ones((1, 2, 7))] * 2, [np.ones((1, 2, 1), int)] * 2, method="tables")
    cases = [
        ({"max_steps": 0}, "max_steps=0, expected at least 1"),
        ({"spaces_V": np.zeros(4, bool)}, r"spaces_V is \(4,\), expected \[9\]"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            generate({}, jnp.ones((1, 7)), **options)
    for change, message in (({"layers": 0}, "generator layers=0"), ({"char_vocab_size": 1}, "char_vocab_size=1")):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(CONFIG, **change)
