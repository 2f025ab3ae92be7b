"""Tests the predictor of CharacterBERT: word vectors, gaps, and what it refuses."""

from __future__ import annotations

import functools
import json
import shutil

import jax
import numpy as np
import pytest
from small_characterbert import WORDS, characterbert

from charlm.families.characterbert.predictor import CharacterBertPredictor
from charlm.families.lookup import units_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.predict import main

TEXTS = ["The birds of a town.", "", "naïve Birds"]
LONGEST = 8  # positions of a text


@pytest.fixture(scope="module")
def predictor():
    return Predictor.from_checkpoint(characterbert())


def states_alone(predictor, words):
    """Returns the last states [L, D] of one text."""
    units, read = _reader(predictor)
    (encoded,) = units.encode_words([words])
    row = units.join(encoded)
    batch = jax.tree.map(lambda x: x[None], units.pack([row], units.widest(1, LONGEST)))
    return np.asarray(read(predictor.pretrained.params, batch))[0, : row.length]


@functools.cache
def _reader(predictor):
    model = predictor.pretrained
    units = units_of(model)
    return units, jax.jit(lambda params, batch: units.states(model.config, params, batch))


def test_words_have_the_last_states_of_their_positions(predictor):
    assert type(predictor) is CharacterBertPredictor
    assert predictor.abilities == ("encode", "fill_mask")
    for text, found in zip(TEXTS, predictor.encode(TEXTS), strict=True):
        assert found.words == [text[a:b] for a, b in found.offsets]
        states = states_alone(predictor, found.words)
        np.testing.assert_allclose(found.vectors_WD, states[1:-1], atol=2e-5)
        np.testing.assert_allclose(found.sentence_D, states.mean(axis=0), atol=2e-5)


def test_vectors_that_were_kept_and_those_that_were_not_are_the_same(predictor):
    kept = predictor.precompute(["birds", "town"])
    assert kept.words >= 2
    other = Predictor.from_checkpoint(characterbert())
    other.cache = None
    for one, two in zip(predictor.encode(TEXTS), other.encode(TEXTS), strict=True):
        np.testing.assert_allclose(one.vectors_WD, two.vectors_WD, atol=1e-5)


def test_gaps_are_filled_with_words_that_the_model_predicts(predictor):
    (fills,) = predictor.fill_mask("the [MASK] of a town", top=99)
    assert sorted(fill.word for fill in fills) == sorted(WORDS)
    assert sum(fill.score for fill in fills) == pytest.approx(1, abs=1e-4)
    assert [fill.score for fill in fills] == sorted((fill.score for fill in fills), reverse=True)
    (short,) = predictor.fill_mask("the [MASK:3] of a town", top=99)
    assert [fill.word for fill in short] == [fill.word for fill in fills if len(fill.word) == 3]
    known = predictor.known_words(["Naïve", "birds", "zebra"])
    assert len(known) == 2
    (both,) = predictor.fill_mask("the [MASK] of a town", known=known)
    assert {fill.word for fill in both} == {"Naïve", "birds"}


def test_what_it_cannot_do_is_said(predictor, tmp_path):
    with pytest.raises(ValueError, match="of the kind CharacterBERT scores no texts: it can encode, fill-mask"):
        predictor.score(["a text"])
    with pytest.raises(ValueError, match="a CharacterBERT never splits a word into pieces; expected 'words'"):
        predictor.encode(["a text"], unit="pieces")
    encoder = Predictor.from_checkpoint(characterbert(), head="encoder")
    with pytest.raises(ValueError, match="this CharacterBERT has no head that predicts words; it can encode"):
        encoder.fill_mask("[MASK]")
    without = tmp_path / "without"
    shutil.copytree(characterbert(), without)
    (without / "mlm_vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"mlm_vocab.txt, the words that this model predicts, is missing; it can enc"):
        Predictor.from_checkpoint(without).fill_mask("[MASK]")
    (without / "mlm_vocab.txt").write_text("one\ntwo\n")
    with pytest.raises(ValueError, match=r"mlm_vocab.txt has 2 words, the model predicts 10"):
        Predictor.from_checkpoint(without)
    with pytest.raises(ValueError, match="reads characters; see vocab"):
        from_pretrained(characterbert()).tokenizer()


def test_the_command_answers(capsys):
    assert main(["fill-mask", f"--checkpoint={characterbert()}", "the [MASK] of a town"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "the [MASK] of a town"
