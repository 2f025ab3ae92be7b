"""Tests gated mode: pieces as the tokenizer cuts them, spellings beside those of split words, and the gate."""

from __future__ import annotations

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_char2subword import SLOTS, spelled
from tiny_models import release

from charlm.families.char2subword.beside import GatedUnits, SpellingsBeside
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.char2subword.predictor import GatedPredictor
from charlm.families.char2subword.spelling import spell_rows
from charlm.families.family import family
from charlm.families.lookup import units_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.text.chars import CharVocab

TEXTS = ["The birds sang unbelievably in teh trees.", "naïve größte 今天!", "", "the the ."]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def model(request):
    return from_pretrained(spelled(request.param, mode="gated"))


def shut(model):
    """Returns the model with the gate of a fresh module."""
    module = model.params["char2subword"]
    gate = jax.tree.map(jnp.zeros_like, module["gate"])
    return dataclasses.replace(model, params={**model.params, "char2subword": {**module, "gate": gate}})


# ---- The gate ----


def test_the_gate_moves_each_dimension_by_itself():
    config = Char2SubwordConfig(char_vocab_size=9, hidden=4, layers=1, heads=1, output=3, char_slots=4, gate=True)
    module, rng = Char2Subword(config), np.random.default_rng(0)
    rows, vectors = rng.normal(size=(2, 1, 2, 3)).astype(np.float32)
    dense = lambda *shape: {"kernel": rng.normal(size=shape), "bias": rng.normal(size=shape[1])}
    params = {"gate_in": dense(6, 4), "gate": dense(4, 3)}
    found = module.apply({"params": params}, rows, vectors, method="beside")
    hidden = np.concatenate([rows, vectors], -1) @ params["gate_in"]["kernel"] + params["gate_in"]["bias"]
    hidden = hidden * np.vectorize(lambda x: (1 + math.erf(x / 2**0.5)) / 2)(hidden)
    gate = np.tanh(hidden @ params["gate"]["kernel"] + params["gate"]["bias"])
    np.testing.assert_allclose(found, rows + gate * (vectors - rows), rtol=1e-5, atol=1e-6)


def test_a_fresh_gate_leaves_rows_as_they_are_and_learns_first():
    config = Char2SubwordConfig(char_vocab_size=9, hidden=4, layers=1, heads=1, output=3, char_slots=4, gate=True)
    module, rng = Char2Subword(config), np.random.default_rng(0)
    rows, vectors = rng.normal(size=(2, 1, 2, 3)).astype(np.float32)
    params = module.init(jax.random.key(0), rows, vectors, method="beside")["params"]
    beside = lambda params, vectors: module.apply({"params": params}, rows, vectors, method="beside")
    assert (np.asarray(beside(params, vectors)) == rows).all()
    of_gate, of_vectors = jax.grad(lambda *x: (beside(*x) ** 2).sum(), argnums=(0, 1))(params, vectors)
    assert np.abs(of_gate["gate"]["kernel"]).min() > 0
    assert not np.asarray(of_vectors).any()


def test_a_mode_without_a_gate_is_refused():
    with pytest.raises(ValueError, match=r"mode='gated': this module has no gate; a run of configs/align\.py"):
        from_pretrained(spelled("bert"), mode="gated")


# ---- Reading ----


def test_positions_are_the_pieces_of_the_tokenizer(model):
    units, tokenizer = units_of(model), model.tokenizer()
    assert type(units) is GatedUnits
    for text, encoded in zip(TEXTS, units.encode(TEXTS), strict=True):
        item = tokenizer.encode(text)
        inner = [n for n, special in enumerate(item.special) if not special]
        ids = units.spellings.ids(encoded.content)
        assert np.where(ids < 0, -2 - ids, ids).tolist() == [item.ids[n] for n in inner]
        assert encoded.offsets == tuple(item.offsets[n] for n in inner)


def test_only_words_that_are_split_have_a_spelling_beside_them(model):
    units, tokenizer = units_of(model), model.tokenizer()
    (encoded,) = units.encode(TEXTS[:1])
    item = tokenizer.encode(TEXTS[0])
    words = [word for word in item.words if word is not None]
    split = [words.count(word) > 1 for word in words]
    assert any(split)
    assert not all(split)
    assert (encoded.content < 0).tolist() == split
    spelling = {units.spellings.spelled(int(code)) for code in encoded.content if code < 0}
    assert "##unbelievably" in spelling


def test_given_words_are_spelled_as_the_same_words_of_a_text():
    units = units_of(from_pretrained(spelled("bert", mode="gated")))
    (text,) = units.encode(["The unbelievably, teh"])
    (given,) = units.encode_words([["The", "unbelievably,", "teh"]])
    assert given.content.tolist() == text.content.tolist()
    assert set(given.words) == {0, 1, 2}


def test_every_spelling_has_one_row_whatever_its_pieces():
    vocab = CharVocab(sorted("#abc"))
    found = SpellingsBeside(vocab, 6, spell_rows)
    assert found.beside([(3, "")]).tolist() == [3]
    codes = found.beside([(3, "##ab"), (4, "##ab"), (5, ""), (6, "##c"), (3, "##ab")])
    assert codes.tolist() == [-1, -2, 5, -3, -1]
    assert found.of_words(codes).tolist() == [-1, -1, 5, -3, -1]
    assert found.ids(codes).tolist() == [-5, -6, 5, -8, -5]
    np.testing.assert_array_equal(found.rows(codes), spell_rows(["##ab", "##ab", "", "##c", "##ab"], vocab, 6))
    assert [found.spelled(code) for code in (-1, -2, -3)] == ["##ab", "##ab", "##c"]
    other = found.emptied()
    assert (len(found), len(other)) == (2, 0)
    assert other.beside([(6, "##c")]).tolist() == [-1]
    assert found.beside([]).shape == (0,)


# ---- The model ----


def test_the_start_is_the_transformer_to_the_bit(model):
    plain = Predictor.from_checkpoint(release(model.metadata["backbone"]))
    gated = GatedPredictor(shut(model))
    for cache in (gated.cache, None):
        gated.cache = cache
        for one, other in zip(gated.encode(TEXTS), plain.encode(TEXTS), strict=True):
            assert (one.words, one.offsets) == (other.words, other.offsets)
            np.testing.assert_array_equal(one.vectors_WD, other.vectors_WD)
            np.testing.assert_array_equal(one.sentence_D, other.sentence_D)
    (pieces,), (same) = gated.encode(TEXTS[:1], unit="pieces"), plain.encode(TEXTS[:1], unit="pieces")
    assert pieces.words == same[0].words
    mask = model.tokenizer().token(model.tokenizer().special.mask)
    text = f"Teh unbelievable {mask}."
    assert gated.fill_mask(text) == plain.fill_mask(text)


def test_an_open_gate_reads_the_characters_of_split_words_alone(model):
    open_, closed = GatedPredictor(model), GatedPredictor(shut(model))
    split = [bool((one.content < 0).any()) for one in units_of(model).encode(TEXTS)]
    assert split[0]
    assert not split[2]
    for one, other, beside in zip(open_.encode(TEXTS), closed.encode(TEXTS), split, strict=True):
        assert np.allclose(one.vectors_WD, other.vectors_WD, atol=1e-5) != beside


def test_cached_vectors_give_the_same_and_each_word_is_encoded_once(model):
    cached, whole = GatedPredictor(model), GatedPredictor(model)
    whole.cache = None
    for one, other in zip(cached.encode(TEXTS), whole.encode(TEXTS), strict=True):
        np.testing.assert_allclose(one.vectors_WD, other.vectors_WD, atol=1e-5)
    units = units_of(model)
    row = units.join(units.encode(["teh unbelievably teh unbelievably"])[0])
    batch = units.pack([row], units.measure([[row]], 1, row.length))
    spellings = {units.spellings.spelled(int(code)) for code in row.content[:, 0] if code < 0}
    assert sum(int((table[..., 0] != 0).sum()) for table in batch.chars) == len(spellings)
    stats = GatedPredictor(model).precompute(["unbelievably", "unbelievably"])
    assert stats.words == 1
    assert GatedPredictor(model).word_rows(["unbelievably"])[0] == ["##unbelievably"]


def test_what_the_module_can_and_its_attention_are_there(model):
    predictor = Predictor.from_checkpoint(spelled(model.metadata["backbone"], mode="gated"))
    assert type(predictor) is GatedPredictor
    assert len(predictor.neighbors("birds", top=3)) == 3
    assert predictor.attention("birds").chars == tuple("##birds"[:SLOTS])
    (view,) = predictor.views(TEXTS[0]).views
    shown = view.maps[0].readers
    assert len(shown) == len(model.tokenizer().encode(TEXTS[0]).ids)
    assert shown[1].lower() == "the"


# ---- Files ----


def test_both_formats_keep_the_gate(model, tmp_path):
    model.save_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs", format="pytorch")
    for folder in ("ours", "theirs"):
        found = from_pretrained(tmp_path / folder)
        assert found.config.mode == "gated"
        for name, value in model.params["char2subword"]["gate"].items():
            np.testing.assert_array_equal(found.params["char2subword"]["gate"][name], value)
    read = json.loads((tmp_path / "theirs" / "config.json").read_text())["char2subword"]
    assert (read["mode"], read["characters"]["gate"]) == ("gated", True)


def test_the_paper_modes_read_a_module_with_a_gate(model, tmp_path):
    model.save_pretrained(tmp_path / "ours")
    predictor = Predictor.from_checkpoint(tmp_path / "ours", mode="hybrid")
    assert predictor.encode(["the birds"])[0].words == ["the", "birds"]


def test_an_export_is_refused(model):
    with pytest.raises(ValueError, match="a model in gated mode cannot be exported"):
        family("char2subword").get_arrays()(model, units_of(model))
