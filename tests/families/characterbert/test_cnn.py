"""Tests that the CNN gives the same vectors and gradients in the fewest slots as in all fifty."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import initial

from charlm.families.characterbert.characters import PAD, normalized, spell_rows
from charlm.families.characterbert.cnn import CharacterBertConfig, CharacterCNN
from charlm.families.characterbert.conversion import CONVERTER
from charlm.families.characterbert.units import word_slots
from charlm.families.subword.layout import config_to_dict

CONFIG = CharacterBertConfig(
    vocab_size=5, hidden=16, layers=1, heads=2, ffn=16, filters=(3, 3, 4, 4, 5, 5, 6), initializer="lecun"
)
WORDS = ["", "a", "of", "x" * 9, "y" * 41, "z" * 42, "z" * 47, "w" * 48, "v" * 60]


@pytest.fixture(scope="module")
def params():
    made = initial(CharacterCNN(CONFIG), jnp.ones((1, 3), jnp.int32), seed=3)
    # Biases that differ from zero: where all are equal, so are many windows.
    return jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape), made)


@functools.cache
def _run(config):
    return jax.jit(lambda p, chars: CharacterCNN(config).apply({"params": p}, chars))


def padded(rows_UC):
    """Returns rows as the paper reads them: fifty slots, padding a character like others."""
    return np.where(rows_UC == 0, PAD, rows_UC)


def test_the_fewest_slots_give_the_vector_of_all_fifty(params):
    rows_UC = spell_rows(WORDS, 50)
    whole = _run(CONFIG)(params, padded(rows_UC))
    assert np.abs(whole[1] - whole[2]).max() > 0.1
    for row_C, vector in zip(rows_UC, whole, strict=True):
        slots = int((row_C != 0).sum())
        for size in {slots, next(n for n in word_slots(50) if n >= slots)}:
            np.testing.assert_allclose(_run(CONFIG)(params, row_C[None, :size])[0], vector, rtol=1e-5, atol=1e-5)


def test_padding_takes_part_in_the_maximum(params):
    """A word alone, without what pads it, would have another vector."""
    rows_UC = spell_rows(["of"], 50)
    alone = CharacterBertConfig(**{**vars(CONFIG), "char_slots": 7})
    different = _run(CONFIG)(params, rows_UC[:, :4]) - _run(alone)(params, padded(rows_UC[:, :7]))
    assert np.abs(different).max() > 1e-3


def test_gradients_are_those_of_all_fifty_slots(params):
    rows_UC = spell_rows(["of", "cat"], 50)
    loss = lambda p, chars: (_run(CONFIG)(p, chars) ** 2).sum()
    short, whole = (jax.jit(jax.grad(loss))(params, chars) for chars in (rows_UC[:, :5], padded(rows_UC)))
    # Windows of padding alone are alike: which of them the maximum takes makes no difference to kernel and bias.
    # Terms of a sum may cancel, so rounding is measured by the largest gradient of an array.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max()), short, whole)


def test_bfloat16_is_near(params):
    rows_UC = spell_rows(WORDS, 50)
    half = CharacterBertConfig(**{**vars(CONFIG), "dtype": jnp.bfloat16})
    one, other = _run(CONFIG)(params, rows_UC), _run(half)(params, rows_UC)
    assert other.dtype == jnp.float32
    assert 0 < np.abs(one - other).max() < 0.05 * np.abs(one).max()


def test_more_slots_than_the_model_has_are_refused(params):
    with pytest.raises(ValueError, match="words of 51 character slots, but the model has 50"):
        CharacterCNN(CONFIG).apply({"params": params}, np.ones((1, 51), np.uint16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": (1, 2)}, r"windows=\(1, 2\) and filters=\(3, 3, 4, 4, 5, 5, 6\): expected as many of both"),
        ({"char_slots": 6}, r"char_slots=6, expected at least 3 and max\(windows\)=7"),
        ({"char_hidden": 0}, "char_hidden=0, highways=2: expected at least 1 and 0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CharacterBertConfig(**{**vars(CONFIG), **change})


def test_the_released_size():
    """104.6 M parameters with a pooler and without a prediction head, as the paper says."""
    metadata = {"model": config_to_dict(CharacterBertConfig()), "head": "pooled_encoder"}
    params = CONVERTER.target(metadata, "here").params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 104_603_760


FORMS = [("Naïve", "Naïve", "naive"), ("\0A\u200bÉ", "AÉ", "ae"), ("\0[CLS]", "[CLS]", "[cls]"), ("\x07", "", "")]


@pytest.mark.parametrize(("word", "cased", "uncased"), FORMS)
def test_normal_forms(word, cased, uncased):
    assert (normalized(word, False), normalized(word, True)) == (cased, uncased)
