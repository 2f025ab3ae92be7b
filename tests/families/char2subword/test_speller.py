"""Tests the soft speller: means of rows of the table, in blocks, with gradients, and in a model in gated mode alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from small_char2subword import spelled

from charlm.families.char2subword import speller
from charlm.families.char2subword.model import Char2SubwordBert
from charlm.families.char2subword.module import Char2Subword
from charlm.families.char2subword.speller import mixed_rows
from charlm.families.char2subword.spelling import spell_rows
from charlm.families.pretrained import from_pretrained

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(50, 6)).astype(np.float32)


def means(vectors, table):
    """The same in NumPy's doubles."""
    logits = vectors.astype(np.float64) @ table.T.astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ table


@pytest.mark.parametrize("count", [1, 4, 9])  # a block that is not full, a full one, two and a part
def test_they_are_means_under_the_softmax(monkeypatch, count):
    monkeypatch.setattr(speller, "AT_ONCE", 4)
    vectors = RNG.normal(size=(count, 6)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(mixed_rows)(vectors, TABLE), means(vectors, TABLE), atol=1e-5)


def test_a_certain_vector_is_read_as_its_row():
    np.testing.assert_allclose(mixed_rows(100 * TABLE[7:8], TABLE), TABLE[7:8], atol=1e-5)


def test_vectors_get_the_gradient_of_the_mean_and_the_table_none(monkeypatch):
    monkeypatch.setattr(speller, "AT_ONCE", 4)
    vectors, weights = RNG.normal(size=(2, 9, 6)).astype(np.float32)
    loss = lambda vectors, table: (mixed_rows(vectors, table) * weights).sum()
    of_vectors, of_table = jax.jit(jax.grad(loss, argnums=(0, 1)))(vectors, TABLE)
    assert not np.asarray(of_table).any()
    for place in [(0, 0), (3, 5), (8, 2)]:
        step = np.zeros((9, 6))
        step[place] = 1e-5
        slope = ((means(vectors + step, TABLE) - means(vectors - step, TABLE)) * weights).sum() / 2e-5
        assert np.asarray(of_vectors)[place] == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize("mode", ["gated", "hybrid"])
def test_a_model_reads_rows_in_gated_mode_alone(mode):
    model = from_pretrained(spelled("bert", mode="gated"), **({} if mode == "gated" else {"mode": mode}))
    chars = spell_rows(["##birds", "##teh", "##unbelievably"], model.vocab(), 12)
    own = Char2Subword(model.config.characters).apply({"params": model.params["char2subword"]}, chars)
    params = {name: model.params[name] for name in ("bert", "char2subword")}
    found = Char2SubwordBert(model.config).apply({"params": params}, chars, method="spell")
    table = np.asarray(params["bert"]["embed"]["token"]["embedding"])
    wanted = means(np.asarray(own), table) if mode == "gated" else own
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(np.asarray(own) - means(np.asarray(own), table)).max() > 0.1
