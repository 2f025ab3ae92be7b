"""Tests the predictor of BERT, RoBERTa and GPT-2: vectors do not depend on other texts; clear refusals."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import re

import jax
import numpy as np
import pytest
from hf_reference import FILE, SENTENCES, reference
from tiny_models import FAMILIES, POSITIONS, release, run_alone

from charlm.families.hlm.predictor import HLMPredictor
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.subword.respelled import BertPredictor
from charlm.families.windows import text_of, windows
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import get_splitter

NOISE = 2e-5
TEXTS = [
    "Tokenizing naïve words, unbelievably!",
    "birds",
    "",
    "don't  we'll \t(a word) is. 3.14\n",
    "größte 今天 x",
    " ",
]
LONG = " ".join(["unbelievable birds, running naïve storie"] * 12)


@pytest.fixture(scope="module", params=FAMILIES)
def predictor(request):
    return Predictor.from_checkpoint(release(request.param))


@pytest.fixture(scope="module")
def bert():
    return Predictor.from_checkpoint(release("bert"))


def golden(predictor):
    return json.loads(FILE.read_text(encoding="utf-8"))[predictor.pretrained.family]


def assert_same(got, want):
    assert (got.words, got.offsets) == (want.words, want.offsets)
    np.testing.assert_allclose(got.vectors_WD, want.vectors_WD, atol=NOISE)
    np.testing.assert_allclose(got.sentence_D, want.sentence_D, atol=NOISE)


# ---- Vectors ----


def test_pieces_have_the_last_states_of_the_model(predictor):
    for text, encoding in zip(TEXTS, predictor.encode(TEXTS, unit="pieces"), strict=True):
        item = predictor.tokenizer.encode(text)
        inner = [place for place, special in enumerate(item.special) if not special]
        assert encoding.words == [predictor.tokenizer.token(item.ids[place]) for place in inner]
        assert encoding.offsets == [item.offsets[place] for place in inner]
        if not item.ids:
            assert (predictor.name, encoding.vectors_WD.shape) == ("GPT-2", (0, 24))
            np.testing.assert_array_equal(encoding.sentence_D, np.zeros(24))
            continue
        states, _ = run_alone(predictor.pretrained.family, item.ids)
        np.testing.assert_allclose(encoding.vectors_WD, states[~np.array(item.special)], atol=NOISE)
        np.testing.assert_allclose(encoding.sentence_D, states.mean(axis=0), atol=NOISE)
        assert encoding.vectors_WD.dtype == encoding.sentence_D.dtype == np.float32


def test_a_word_has_the_mean_of_its_pieces(predictor):
    for text, words, pieces in zip(TEXTS, predictor.encode(TEXTS), predictor.encode(TEXTS, unit="pieces"), strict=True):
        assert words.offsets == get_splitter("rules", "en").spans(text)
        assert words.words == [text[a:b] for a, b in words.offsets]
        assert words.vectors_WD.shape == (len(words.words), 24)
        for (start, end), vector_D in zip(words.offsets, words.vectors_WD, strict=True):
            touching = [n for n, (a, b) in enumerate(pieces.offsets) if a < end and b > start]
            np.testing.assert_allclose(vector_D, pieces.vectors_WD[touching].mean(axis=0), atol=NOISE)
        np.testing.assert_array_equal(words.sentence_D, pieces.sentence_D)


def test_what_the_tokenizer_drops_is_no_word(bert):
    (encoding,) = bert.encode(["a \x01 birds"])
    assert (encoding.words, encoding.offsets) == (["a", "birds"], [(0, 1), (4, 9)])


def test_sentences_are_pooled_as_transformers_states_are(predictor):
    pooled = golden(predictor)["pooled"]
    assert set(pooled) == {text for text in SENTENCES if text or predictor.name != "GPT-2"}
    for text, encoding in zip(pooled, predictor.encode(pooled), strict=True):
        np.testing.assert_allclose(encoding.sentence_D, pooled[text], atol=NOISE)


@pytest.mark.torch
@pytest.mark.parametrize("family", FAMILIES)
def test_the_golden_file_is_what_transformers_computes(family):
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    found = json.loads(json.dumps(reference(family, release(family))))
    want = json.loads(FILE.read_text(encoding="utf-8"))[family]
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    assert jax.tree.structure(found) == jax.tree.structure(want)


def test_vectors_do_not_depend_on_what_else_is_encoded(predictor):
    together = predictor.encode([*TEXTS, LONG])
    for text, want in zip([*TEXTS, LONG], together, strict=True):
        assert_same(predictor.encode([text])[0], want)
    for got, want in zip(predictor.encode([LONG, *TEXTS[::-1]], batch_size=3)[::-1], together, strict=True):
        assert_same(got, want)
    assert predictor.encode([]) == []
    assert_same(next(iter(predictor.encode(text for text in TEXTS))), together[0])


def test_long_texts_are_read_a_few_at_a_time(predictor, monkeypatch):
    together = predictor.encode([LONG, *TEXTS])
    shapes = []
    read = lambda params, *inputs: shapes.append(jax.tree.leaves(inputs)[0].shape) or predictor._states(params, *inputs)
    alone = copy.copy(predictor)
    alone._states = read
    monkeypatch.setattr("charlm.families.windows.CPU_POSITIONS", 2 * POSITIONS)
    for got, want in zip(alone.encode([LONG, *TEXTS]), together, strict=True):
        assert_same(got, want)
    assert len(shapes) > 2
    assert max(rows * length for rows, length in shapes) <= 2 * POSITIONS


def test_vectors_depend_on_what_stands_before(predictor):
    one, two = predictor.encode(["The birds", "She birds"])
    assert np.abs(one.vectors_WD[1] - two.vectors_WD[1]).max() > 0.01


def test_a_long_text_is_read_in_windows_between_words(predictor):
    pieces = text_of(predictor.tokenizer.encode(LONG))
    parts = windows(pieces, POSITIONS)
    assert len(parts) > 3
    assert max(len(part.ids) for part in parts) <= POSITIONS
    cuts = [0, *(pieces.offsets[part.start - 1][1] for part in parts[1:]), len(LONG)]  # spaces go with what follows
    texts = [LONG[a:b] for a, b in itertools.pairwise(cuts)]
    (whole,) = predictor.encode([LONG])
    alone = predictor.encode(texts)
    assert whole.words == [word for encoding in alone for word in encoding.words]
    np.testing.assert_allclose(whole.vectors_WD, np.concatenate([e.vectors_WD for e in alone]), atol=NOISE)
    counts = [len(part.ids) for part in parts]
    mean = np.average([encoding.sentence_D for encoding in alone], axis=0, weights=counts)
    np.testing.assert_allclose(whole.sentence_D, mean, atol=NOISE)


def test_all_positions_that_the_model_has_are_used(predictor):
    """RoBERTa's table has rows that are no positions."""
    word = "e" * 95
    pieces = text_of(predictor.tokenizer.encode(word))
    assert len(windows(pieces, predictor._longest)[0].ids) == POSITIONS
    (encoding,) = predictor.encode([word], unit="pieces")
    assert np.isfinite(encoding.vectors_WD).all()
    assert len(encoding.words) == len(pieces.ids) > POSITIONS


def test_few_programs_are_compiled(predictor):
    before = predictor._states._cache_size()
    for n in range(1, 12):
        predictor.encode(["birds " * n] * (n % 2 + 3), batch_size=4)
    assert predictor._states._cache_size() - before <= 5  # a row of up to 16, 24, 32 or 40 positions, two of 40


# ---- What does not go ----


@pytest.mark.parametrize(
    ("family", "ability", "message"),
    [
        ("gpt2", "fill_mask", "a model of the kind GPT-2 fills no gaps: it can encode, score, generate"),
        ("bert", "score", "a model of the kind BERT scores no texts: it can encode, fill-mask"),
        ("roberta", "generate", "a model of the kind RoBERTa generates no text: it can encode, fill-mask"),
        ("bert encoder", "fill_mask", "this BERT has no head that predicts words; it can encode"),
        ("bert encoder", "generate", "a model of the kind BERT generates no text: it can encode"),
        ("gpt2", "known_words", "a model of the kind GPT-2 fills no gaps"),
    ],
)
def test_what_a_model_cannot_do_is_said(family, ability, message):
    family, _, head = family.partition(" ")
    predictor = Predictor.from_checkpoint(release(family), **({"head": head} if head else {}))
    with pytest.raises(ValueError, match=message):
        getattr(predictor, ability)("a [MASK]" if ability == "fill_mask" else ["a"])


def test_an_encoder_alone_gives_the_same_vectors(bert):
    encoder = Predictor.from_checkpoint(release("bert"), head="encoder")
    assert (encoder.abilities, bert.abilities) == (("encode",), ("encode", "fill_mask"))
    assert_same(encoder.encode(TEXTS)[0], bert.encode(TEXTS)[0])


def test_classes_load_their_own_models_only(bert):
    assert type(bert) is BertPredictor
    assert type(SubwordPredictor.from_checkpoint(release("bert"))) is BertPredictor
    assert type(SubwordPredictor.from_checkpoint(release("roberta"))) is SubwordPredictor
    with pytest.raises(ValueError, match="expected a model for HLMPredictor, got one of the family bert"):
        HLMPredictor.from_checkpoint(release("bert"))


def test_a_tokenizer_of_another_model_is_refused(bert):
    tokenizer = SubwordTokenizer.load(release("roberta"))
    message = re.escape("the tokenizer has ids up to 421, the model rows for 420: they do not belong together")
    with pytest.raises(ValueError, match=message):
        SubwordPredictor(bert.pretrained, tokenizer)
    nowhere = dataclasses.replace(from_pretrained(release("bert")), folder=FILE.parent)
    with pytest.raises(ValueError, match="expected a tokenizer"):
        SubwordPredictor(nowhere)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one text",), r"write \[text\]"),
        ((["a"], 0), "a positive batch_size"),
        ((["a"], 8, "letters"), "unit='letters': expected 'words' or 'pieces'"),
        (([3],), "expected texts"),
    ],
)
def test_encode_refuses(bert, arguments, message):
    with pytest.raises(ValueError, match=message):
        bert.encode(*arguments)
