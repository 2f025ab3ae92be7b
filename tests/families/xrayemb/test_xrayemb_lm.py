"""Tests XRayEmb on BERT, RoBERTa and GPT-2: vectors come from where the batch says, the rest is the model's own."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again

from charlm.convert.heads import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.subword.bert import BertForMaskedLM
from charlm.families.subword.gpt2 import GPT2LMHeadModel
from charlm.families.subword.labels import BertForLabels, GPT2ForLabels
from charlm.families.xrayemb import model as lm
from charlm.families.xrayemb.decoder import XRDecoder, XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoderConfig

CHARS = 30
PARTS = {
    "encoder": XREncoderConfig(char_vocab_size=CHARS, char_embedding=5, hidden=6, output=24, char_slots=8),
    "generator": XRDecoderConfig(char_vocab_size=CHARS, char_embedding=5, hidden=6, vector=24, char_slots=8),
}
SIZES = {"vocab_size": 50, "hidden": 24, "layers": 1, "heads": 2, "ffn": 48, "max_positions": 20, "epsilon": 1e-5}
BERT = lm.XRayEmbBertConfig(**SIZES, **PARTS)
ROBERTA = dataclasses.replace(BERT, position_offset=2, pad_id=1, type_vocab=1, pooler=False)
ROFORMER = dataclasses.replace(BERT, position="rotary", pooler=False)
GPT2 = lm.XRayEmbGPT2Config(**SIZES, **PARTS)
S, B, L = 2, 2, 5
LANGUAGE_MODELS = {
    "bert": (lm.XRayEmbForMaskedLM(BERT), BertForMaskedLM(BERT)),
    "roberta": (lm.XRayEmbForMaskedLM(ROBERTA), BertForMaskedLM(ROBERTA)),
    "roformer": (lm.XRayEmbForMaskedLM(ROFORMER), BertForMaskedLM(ROFORMER)),
    "gpt2": (lm.XRayEmbForCausalLM(GPT2), GPT2LMHeadModel(GPT2)),
}
# A RoBERTa is a BERT whose positions begin later; test_convert_xrayemb_backbone.py compares one with what it was.
backbones = pytest.mark.parametrize(
    "backbone", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("roberta", "roformer")), "gpt2"]
)


@pytest.fixture(scope="module")
def batch() -> SpelledBatch:
    rng = np.random.default_rng(0)
    chars = tuple(
        np.where(
            np.arange(slots) < rng.integers(3, slots + 1, (S, rows, 1)), rng.integers(1, CHARS, (S, rows, slots)), 0
        )
        for slots, rows in ((4, 5), (8, 3))
    )
    ids_SBL = np.where(rng.random((S, B, L)) < 0.5, rng.integers(0, 50, (S, B, L)), -1).astype(np.int32)
    mask_SBL = np.arange(L) < rng.integers(2, L + 1, (S, B, 1))
    index_SBL = rng.integers(0, 8, (S, B, L)).astype(np.int32)
    return SpelledBatch(tuple(c.astype(np.uint16) for c in chars), index_SBL, ids_SBL, 0 * ids_SBL, mask_SBL)


def weights(model, *inputs):
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *inputs))["params"]
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: (0.3 * rng.normal(size=x.shape)).astype(np.float32), shapes)


def vectors_of(model, params, batch):
    """The input vectors, position by position."""
    table_VD = params["gpt2" if "gpt2" in params else "bert"]["embed"]["token"]["embedding"]
    spell = jax.jit(lambda chars: model.apply({"params": params}, chars, method="spell"))
    made = [np.stack([spell(chars) for chars in table]) for table in batch.chars]
    found = np.zeros((S * B, L, 24), np.float32)
    for s, b, i in np.ndindex(S, B, L):
        row, index = batch.index_SBL[s, b, i], batch.ids_SBL[s, b, i]
        word = made[0][s, row] if row < 5 else made[1][s, row - 5]
        found[s * B + b, i] = table_VD[index] if index >= 0 else word
    return found


@backbones
def test_behind_the_vectors_it_is_the_model_that_was_there(backbone, batch):
    model, plain = LANGUAGE_MODELS[backbone]
    params = weights(model, batch)
    vectors, mask = vectors_of(model, params, batch), batch.mask_SBL.reshape(S * B, L)
    own = {name: value for name, value in params.items() if name not in ("xr_enc", "xr_dec")}
    theirs = jax.jit(plain.apply)({"params": own}, None, mask, embeddings_BLD=vectors)
    ours = jax.jit(model.apply)({"params": params}, batch)
    np.testing.assert_allclose(ours.logits[mask], theirs.logits[mask], atol=2e-4)
    position_SM = np.array([[0, 6], [5, 1]], np.int32)
    at = jax.jit(model.apply)({"params": params}, batch, position_SM).logits
    np.testing.assert_allclose(at, ours.logits.reshape(S, B * L, -1)[[[0], [1]], position_SM], atol=1e-4)
    kept = np.where(batch.ids_SBL.reshape(S * B, L, 1) < 0, vectors, 0)  # as a cache of words holds them
    rest = (batch.ids_SBL.reshape(S * B, L), np.zeros((S * B, L), np.int32), mask)
    run = jax.jit(lambda params, *rest: model.apply({"params": params}, *rest, method="contextualize"))
    again = run(params, kept, *rest)
    np.testing.assert_allclose(again.logits[mask], ours.logits[mask], atol=2e-4)


@backbones
def test_the_generator_is_beside_it(backbone, batch):
    model, plain = LANGUAGE_MODELS[backbone]
    params = weights(model, batch)
    assert jax.tree.structure({k: v for k, v in params.items() if k not in ("xr_enc", "xr_dec")}) == jax.tree.structure(
        jax.eval_shape(plain.init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"]
    )
    states, chars = np.ones((3, 24), np.float32), np.array(batch.chars[0][0, :3])
    alone = {"params": params["xr_dec"]}
    both = lambda module, name: (
        lambda params: (
            module.apply(params, [states[None]], [chars[None]], method=name),
            module.apply(params, states, max_steps=4, method="generate").ids_UT,
        )
    )
    got = jax.jit(both(model, "write"))({"params": params})
    wanted = jax.jit(both(XRDecoder(PARTS["generator"]), "tables"))(alone)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), got, wanted)
    without = type(model)(dataclasses.replace(model.config, generator=None))
    assert set(params) - set(weights(without, batch)) == {"xr_dec"}


def test_an_encoder_drops_in_training_alone(batch):
    shape = dataclasses.replace(PARTS["encoder"], kind="transformer", heads=2, ffn=8, layers=1, dropout=0.5)
    model = lm.XRayEmbForMaskedLM(dataclasses.replace(BERT, encoder=shape, generator=None))
    params = weights(model, batch)

    @jax.jit
    def vectors(key):
        both = lambda model, batch: [model.table_vectors(batch, quiet) for quiet in (True, False)]
        return model.apply({"params": params}, batch, method=both, rngs={"dropout": key})

    (quiet, one), (again, other) = (vectors(jax.random.key(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(quiet, again)
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (BertForLabels(BERT, 3, SEQUENCE_CLASSIFICATION, lm.XRayEmbBert), (S * B, 3)),
        again(BertForLabels(ROBERTA, 3, TOKEN_CLASSIFICATION, lm.XRayEmbBert), (S * B, L, 3)),
        again(BertForLabels(BERT, 2, QUESTION_ANSWERING, lm.XRayEmbBert), (S * B, L, 2)),
        (GPT2ForLabels(GPT2, 3, SEQUENCE_CLASSIFICATION, lm.XRayEmbGPT2), (S * B, 3)),
        again(GPT2ForLabels(GPT2, 3, TOKEN_CLASSIFICATION, lm.XRayEmbGPT2), (S * B, L, 3)),
        again(GPT2ForLabels(GPT2, 2, QUESTION_ANSWERING, lm.XRayEmbGPT2), (S * B, L, 2)),
    ],
    ids=lambda value: f"{value.encoder.__name__}-{value.kind}" if hasattr(value, "kind") else "",
)
def test_padding_reaches_no_label(model, shape, batch):
    params = weights(model, batch)
    run = jax.jit(lambda batch: model.apply({"params": params}, batch))
    logits, again = run(batch), run(batch._replace(ids_SBL=np.where(batch.mask_SBL, batch.ids_SBL, 7)))
    assert logits.shape == shape
    if len(shape) == 3:
        mask = batch.mask_SBL.reshape(S * B, L)
        logits, again = logits[mask], again[mask]
    np.testing.assert_allclose(logits, again, atol=1e-5)
    other = run(batch._replace(chars=tuple(np.where(c > 1, c - 1, c) for c in batch.chars)))
    assert np.abs(run(batch) - other).max() > 1e-3  # words are read


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 48}, "vectors are 24 wide, the table's rows 48"),
        ({"generator": dataclasses.replace(PARTS["generator"], vector=8)}, "generator reads 8 numbers, states have 24"),
        (
            {"generator": dataclasses.replace(PARTS["generator"], char_vocab_size=9)},
            "char_vocab_size is 30 in the encoder, 9 in the generator",
        ),
    ],
)
@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
def test_parts_that_do_not_fit(config, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **change)
