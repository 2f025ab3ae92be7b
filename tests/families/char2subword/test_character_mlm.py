"""Tests masked language modelling over hidden characters: sums equal those of a loop over labels."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from programs import applied, initial

from charlm.families.char2subword.model import Char2SubwordBertConfig, Char2SubwordForMaskedLM
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.spelled.batch import MaskedBatch, SpelledBatch
from charlm.families.spelled.masked_loss import MaskedSums, masked_sums, summarize

V, S, B, L = 11, 2, 2, 5
CHARACTERS = Char2SubwordConfig(char_vocab_size=30, hidden=8, layers=1, heads=2, output=8, char_slots=6)
CONFIG = Char2SubwordBertConfig(
    vocab_size=V, hidden=8, layers=1, heads=2, ffn=16, max_positions=8, initializer="lecun", characters=CHARACTERS
)


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    chars = rng.integers(8, 30, (S, 7, 6)).astype(np.uint16)
    ids = np.where(rng.random((S, B, L)) < 0.3, rng.integers(0, V, (S, B, L)), -1).astype(np.int32)
    index = rng.integers(0, 7, (S, B, L)).astype(np.int32)
    inputs = SpelledBatch((chars,), index, ids, 0 * ids, np.ones((S, B, L), bool))
    position = np.array([[1, 7, 9], [3, 0, 0]], np.int32)
    labels = np.array([[4, 0, 10], [5, -1, -1]], np.int32)
    batch = MaskedBatch(inputs, position, labels)
    model = Char2SubwordForMaskedLM(CONFIG)
    params = initial(model, inputs)
    return model, params, batch


def test_sums_equal_a_loop_over_labels(made):
    model, params, batch = made
    everywhere = np.asarray(applied(model)(params, batch.inputs).logits, np.float64).reshape(S, B * L, V)
    nats = labels = right = 0
    for s, m in np.ndindex(batch.labels_SM.shape):
        if batch.labels_SM[s, m] >= 0:
            logits = everywhere[s, batch.position_SM[s, m]]
            nats += np.log(np.exp(logits).sum()) - logits[batch.labels_SM[s, m]]
            labels += 1
            right += logits.argmax() == batch.labels_SM[s, m]
    sums = jax.jit(lambda params: masked_sums(model, params, batch, None))(params)
    np.testing.assert_allclose(sums, (nats, labels, right), rtol=1e-5)
    metrics = summarize(sums)
    assert metrics["loss"] == pytest.approx(nats / 4, rel=1e-5)
    assert metrics["mlm_accuracy"] == right / 4


def test_dropout_is_drawn_from_the_key(made):
    _, params, batch = made
    characters = Char2SubwordConfig(**{**vars(CHARACTERS), "dropout": 0.5})
    model = Char2SubwordForMaskedLM(Char2SubwordBertConfig(**{**vars(CONFIG), "characters": characters}))
    nats_of = jax.jit(lambda key: masked_sums(model, params, batch, key).nats)
    nats = [float(nats_of(jax.random.key(seed))) for seed in (0, 0, 1)]
    assert nats[0] == nats[1] != nats[2]


def test_nothing_masked_is_said():
    with pytest.raises(ValueError, match=r"nothing was masked: too little text, or data\.mask_rate too small"):
        summarize(MaskedSums(0.0, 0.0, 0.0))
