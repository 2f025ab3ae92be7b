"""What CharBERT reads: corpora as text, and vocabularies from files or of the words themselves, the same each time."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from small_charbert import small_charbert_config
from small_run import write_text

from charlm.data import encode
from charlm.data.subword_building import words_of_records
from charlm.families.charbert import text as subword_vocab
from charlm.families.charbert.terms import TermVocab
from charlm.families.charbert.text import prepare_subwords
from charlm.text.symbols import SymbolVocab


@pytest.fixture
def config(tmp_path):
    return small_charbert_config(write_text(tmp_path / "text.txt"), tmp_path / "cache")


def words_of(data):
    return Counter(word for words in words_of_records(data.train) for word in words)


def test_vocabularies_are_those_of_the_training_words(config):
    data = prepare_subwords(config)
    counts = words_of(data)
    assert sum(counts.values()) == data.train[0].stats.words > 2000
    assert data.terms == TermVocab.build(counts, config.text.terms)
    assert data.chars.symbols[0] == " "
    letters = {letter for word in counts for letter in word}
    assert letters <= set(data.chars.symbols)
    tokenizer = data.tokenizer
    assert tokenizer.size == config.text.pieces
    assert [tokenizer.token(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tuple(tokenizer.special)[:2] is not None
    item = tokenizer.encode_words(["house", "naïve"])
    assert tokenizer.special.unk not in item.ids
    assert (item.ids[0], item.ids[-1]) == (tokenizer.special.cls, tokenizer.special.sep)
    assert len(tokenizer.encode_words(["the"]).ids) == 3  # frequent words are whole


def test_built_once_and_the_same_again(config, monkeypatch):
    first = prepare_subwords(config)
    with monkeypatch.context() as patch:
        patch.setattr(encode, "_encode_part", None)
        patch.setattr(subword_vocab, "count_words", None)
        assert prepare_subwords(config).digests() == first.digests()
    for path in Path(config.data.cache_dir).glob("subwords-*"):
        shutil.rmtree(path)
    assert prepare_subwords(config).digests() == first.digests()
    config.text.pieces, config.text.terms = 80, 20
    other = prepare_subwords(config).digests()
    assert other["subwords"] != first.digests()["subwords"]
    assert other["words"] != first.digests()["words"]


@pytest.mark.parametrize("kind", ["subwords", "chars", "terms"])
@pytest.mark.parametrize("content", [b"", b"\0" * 500], ids=["empty", "zeroed"])
def test_damaged_vocabularies_of_the_cache_are_built_again(config, log_lines, kind, content):
    first = prepare_subwords(config)
    (path,) = Path(config.data.cache_dir).glob(f"{kind}-*")
    for file in (path / "tokenizer.json", path / "vocab.txt") if path.is_dir() else (path,):
        file.write_bytes(content)
    assert prepare_subwords(config).digests() == first.digests()
    assert f"{path} is damaged: it is made again" in str(log_lines)


def test_vocabularies_from_files(config, tmp_path):
    first = prepare_subwords(config)
    first.save(tmp_path / "files")
    SymbolVocab([" ", "a", "<unk>"]).save(tmp_path / "chars.txt")
    config.data.train = (str(write_text(tmp_path / "other.txt", extra="Something else entirely.")),)
    config.text.tokenizer, config.text.char_vocab = str(tmp_path / "files"), str(tmp_path / "chars.txt")
    config.text.term_vocab = str(tmp_path / "files" / "term_vocab.txt")
    data = prepare_subwords(config)
    assert data.tokenizer.digest() == first.tokenizer.digest()
    assert data.terms == first.terms
    assert data.chars.size == 3
    again = prepare_subwords(small_charbert_config(tmp_path / "other.txt", tmp_path / "cache"), tmp_path / "files")
    assert again.digests() == first.digests()  # all of them lie in the folder of what a run starts from


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("tokenizer", r"text\.tokenizer='.*none': .*none"),
        ("char_vocab", r"^text\.char_vocab='[^']*none': No such file or directory$"),
        ("term_vocab", r"^text\.term_vocab='[^']*none': No such file or directory$"),
    ],
)
def test_a_file_that_is_not_there(config, tmp_path, key, message):
    config.text[key] = str(tmp_path / "none")
    with pytest.raises(ValueError, match=message):
        prepare_subwords(config)


def test_what_cannot_be_read(config, tmp_path):
    config.data.train = (str(tmp_path / "x.array_record"),)
    with pytest.raises(ValueError, match=r"data\.train: '.*x\.array_record' holds words that are encoded"):
        prepare_subwords(config)


def test_a_charbert_without_its_words(config, tmp_path):
    data = prepare_subwords(config)
    data.tokenizer.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"init_from: .*model has no term_vocab\.txt: name .* in text\.term_vocab"):
        prepare_subwords(config, tmp_path / "model", data.chars)
