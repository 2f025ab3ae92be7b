"""Tests what each family has to show: its attention, named after what it reads, for the text that it was given."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from again import again
from programs import applied
from small_char2subword import spelled
from small_characterbert import characterbert
from small_hlm import hlm
from small_xrayemb import xrayemb
from tiny_models import release

from charlm.data.batching import framed
from charlm.data.word_batch import reshape_batch
from charlm.families.family import family
from charlm.families.hlm.config import model_config
from charlm.families.hlm.model import HLM
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.views import AttentionMap
from charlm.families.xrayemb.encoder import XREncoderConfig
from charlm.nn.probes import probed

TEXT = "The cat sat, near birds"
CHARS = {"char_vocab_size": 36, "char_embedding": 8, "hidden": 8, "output": 24, "heads": 2, "ffn": 8, "layers": 2}


def on_xrayemb(pretrained):
    return family("xrayemb").get_predictor().from_pretrained(pretrained)


MADE = {
    "hlm": hlm,
    "hlm, mean": lambda: hlm(aggregation="mean"),
    "bert": lambda: Predictor.from_checkpoint(release("bert")),
    "roberta": lambda: Predictor.from_checkpoint(release("roberta")),
    "gpt2": lambda: Predictor.from_checkpoint(release("gpt2")),
    "charbert": lambda: Predictor.from_checkpoint(release("charbert")),
    "characterbert": lambda: Predictor.from_checkpoint(characterbert()),
    "char2subword": lambda: Predictor.from_checkpoint(spelled()),
    "char2subword, full": lambda: Predictor.from_checkpoint(spelled(mode="full")),
    "xrayemb": lambda: on_xrayemb(xrayemb()),
    "xrayemb, transformer": lambda: on_xrayemb(xrayemb(encoder=XREncoderConfig(kind="transformer", **CHARS))),
    "xrayemb on gpt2": lambda: on_xrayemb(xrayemb("gpt2")),
}
BYTE_LEVEL = ("roberta", "gpt2", "xrayemb on gpt2")
INSIDE = ("hlm", "hlm, mean", "char2subword", "char2subword, full", "xrayemb, transformer")


SIMILAR = ("hlm, mean", "roberta", "char2subword, full", "xrayemb, transformer")  # to the one before


@pytest.fixture(scope="module", params=[again(name) if name in SIMILAR else name for name in MADE])
def shown(request):
    predictor = MADE[request.param]()
    return request.param, predictor, predictor.views(TEXT)


def test_what_is_read_adds_up(shown):
    name, _, seen = shown
    assert (seen.text, seen.left) == (TEXT, 0)
    assert any(view.inside for view in seen.views) == (name in INSIDE)
    for view in seen.views:
        sizes = {one.weights_LHQN.shape[:2] for one in view.maps}
        assert len(sizes) == 1, "all maps of a view have as many layers and heads"
        for one in view.maps:
            assert one.weights_LHQN.min() >= 0
            np.testing.assert_allclose(one.weights_LHQN.sum(axis=-1), 1, atol=1e-5)


def test_the_text_is_named(shown):
    *_, between = shown[2].views
    (whole,) = between.maps
    said = "".join(name.removeprefix("##") for name in whole.columns if name[:1] not in "[<" or name == "[UNK]")
    assert whole.readers == whole.columns
    assert said.lower().replace("[unk]", "").replace("␣", "") in TEXT.replace(" ", "").lower()
    assert len(whole.columns) >= 5


def test_words_that_are_left_out_are_not_read(shown):
    _, predictor, _ = shown
    less = predictor.views(TEXT + " of a dog in every town", most=2)
    assert 0 < less.read <= 2, "words are not cut"
    assert less.left >= 9
    assert TEXT.startswith(less.text)
    again = predictor.views(less.text)
    for ours, theirs in zip(less.views, again.views, strict=False):
        for one, other in zip(ours.maps, theirs.maps, strict=True):
            assert one.columns == other.columns
            np.testing.assert_allclose(one.weights_LHQN, other.weights_LHQN, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "most", "message"),
    [
        ("", 8, "the text has no words: there is nothing to show"),
        (" \n", 8, "the text has no words"),
        (["the cat"], 8, "show takes one text, got list"),
        ("the cat", 0, "most=0: expected at least 1"),
    ],
)
def test_what_cannot_be_shown_is_refused(shown, text, most, message):
    name, predictor, _ = shown
    if text == " \n" and name in BYTE_LEVEL:
        text = ""  # white space is a piece there
    with pytest.raises(ValueError, match=message):
        predictor.views(text, most)


def test_a_long_text_is_read_as_far_as_the_model_goes(shown):
    _, predictor, _ = shown
    seen = predictor.views("cat " * 200, most=1000)
    assert 4 < seen.read < 50
    assert len(seen.views[-1].maps[0].columns) <= 42


def test_hlm_shows_what_its_whole_model_computes():
    predictor = hlm()
    seen = predictor.views(TEXT)
    inside, between = seen.views
    words = ["The", "cat", "sat", ",", "near", "birds"]
    batch = reshape_batch(framed(predictor._rows(words)).chars_WC[None])
    run = lambda p: probed(HLM(model_config(predictor.config)), p, batch)[1]
    stacks = jax.jit(run)(predictor._params["hlm"])
    theirs = np.stack([layer[0] for layer in stacks["inter_word"]])
    np.testing.assert_allclose(between.maps[0].weights_LHQN, theirs, atol=1e-5)
    assert between.maps[0].columns == ("[CLS]", *words, "[SEP]")
    assert [one.title for one in inside.maps] == words
    near = inside.maps[4]
    assert (near.readers, near.columns) == (("[W]",), ("[W]", "n", "e", "a", "r"))
    for layer, theirs in enumerate(stacks["intra_word"]):
        np.testing.assert_allclose(near.weights_LHQN[layer, :, 0], theirs[5, :, 0, :5], atol=1e-5)
    assert hlm(aggregation="mean").views("near").views[0].maps[0].readers == ("n", "e", "a", "r")


# A RoBERTa is a BERT whose positions begin later, which the tests of the model have.
@pytest.mark.parametrize("name", ["bert", pytest.param("roberta", marks=pytest.mark.slow), "gpt2"])
def test_subword_models_show_what_they_return(name):
    pretrained = from_pretrained(release(name))
    seen = Predictor.from_checkpoint(release(name)).views(TEXT)
    ids_1L = np.array([pretrained.tokenizer().encode(TEXT).ids])
    output = applied(pretrained.model, return_attention=True)(pretrained.params, ids_1L)
    theirs = np.stack([layer[0] for layer in output.transformer.attention])
    np.testing.assert_allclose(seen.views[0].maps[0].weights_LHQN, theirs, atol=1e-5)
    sees_later = bool(np.triu(theirs[0, 0], 1).any())
    assert sees_later == (name != "gpt2")
    assert ("before it" in seen.views[0].about) == (name == "gpt2")


def test_both_channels_of_charbert_are_shown():
    pretrained = from_pretrained(release("charbert"))
    bert = {name: part for name, part in pretrained.params["charbert"].items() if name != "char"}
    chars = jax.tree.map(lambda x: 2 * x, pretrained.params["charbert"]["char"])
    params = pretrained.params | {"charbert": bert | {"char": chars}}
    kind = family("charbert").get_predictor()
    ours, theirs = (kind(one).views(TEXT).views for one in (pretrained, dataclasses.replace(pretrained, params=params)))
    first = lambda view: view.maps[0].weights_LHQN[0]  # of the first layer: before the channels meet
    assert [view.title.rpartition(" ")[2] for view in ours] == ["tokens", "characters"]
    np.testing.assert_allclose(first(ours[0]), first(theirs[0]), atol=1e-6)
    assert not np.allclose(first(ours[1]), first(theirs[1]), atol=1e-3)


def test_char2subword_shows_the_words_that_it_spells():
    hybrid, full = (MADE[name]() for name in ("char2subword", "char2subword, full"))
    inside, _ = full.views(TEXT).views
    assert [one.title for one in inside.maps] == ["The", "cat", "sat", ",", "near", "birds"]
    birds = inside.maps[-1]
    assert "".join(birds.columns) == "##birds"
    np.testing.assert_allclose(birds.weights_LHQN, full.attention("birds").weights_LHCC, atol=1e-5)
    some, _ = hybrid.views(TEXT).views
    assert 0 < len(some.maps) < 6
    assert f"{6 - len(some.maps)} of 6 words are not spelled" in some.about


def test_xrayemb_shows_the_words_that_its_transformer_reads():
    predictor = MADE["xrayemb, transformer"]()
    inside, between = predictor.views(TEXT).views
    assert all(one.columns == ("<e>", *one.title, "<e>") for one in inside.maps)
    assert {one.title.lower() for one in inside.maps} <= {name.lower() for name in between.maps[0].columns}


def test_a_family_without_views_says_so():
    class Other(type(hlm())):
        views = Predictor.views

    other = Other.__new__(Other)
    other.name = "Mine"
    with pytest.raises(ValueError, match="a model of the kind Mine has nothing to show"):
        other.views(TEXT)


def test_a_map_gives_single_layers_and_heads_or_means():
    weights = np.random.default_rng(0).random((2, 3, 1, 4), np.float32)
    one = AttentionMap(("[W]",), tuple("cats"), weights)
    np.testing.assert_allclose(one.chosen(1, 2), weights[1, 2])
    np.testing.assert_allclose(one.chosen(0), weights[0].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(one.chosen(head=1), weights[:, 1].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(one.chosen(), weights.mean(axis=(0, 1)), rtol=1e-6)
    with pytest.raises(ValueError, match="layer=2: expected 0 to 1"):
        one.chosen(2)
    with pytest.raises(ValueError, match="head=-1: expected 0 to 2"):
        one.chosen(head=-1)
    with pytest.raises(ValueError, match=r"weights are \(2, 3, 1, 4\), expected"):
        AttentionMap(("[W]",), tuple("cat"), weights)
