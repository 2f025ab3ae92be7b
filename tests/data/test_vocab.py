"""Tests the character vocabulary of a run: counted on the training text, cached, or read from a file."""

from __future__ import annotations

import pytest
from reading import never

from charlm.data import vocab as vocab_lib
from charlm.data.sources import open_source
from charlm.data.vocab import load_or_build_vocab
from charlm.text.chars import CharVocab


def test_vocabulary_holds_the_characters_of_words_only(config, tmp_path):
    (tmp_path / "a.txt").write_text("bab\u00a0a\u3000ä a\u0308\n" * 3)
    source = open_source(str(tmp_path / "a.txt"))
    assert vocab_lib.count_chars([source], "none") == {"b": 6, "a": 9, "ä": 3, "\u0308": 3}
    assert vocab_lib.count_chars([source], "nfc") == {"b": 6, "a": 6, "ä": 6}


def test_vocabulary_is_cached_and_follows_the_text(config, documents, tmp_path, monkeypatch):
    first = load_or_build_vocab(config)
    with monkeypatch.context() as patch:
        patch.setattr(vocab_lib, "count_chars", never)
        assert load_or_build_vocab(config).digest() == first.digest()
    (tmp_path / "text" / "a.txt").write_text("żółć " * 10)
    assert load_or_build_vocab(config).digest() != first.digest()


def test_vocabulary_counts_what_is_trained_on(config, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(chr(0x4E00 + i) for i in range(500)))
    (tmp_path / "h.txt").write_text("x")
    config.data.train = (str(tmp_path / "a.txt"),)
    assert 350 < len(load_or_build_vocab(config).chars) < 450  # held-out characters stay unknown
    config.data.heldout = (str(tmp_path / "h.txt"),)
    assert len(load_or_build_vocab(config).chars) == 500


def test_vocabulary_of_a_file(config, documents, tmp_path):
    config.text.char_vocab = str(tmp_path / "vocab.json")
    with pytest.raises(ValueError, match=r"text.char_vocab='.*vocab.json': cannot be read as a character vocabulary"):
        load_or_build_vocab(config)
    (tmp_path / "vocab.json").write_text("[1, 2")
    with pytest.raises(ValueError, match=r"text.char_vocab='.*vocab.json': cannot be read as a character vocabulary"):
        load_or_build_vocab(config)
    vocab = CharVocab.build({"a": 2, "b": 1}, 20)
    vocab.save(config.text.char_vocab)
    assert load_or_build_vocab(config).digest() == vocab.digest()
    config.model.vocab_size = vocab.size - 1
    with pytest.raises(ValueError, match=rf"has {vocab.size} entries, but model.vocab_size is {vocab.size - 1}"):
        load_or_build_vocab(config)


def test_a_vocabulary_of_bytes_is_asked_for(config, documents, tmp_path):
    config.model.vocab_size = 300
    plain = load_or_build_vocab(config)
    config.text.unknown = "bytes"
    vocab = load_or_build_vocab(config)
    assert (vocab.by_bytes, plain.by_bytes) == (True, False)
    assert vocab.chars == plain.chars[: 300 - 8 - 256]
    config.text.char_vocab = str(tmp_path / "vocab.json")
    plain.save(config.text.char_vocab)
    with pytest.raises(
        ValueError, match=r"text.unknown='bytes', but the character vocabulary .*vocab.json has no bytes"
    ):
        load_or_build_vocab(config)
    config.text.unknown = "symbol"
    vocab.save(config.text.char_vocab)
    with pytest.raises(ValueError, match=r"text.unknown='symbol', but the character vocabulary .*vocab.json has bytes"):
        load_or_build_vocab(config)
