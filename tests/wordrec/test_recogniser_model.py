"""Tests the recogniser's module: it equals a loop over the equations in NumPy, and padding has no effect."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from lstm_equations import both_directions, linear
from programs import applied, drawn

from charlm.wordrec.batches import padded_rows
from charlm.wordrec.model import Recogniser, RecogniserConfig
from charlm.wordrec.words import OTHER, KnownWords

KNOWN = KnownWords(["the", "cat", "sat", "on", "mat"], "tehcasonm", "rules")
ROWS = [["the", "caat", "sat", "on", "a", "zebra"], ["a"], ["mat", "the", "sat"]]
MODEL = Recogniser(RecogniserConfig(KNOWN.alphabet, KNOWN.size, hidden=7))


def inputs(rows=ROWS, most=3, length=6):
    read, mask_BL = padded_rows(KNOWN, rows, most, length)
    return *read, mask_BL


def reference(words, params):
    """Returns the logits [W, V] of a row, from its characters alone."""
    A = KNOWN.alphabet
    x_LE = np.zeros((len(words), 3 * A))
    for n, word in enumerate(words):
        numbers = [KNOWN.characters.index(c) + OTHER if c in KNOWN.characters else OTHER - 1 for c in word]
        x_LE[n, numbers[0]] = 1
        for number in numbers[1:-1]:
            x_LE[n, A + number] += 1
        x_LE[n, 2 * A + numbers[-1]] = 1
    return linear(both_directions(x_LE, params), params["label"])


def test_logits_are_those_of_the_equations():
    params = drawn(MODEL, *inputs())
    logits_BLV = np.asarray(applied(MODEL)(params, *inputs()))
    for row, words in enumerate(ROWS):
        np.testing.assert_allclose(logits_BLV[row, : len(words)], reference(words, params), atol=2e-5)


def test_logits_in_bfloat16_are_float32():
    rounded = MODEL.clone(config=dataclasses.replace(MODEL.config, dtype=jnp.dtype("bfloat16")))
    logits = applied(rounded)(drawn(MODEL, *inputs()), *inputs())
    assert logits.dtype == np.float32
    assert (np.asarray(logits) != np.asarray(logits.astype(jnp.bfloat16).astype(np.float32))).mean() > 0.5


def test_padding_changes_nothing():
    params = drawn(MODEL, *inputs())
    short = np.asarray(applied(MODEL)(params, *inputs()))
    wide = np.asarray(applied(MODEL)(params, *inputs(most=5, length=11)))
    for row, words in enumerate(ROWS):
        np.testing.assert_allclose(wide[row, : len(words)], short[row, : len(words)], atol=1e-6)


def test_a_word_depends_on_words_on_both_sides():
    params = drawn(MODEL, *inputs())
    logits = lambda words: np.asarray(applied(MODEL)(params, *inputs([words])))[0, 1]
    middle = logits(["the", "cat", "sat"])
    assert np.abs(logits(["mat", "cat", "sat"]) - middle).max() > 1e-3
    assert np.abs(logits(["the", "cat", "mat"]) - middle).max() > 1e-3
