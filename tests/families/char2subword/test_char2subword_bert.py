"""Tests Char2Subword in front of a BERT: input vectors come from where the batch says, the rest is BERT's own."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from programs import applied, drawn

from charlm.convert.heads import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.families.char2subword.model import (
    Char2SubwordBert,
    Char2SubwordBertConfig,
    Char2SubwordForMaskedLM,
)
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.subword.bert import BertForMaskedLM
from charlm.families.subword.labels import BertForLabels

CHARACTERS = Char2SubwordConfig(char_vocab_size=30, hidden=16, layers=2, heads=4, output=24, char_slots=8)
CONFIG = Char2SubwordBertConfig(
    vocab_size=50, hidden=24, layers=2, heads=2, ffn=48, max_positions=20, epsilon=1e-5, characters=CHARACTERS
)
S, B, L = 2, 2, 5


@pytest.fixture(scope="module")
def batch() -> SpelledBatch:
    rng = np.random.default_rng(0)
    chars = tuple(
        np.where(np.arange(slots) < rng.integers(1, slots + 1, (S, rows, 1)), rng.integers(8, 30, (S, rows, slots)), 0)
        for slots, rows in ((4, 5), (8, 3))
    )
    ids_SBL = np.where(rng.random((S, B, L)) < 0.5, rng.integers(0, 50, (S, B, L)), -1).astype(np.int32)
    mask_SBL = np.arange(L) < rng.integers(2, L + 1, (S, B, 1))
    index_SBL = rng.integers(0, 8, (S, B, L)).astype(np.int32)
    return SpelledBatch(tuple(c.astype(np.uint16) for c in chars), index_SBL, ids_SBL, 0 * ids_SBL, mask_SBL)


@pytest.fixture(scope="module")
def params(batch):
    return drawn(Char2SubwordForMaskedLM(CONFIG), batch, scale=0.2)


def vectors_of(params, batch):
    """The input vectors, position by position."""
    spell = applied(Char2SubwordForMaskedLM(CONFIG), method="spell")
    of_buckets = [np.asarray(spell(params, chars.reshape(-1, chars.shape[-1]))) for chars in batch.chars]
    table_VD = np.asarray(params["bert"]["embed"]["token"]["embedding"])
    found = np.zeros((S * B, L, 24), np.float32)
    for s, b, i in np.ndindex(S, B, L):
        row, index = batch.index_SBL[s, b, i], batch.ids_SBL[s, b, i]
        spelled = of_buckets[0][5 * s + row] if row < 5 else of_buckets[1][3 * s + row - 5]
        found[s * B + b, i] = table_VD[index] if index >= 0 else spelled
    return found


def test_vectors_come_from_the_table_or_from_characters(params, batch):
    found = applied(Char2SubwordForMaskedLM(CONFIG), method="input_vectors")(params, batch)
    np.testing.assert_allclose(found, vectors_of(params, batch), atol=1e-5)


def test_behind_the_vectors_it_is_the_bert_that_was_there(params, batch):
    vectors = vectors_of(params, batch)
    mask = batch.mask_SBL.reshape(S * B, L)
    bert_params = {name: value for name, value in params.items() if name != "char2subword"}
    theirs = applied(BertForMaskedLM(CONFIG))(bert_params, None, mask, embeddings_BLD=vectors)
    ours = applied(Char2SubwordForMaskedLM(CONFIG))(params, batch)
    np.testing.assert_allclose(ours.logits[mask], theirs.logits[mask], atol=1e-4)
    position_SM = np.array([[0, 6], [5, 1]], np.int32)
    at = applied(Char2SubwordForMaskedLM(CONFIG))(params, batch, position_SM).logits
    np.testing.assert_allclose(at, ours.logits.reshape(S, B * L, -1)[[[0], [1]], position_SM], atol=1e-5)


def test_vectors_that_were_kept_give_the_same(params, batch):
    model = Char2SubwordForMaskedLM(CONFIG)
    kept = np.zeros((S * B, L, 24), np.float32)
    vectors = vectors_of(params, batch)
    ids = batch.ids_SBL.reshape(S * B, L)
    kept[ids < 0] = vectors[ids < 0]
    rest = (ids, 0 * ids, batch.mask_SBL.reshape(S * B, L))
    again = applied(model, method="contextualize")(params, kept, *rest)
    np.testing.assert_allclose(again.logits, applied(model)(params, batch).logits, atol=1e-4)
    encoder_params = {name: params[name] for name in ("bert", "char2subword")}
    states = applied(Char2SubwordBert(CONFIG), method="contextualize")(encoder_params, kept, *rest).states_BLD
    np.testing.assert_allclose(states, again.transformer.states_BLD, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (BertForLabels(CONFIG, 3, SEQUENCE_CLASSIFICATION, Char2SubwordBert), (S * B, 3)),
        (BertForLabels(CONFIG, 3, TOKEN_CLASSIFICATION, Char2SubwordBert), (S * B, L, 3)),
        (BertForLabels(CONFIG, 2, QUESTION_ANSWERING, Char2SubwordBert), (S * B, L, 2)),
    ],
)
def test_padding_reaches_no_label(model, shape, batch):
    params = drawn(model, batch)
    logits = applied(model)(params, batch)
    other = batch._replace(ids_SBL=np.where(batch.mask_SBL, batch.ids_SBL, 7))
    again = applied(model)(params, other)
    assert logits.shape == shape
    if len(shape) == 3:
        mask = batch.mask_SBL.reshape(S * B, L)
        logits, again = logits[mask], again[mask]
    np.testing.assert_allclose(logits, again, atol=1e-6)
    assert not np.allclose(logits, 0)


def test_names_of_parameters_are_those_of_bert(batch):
    ours = drawn(BertForLabels(CONFIG, 3, TOKEN_CLASSIFICATION, Char2SubwordBert), batch)
    theirs = drawn(BertForLabels(CONFIG, 3, TOKEN_CLASSIFICATION), np.zeros((1, 2), np.int32))
    assert jax.tree.structure({k: v for k, v in ours.items() if k != "char2subword"}) == jax.tree.structure(theirs)


def test_widths_must_agree():
    with pytest.raises(ValueError, match=r"24 wide, the table's rows 48"):
        Char2SubwordBertConfig(hidden=48, heads=2, characters=CHARACTERS)
    with pytest.raises(ValueError, match=r"mode='half' is not one of full, hybrid"):
        Char2SubwordBertConfig(hidden=24, heads=2, characters=CHARACTERS, mode="half")
