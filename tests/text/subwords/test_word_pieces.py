"""Tests that words are cut into subwords as the tokenizer cuts each word, however they are passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from charlm.text.subwords import SubwordTokenizer, word_pieces
from charlm.text.subwords.word_pieces import WordPieces

RELEASED = json.loads(
    (Path(__file__).resolve().parents[2] / "goldens" / "charbert" / "char_inputs.json").read_text(encoding="utf-8")
)["vocabularies"]
WORDS = ["the", "backhand", "\x01", "naïve", ".", "C#", "the", "東京", "don't"]
SPACES = [True, True, True, False, False, True, False, True, True]


@pytest.fixture(params=["bert", "roberta"])
def tokenizer(request, tmp_path):
    for name, content in RELEASED[request.param].items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return SubwordTokenizer.load(tmp_path, lowercase=False if request.param == "bert" else None)


def expected(tokenizer, word, space):
    item = tokenizer.encode_words([word]) if space or tokenizer.family == "bert" else tokenizer.encode(word)
    return tuple(i for i, special in zip(item.ids, item.special, strict=True) if not special)


def test_every_word_as_by_itself(tokenizer):
    pieces = WordPieces(tokenizer)
    want = [expected(tokenizer, word, space) for word, space in zip(WORDS, SPACES, strict=True)]
    assert pieces.of(WORDS, SPACES) == want
    assert pieces.of(WORDS[::-1], SPACES[::-1]) == want[::-1]  # now remembered
    assert pieces.of([], []) == []
    assert all(want)
    if tokenizer.family == "roberta":
        assert want[0] != want[6]


def test_words_are_joined_or_apart_whatever_the_tokenizer_adds(tmp_path):
    for name, content in RELEASED["roberta"].items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    plain, prefixing = (SubwordTokenizer.load(tmp_path, add_prefix_space=adds) for adds in (False, True))
    assert plain.encode("the").ids != prefixing.encode("the").ids
    assert WordPieces(prefixing).of(WORDS, SPACES) == WordPieces(plain).of(WORDS, SPACES)
    assert WordPieces(prefixing).of(["the"], [False]) != WordPieces(prefixing).of(["the"], [True])


def test_memory_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(word_pieces, "_MAX_CACHED", 3)
    pieces = WordPieces(tokenizer)
    long = "ab" * 40
    for word in [*WORDS, long]:
        assert pieces.of([word], [True]) == [expected(tokenizer, word, True)]
        assert len(pieces._apart) <= 3
        assert long not in pieces._apart
