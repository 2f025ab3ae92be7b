"""Tests the characters of an XRayEmb: counted in words and in text, as the tokenizer reads them."""

from __future__ import annotations

from collections import Counter

import pytest
from small_xrayemb_run import small_xrayemb_config
from tiny_models import release

from charlm.config import get_config
from charlm.data.corpus import encode_corpus
from charlm.data.forms import TextForm
from charlm.families.xrayemb.chars import XRayChars
from charlm.families.xrayemb.text import prepare_xray
from charlm.families.xrayemb.vocab import xray_chars_of, xray_chars_of_words
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.word_pieces import WordPieces
from charlm.text.words import get_splitter, split


@pytest.fixture(scope="module")
def uncased():
    return SubwordTokenizer.load(release("bert"))


def test_words_are_counted_as_the_tokenizer_reads_them(uncased):
    counts = Counter({"Äb": 3, "b今": 1, "\u3000": 9})
    assert xray_chars_of_words(counts).chars == ("b", "Ä", "今")
    assert xray_chars_of_words(counts, uncased).chars == ("a", "b", "今")
    assert xray_chars_of_words(counts, uncased, 5).chars == ("a", "b")


def test_no_character_of_a_text_is_lost(config, tmp_path, uncased):
    text = "Ein Ärger, 今天!\nnaïve Birds\n" * 3
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = encode_corpus(str(tmp_path / "a.txt"), config, "all", TextForm(), 64, key="data.train")
    for tokenizer in (None, uncased):
        found = xray_chars_of([corpus], tokenizer)
        assert found == XRayChars.build(Counter(text if tokenizer is None else tokenizer.normalized(text)))
        assert ("Ä" in found.chars) == (tokenizer is None)
        assert " " not in found.chars


@pytest.mark.parametrize(("backbone", "with_stop"), [("bert", False), ("gpt2", True)])
def test_frequent_words_are_those_that_a_policy_finds(tmp_path, backbone, with_stop):
    (tmp_path / "text.txt").write_text("the cat sat. the dog ran! the cat slept.\n" * 40, encoding="utf-8")
    config = small_xrayemb_config(tmp_path / "text.txt", tmp_path / "cache")
    config.data.heldout, config.model.backbone = config.data.train, backbone
    found = prepare_xray(config).frequent
    counts = dict(zip(found.words, found.counts_N.tolist(), strict=True))
    assert found.words[:2] == ("the", "cat" if with_stop else ".")
    assert ("sat." in counts, "sat" in counts) == (with_stop, not with_stop)
    assert (counts["the"], counts["dog"]) == (120, 40)


@pytest.mark.parametrize("kind", ["subwords", "xray-chars", "frequent-words"])
def test_what_is_damaged_in_the_cache_is_built_again(tmp_path, kind):
    (tmp_path / "text.txt").write_text("the cat sat. the dog ran! the cat slept.\n" * 40, encoding="utf-8")
    config = small_xrayemb_config(tmp_path / "text.txt", tmp_path / "cache")
    config.data.heldout = config.data.train
    first = prepare_xray(config)
    (path,) = (tmp_path / "cache").glob(f"{kind}-*")
    for file in path.iterdir() if path.is_dir() else (path,):
        file.write_bytes(b"")
    again = prepare_xray(config)
    assert again.digests() == first.digests()
    assert again.frequent.words == first.frequent.words


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_the_usual_splitter_leaves_subwords_as_they_are(kind):
    tokenizer = SubwordTokenizer.load(release(kind))
    splitter = get_splitter(get_config("xrayemb").text.splitter)
    text = "I didn't sat, re-do 3.14 (cats)! the dog"
    found = split(text, splitter)
    pieces = WordPieces(tokenizer).of(found.words, [gap.endswith(" ") for gap in found.gaps[:-1]])
    item = tokenizer.encode(text)
    whole = [index for index, special in zip(item.ids, item.special, strict=True) if not special]
    assert [index for word in pieces for index in word] == whole
