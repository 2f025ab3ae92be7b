"""Tests the predictor of XRayEmb: states of pieces and whole words, cached vectors, gaps, and what it refuses."""

from __future__ import annotations

import functools
import json

import jax
import numpy as np
import pytest
from small_xrayemb import xrayemb
from tiny_models import POSITIONS

from charlm.convert.model import Model
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb.chars import word_rows
from charlm.families.xrayemb.conversion import XRayEmbConverter, chars_of
from charlm.families.xrayemb.model import XRayEmbGPT2Config
from charlm.families.xrayemb.predictor import XRayEmbPredictor
from charlm.predict import main
from charlm.text.words import get_splitter

NOISE = 2e-5
TEXTS = ["Tokenizing naïve words, unbelievably!", "", "the birds", "don't größte 今天 x", "birds"]
BACKBONES = ("bert", "roberta", "roformer", "gpt2")


@functools.cache
def predictor_of(backbone, policy="all_multi"):
    return XRayEmbPredictor(xrayemb(backbone), policy=policy)


@functools.cache
def _run(backbone):
    model = xrayemb(backbone)

    def run(params, batch):
        output = model.model.apply({"params": params}, batch)
        return output.transformer.states_BLD[0], jax.nn.log_softmax(output.logits[0])

    return jax.jit(run)


def states_alone(backbone, items):
    """Returns the last states [L, D] and log-probabilities [L, V] of ids and words, read alone and by the model."""
    model, L = xrayemb(backbone), len(items)
    chars_1UC = np.zeros((1, POSITIONS, 22), np.uint16)
    ids, index, mask = (np.zeros((1, 1, POSITIONS), dtype) for dtype in (np.int32, np.int32, bool))
    for n, item in enumerate(items):
        mask[0, 0, n] = True
        ids[0, 0, n] = -1 if isinstance(item, str) else item
        if isinstance(item, str):
            chars_1UC[0, n], index[0, 0, n] = word_rows([item], chars_of(model))[0], n
    states, log_probs = _run(backbone)(model.params, SpelledBatch((chars_1UC,), index, ids, np.zeros_like(ids), mask))
    return np.asarray(states)[:L], np.asarray(log_probs)[:L]


def read(predictor, text):
    """Returns ids and words of a text with special tokens, as the policy has them, and the inner ones' characters."""
    found = predictor._units.collapse(predictor.tokenizer.encode(text), [text])
    inner = [n for n, special in enumerate(found.special) if not special]
    return found.items, inner, [found.offsets[n] for n in inner]


@pytest.mark.parametrize("backbone", BACKBONES)
def test_states_are_those_of_pieces_and_whole_words(backbone):
    predictor = predictor_of(backbone)
    spelled = 0
    for text, one, two in zip(TEXTS, predictor.encode(TEXTS, unit="pieces"), predictor.encode(TEXTS), strict=True):
        items, inner, offsets = read(predictor, text)
        spelled += sum(isinstance(item, str) for item in items)
        states, _ = states_alone(backbone, items) if items else (np.zeros((0, 24)), None)
        assert one.offsets == offsets
        assert one.words == [
            text[a:b].strip() if isinstance(items[n], str) else predictor.tokenizer.token(items[n])
            for n, (a, b) in zip(inner, offsets, strict=True)
        ]
        np.testing.assert_allclose(one.vectors_WD, states[inner].reshape(-1, 24), atol=NOISE)
        if items:
            np.testing.assert_allclose(one.sentence_D, states.mean(axis=0), atol=NOISE)
        assert two.words == [text[a:b] for a, b in two.offsets]
        assert set(two.offsets) <= set(get_splitter("rules", "en").spans(text))
        for (a, b), vector in zip(two.offsets, two.vectors_WD, strict=True):
            of = [n for n, (s, e) in enumerate(offsets) if s < b and e > a]
            np.testing.assert_allclose(vector, states[inner][of].mean(axis=0), atol=NOISE)
    assert spelled > 3


def test_what_is_kept_changes_nothing():
    predictor = XRayEmbPredictor(xrayemb("bert"))
    first, second = predictor.encode(TEXTS), predictor.encode(TEXTS[::-1], batch_size=1)[::-1]
    stats = predictor.cache.stats
    assert stats.hits >= stats.words > 0
    assert len(predictor._units.spellings) == 0  # numbers of words are those of a call
    assert predictor._splits
    predictor.cache = None
    assert not predictor._splits
    for one, two, bare in zip(first, second, predictor.encode(TEXTS), strict=True):
        np.testing.assert_allclose(one.vectors_WD, bare.vectors_WD, atol=1e-5)
        np.testing.assert_allclose(two.vectors_WD, bare.vectors_WD, atol=1e-5)
    with pytest.raises(ValueError, match="this predictor has no cache"):
        predictor.precompute(["a"])


def test_words_that_were_computed_before_are_there():
    predictor = XRayEmbPredictor(xrayemb("bert"))
    words = [text[a:b] for text in TEXTS for a, b in get_splitter("rules", "en").spans(text)]
    assert predictor.precompute(words).words > 0
    predictor.encode(TEXTS)
    assert (predictor.cache.stats.misses, predictor.cache.stats.hit_rate) == (0, 1.0)
    with pytest.raises(ValueError, match="takes a list of words"):
        predictor.precompute("birds")


def test_long_texts_are_read_in_fewer_windows():
    predictor, text = predictor_of("bert"), " ".join(["unbelievably"] * (POSITIONS - 2))
    (whole,) = predictor.encode([text], unit="pieces")
    assert whole.words == ["unbelievably"] * (POSITIONS - 2)
    items, inner, _ = read(predictor, text)
    assert len(items) == POSITIONS < len(predictor.tokenizer.encode(text).ids)
    np.testing.assert_allclose(whole.vectors_WD, states_alone("bert", items)[0][inner], atol=NOISE)


@pytest.mark.parametrize("backbone", ["bert", "roberta"])
def test_gaps_between_whole_words(backbone):
    predictor = predictor_of(backbone)
    tokenizer, mask = predictor.tokenizer, predictor.tokenizer.special.mask
    text = f"unbelievably naïve {tokenizer.token(mask)} run"
    items, _, _ = read(predictor, text)
    assert sum(isinstance(item, str) for item in items) == 2
    _, log_probs = states_alone(backbone, items)
    row = log_probs[items.index(mask)]
    best = sorted((i for i in tokenizer.ids() if tokenizer.surface(i)), key=lambda i: -row[i])[:4]
    for asked in (predictor.fill_mask("unbelievably naïve [MASK] run", top=4), predictor.fill_mask(text, top=4)):
        assert [fill.log_prob for fill in asked[0]] == pytest.approx([row[i] for i in best], abs=1e-4)
    (fills,) = predictor.fill_mask("unbelievably [MASK] run", known=["the", "unbelievable"], top=3)
    assert {fill.word for fill in fills} == {"the", "unbelievable"}


def test_the_command_line_chooses_the_policy(tmp_path, capsys):
    model = xrayemb("bert")
    metadata = {**model.metadata, "model": config_to_dict(model.config)}
    XRayEmbConverter().save(Model(model.params, metadata, model.folder, model.folder), tmp_path / "xray")
    text = TEXTS[0]
    for options, policy in (([], "all_multi"), (["--policy=none"], "none"), (["--policy=all"], "all")):
        assert main(["encode", f"--checkpoint={tmp_path / 'xray'}", "--unit=pieces", *options, text]) == 0
        found = [piece["piece"] for piece in json.loads(capsys.readouterr().out)["pieces"]]
        assert found == predictor_of("bert", policy).encode([text], unit="pieces")[0].words
    fill = ["fill-mask", f"--checkpoint={tmp_path / 'xray'}", "--policy=none", "unbelievably naïve [MASK] run"]
    assert main(fill) == 0
    best = json.loads(capsys.readouterr().out)["fills"][0][0]
    assert best["score"] == pytest.approx(predictor_of("bert", "none").fill_mask(fill[-1])[0][0].score, abs=1e-4)
    assert main(["encode", f"--checkpoint={tmp_path / 'xray'}", "--policy=multi_all", text]) == 1
    assert "error: --policy: policy 'multi_all' is not one of none, all, " in capsys.readouterr().err
    assert main(["encode", f"--checkpoint={model.folder}", "--policy=none", text]) == 1
    said = f"--policy=none: an XRayEmb reads words as characters, {model.folder} is a bert"
    assert capsys.readouterr().err == f"error: {said}\n"


def test_what_it_can_do_and_what_not():
    assert predictor_of("bert").abilities == ("encode", "fill_mask")
    causal = predictor_of("gpt2")
    assert isinstance(causal.config, XRayEmbGPT2Config)
    assert causal.abilities == ("encode",)
    with pytest.raises(ValueError, match="a model of the kind XRayEmb scores no texts: it can encode"):
        causal.score(["a"])
    for head in ("encoder", "token_classification"):
        one = XRayEmbPredictor(xrayemb("bert", head))
        assert one.abilities == ("encode",)
        assert one.encode(["birds"])[0].vectors_WD.shape == (1, 24)
    with pytest.raises(ValueError, match="did you mean all_multi"):
        XRayEmbPredictor(xrayemb("bert"), policy="multi_all")
