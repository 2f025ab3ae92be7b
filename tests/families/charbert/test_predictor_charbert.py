"""Tests the predictor of CharBERT: both channels, words for gaps, and characters of unknown pieces."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from programs import applied
from tiny_models import POSITIONS, release

from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.conversion import symbols_of
from charlm.families.charbert.predictor import CharBertPredictor
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.predictor import SubwordPredictor

TEXTS = ["Tokenizing words, unbelievably!", "", "birds", "größte 今天 x"]


@pytest.fixture(scope="module")
def predictor():
    return Predictor.from_checkpoint(release("charbert"))


def run_alone(predictor, text):
    """Returns the output of the model for one text, laid out by hand."""
    item = predictor.tokenizer.encode(text)
    ids = np.array([item.ids], np.int32)
    unknown = {
        i: text[slice(*item.offsets[i])] for i in range(ids.size) if ids[0, i] == predictor.tokenizer.special.unk
    }
    chars = PieceChars(predictor.tokenizer, symbols_of(predictor.pretrained)).row(ids[0], slots=200, texts=unknown)
    batch = CharBertBatch(ids, None, None, *(x[None] for x in chars))
    model, params = predictor.pretrained.model, predictor.pretrained.params
    return item, applied(model)(params, batch)


def test_a_checkpoint_is_its_own_kind_of_predictor(predictor):
    assert type(predictor) is CharBertPredictor
    assert isinstance(SubwordPredictor.from_checkpoint(release("charbert")), CharBertPredictor)
    assert (predictor.name, predictor.abilities) == ("CharBERT", ("encode", "fill_mask"))
    with pytest.raises(ValueError, match="a model of the kind CharBERT generates no text"):
        predictor.generate(["a"])


def test_vectors_are_both_channels(predictor):
    found = predictor.encode(TEXTS, unit="pieces")
    for text, encoding in zip(TEXTS, found, strict=True):
        _, output = run_alone(predictor, text)
        states = np.asarray(output.states.both_BLE[0])
        np.testing.assert_allclose(encoding.vectors_WD, states[1:-1], atol=2e-5)
        np.testing.assert_allclose(encoding.sentence_D, states.mean(axis=0), atol=2e-5)
        assert encoding.vectors_WD.shape[1] == 2 * predictor.config.hidden
    long = " ".join(TEXTS * 8)
    (whole,) = predictor.encode([long])
    assert whole.offsets[-1] == (len(long) - 1, len(long))
    assert len(predictor.tokenizer.encode(long).ids) > POSITIONS


def test_characters_of_unknown_pieces_are_read(predictor):
    one, like, longer = predictor.encode(["birds ☃", "birds ☂", "birds ☃☃"], unit="pieces")
    unknown = predictor.tokenizer.token(predictor.tokenizer.special.unk)
    assert one.words[-1] == like.words[-1] == longer.words[-1] == unknown
    np.testing.assert_allclose(one.vectors_WD, like.vectors_WD, atol=1e-6)  # two characters as unknown as each other
    assert np.abs(one.vectors_WD - longer.vectors_WD).max() > 1e-2


def test_gaps_are_filled_from_the_token_channel(predictor):
    text = "the [MASK] word"
    (fills,) = predictor.fill_mask(text, top=3)
    item, output = run_alone(predictor, text)
    place = item.ids.index(predictor.tokenizer.special.mask)
    logits = np.asarray(output.mlm_logits_SMV[0, place], np.float64)
    log_probs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    for fill in fills:
        index = predictor.tokenizer.id(fill.word)
        assert fill.log_prob == pytest.approx(log_probs[index], abs=1e-4)
    assert fills == sorted(fills, key=lambda fill: -fill.log_prob)
    assert len(predictor.fill_mask("[MASK:4] [MASK]", known=["the", "word", "words"])) == 2


def test_models_that_cannot_read_are_refused_in_a_line():
    bare = from_pretrained(release("charbert"))
    without = {name: value for name, value in bare.metadata.items() if name != "symbols"}
    with pytest.raises(ValueError, match="the characters of this model are not known"):
        CharBertPredictor(dataclasses.replace(bare, metadata=without))
    encoder = Predictor.from_checkpoint(release("charbert"), head="encoder")
    assert encoder.abilities == ("encode",)
    with pytest.raises(ValueError, match="this CharBERT has no head that predicts words"):
        encoder.fill_mask("[MASK]")


def test_released_weights_read_padding_as_the_authors_code_does(predictor):
    model = from_pretrained(release("charbert"), compat_reference=True)
    (clean,), (released,) = (kind.encode(["birds"]) for kind in (predictor, CharBertPredictor(model)))
    assert np.abs(clean.vectors_WD - released.vectors_WD).max() > 1e-3
    item = predictor.tokenizer.encode("birds")
    chars = PieceChars(predictor.tokenizer, symbols_of(model), compat_reference=True).row(np.array(item.ids), 16)
    ids, mask = np.zeros((1, 16), np.int32), np.arange(16)[None] < len(item.ids)
    ids[0, : len(item.ids)] = item.ids
    batch = CharBertBatch(ids, None, mask, *(x[None] for x in chars))
    states = np.asarray(applied(model.model)(model.params, batch).states.both_BLE[0])
    np.testing.assert_allclose(released.sentence_D, states[: len(item.ids)].mean(axis=0), atol=2e-5)
