"""Tests a BERT behind a speller: what it reads in place of misspelled words, and that all else is the BERT's own."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.subword.respelled import NO_FILLS, RespelledPredictor, table_words
from charlm.text.speller import SpellerSettings
from charlm.text.speller.files import FILE, StoredSpeller, write_speller

ALONE = SpellerSettings(kept=1)
CLEAN = ["they read the old words.", "The world, hello… ½ x² 42!", "", "\ud800 日", "THX1138 zqorviq@acme.com"]


def reader(settings=ALONE, words=(), head="masked_lm"):
    return RespelledPredictor(from_pretrained(release("bert", head)), StoredSpeller(dict(words), settings))


def plain(head="masked_lm"):
    return SubwordPredictor(from_pretrained(release("bert", head)))


@pytest.mark.parametrize("head", ["masked_lm", "encoder"])
def test_text_without_misspelled_words_has_the_models_own_vectors(head):
    for one, other in zip(reader(head=head).encode(CLEAN), plain(head).encode(CLEAN), strict=True):
        assert (one.words, one.offsets) == (other.words, other.offsets)
        np.testing.assert_allclose(one.vectors_WD, other.vectors_WD, atol=1e-6)
        np.testing.assert_allclose(one.sentence_D, other.sentence_D, atol=1e-6)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("htey raed the wrods.", "they read the words."),
        ("thew0rld", "the world"),
        ("hello w0rld", "hello world"),
        ("morningwalking", "morning walking"),
        ("they hel lo", "they hello"),
        ("hеllo wоrld", "hello world"),  # two letters are Cyrillic
    ],
)
def test_the_likeliest_words_are_read(typed, meant):
    one, other = reader().encode([typed])[0], plain().encode([meant])[0]
    np.testing.assert_allclose(one.sentence_D, other.sentence_D, atol=1e-6)


def test_words_and_offsets_are_those_that_were_typed():
    text = "(Htey) raed; morningwalking"
    (found,) = reader().encode([text])
    assert found.words == ["(", "Htey", ")", "raed", ";", "morningwalking"]
    (pieces,) = reader().encode([text], unit="pieces")
    assert pieces.words[-2:] == ["morning", "walking"]
    assert [text[a:b] for a, b in pieces.offsets] == ["(", "Htey", ")", "raed", ";", "morning", "walking"]
    (behind,) = reader().encode(["hеllo teh \ufb01rst"], unit="pieces")  # a Cyrillic letter, and a ligature
    assert behind.offsets[:2] == [(0, 5), (6, 9)]


def test_several_words_are_read_as_the_mean_of_their_rows():
    several = reader(SpellerSettings(kept=8))
    readings = several._speller.read("thee")
    assert len(readings[0].words) > 1
    fresh = several._fresh()
    (text,) = fresh._texts(["thee"])
    assert text.ids == [-1]
    vectors_BLD, ids_BL, _ = fresh._inputs(np.array([[-1, 3]]), np.ones((1, 2), bool), [{}])
    table = several._params["bert"]["embed"]["token"]["embedding"]
    rows = [(several._row(word), share) for word, share in readings[0].words if several._row(word) is not None]
    expected = sum(share * np.asarray(table[row]) for row, share in rows) / sum(share for _, share in rows)
    assert ids_BL.tolist() == [[-1, 3]]
    np.testing.assert_allclose(vectors_BLD[0, 0], expected, rtol=1e-6)
    assert not vectors_BLD[0, 1].any()
    vectors = [reader(settings).encode(["thee"])[0].sentence_D for settings in (SpellerSettings(), ALONE)]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4


def test_a_call_does_not_depend_on_the_others_of_its_batch():
    texts = ["htey raed the wrods.", "thee old wrld", "they", "hello, thee wold thee"]
    model = reader(SpellerSettings())
    together = model.encode(texts)
    for text, found in zip(texts, together, strict=True):
        np.testing.assert_allclose(model.encode([text])[0].sentence_D, found.sentence_D, atol=1e-5)


def test_long_texts_are_read_in_windows():
    text = " ".join(["htey raed the wrods"] * 30)
    (one,), (other,) = reader().encode([text]), plain().encode([" ".join(["they read the words"] * 30)])
    assert len(one.words) == len(other.words) == 120
    np.testing.assert_allclose(one.vectors_WD, other.vectors_WD, atol=1e-5)


def test_of_a_text_that_is_cut_only_the_beginning_is_spelled(monkeypatch):
    one, seen = reader(), []
    read = one._speller.read
    monkeypatch.setattr(one._speller, "read", lambda text: seen.append(text) or read(text))
    text = "htey raed the wrods " * 1000
    (cut_LD,) = one.positions([text], longest=10)
    assert seen == ["htey raed the wrods " * 5]
    (whole_LD,) = one.positions(["htey raed the wrods " * 5], longest=10)
    np.testing.assert_array_equal(cut_LD, whole_LD)
    assert len(one.positions([" wrods"])[0]) == 3  # all of a text that is not cut


def test_words_of_documents_are_known():
    text, words = "zqorviq", {"zqorviqa": 3.0}
    assert reader()._speller.read(text) == []
    assert reader(words=words)._speller.read(text)[0].words == (("zqorviqa", 1.0),)


def test_it_shows_its_attention_and_fills_no_gaps():
    views = reader().views("htey raed")
    assert views.views[0].maps[0].readers == ("[CLS]", "htey", "raed", "[SEP]")
    with pytest.raises(ValueError, match=NO_FILLS):
        reader().fill_mask("they [MASK]")


def test_a_table_gives_its_whole_words_by_rank():
    tokenizer = from_pretrained(release("bert")).tokenizer()
    found = table_words(tokenizer)
    assert found["and"] > found["the"] > found["storie"]
    assert found["a"] > found["z"] > 0
    assert not {"##or", "[CLS]", "or", "42", "!"} & set(found)
    with pytest.raises(ValueError, match="expected a WordPiece tokenizer that lowercases"):
        table_words(from_pretrained(release("roberta")).tokenizer())


def test_a_model_with_the_file_is_read_through_it(tmp_path):
    folder = tmp_path / "reader"
    shutil.copytree(release("bert"), folder)
    write_speller(folder, StoredSpeller({}, ALONE))
    found = charlm.load(folder).encode(["htey raed"], normalize=True)
    expected = charlm.load(release("bert")).encode(["they read"], normalize=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    (folder / FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=f"{FILE}: format None"):
        charlm.load(folder).encode("a")
