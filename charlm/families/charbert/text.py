"""Prepares the data of a CharBERT pre-training run: corpora as text, and vocabularies of subwords, characters, words.

The objective's `prepare` calls it; open it to see where each vocabulary comes from.

Each vocabulary is read from a file, taken over from `init_from`, or built from the words of the training corpora. A
built vocabulary is cached under a name that identifies what it was built from.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_collections

from charlm.core.files import cache_dir
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.data.encode import Progress, log_progress
from charlm.data.subword_building import (
    SAMPLE_WORDS,
    BuiltOnce,
    Vocab,
    build_wordpiece,
    count_words,
    read_named,
    tokenizer_of,
)
from charlm.families.charbert.terms import TermVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab, count_symbols

CHAR_FILE, TERM_FILE = "char_vocab.txt", "term_vocab.txt"


class SubwordData(NamedTuple):
    """The vocabularies and corpora that batches are made from."""

    tokenizer: SubwordTokenizer
    chars: SymbolVocab
    terms: TermVocab
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]

    def digests(self) -> dict[str, str]:
        """Returns the digests that identify the three vocabularies."""
        return {"subwords": self.tokenizer.digest(), "characters": self.chars.digest(), "words": self.terms.digest()}

    def save(self, folder: Path) -> None:
        """Writes the files of all vocabularies to a folder, which is created if needed."""
        self.tokenizer.save(folder)
        self.chars.save(folder / CHAR_FILE)
        self.terms.save(folder / TERM_FILE)


def prepare_subwords(
    config: ml_collections.ConfigDict,
    source: Path | None = None,
    symbols: SymbolVocab | None = None,
    progress: Progress = log_progress,
) -> SubwordData:
    """Prepares everything a CharBERT run reads.

    Args:
      source: folder with the vocabularies of the model that the run starts from; missing ones are built.
      symbols: characters of the CharBERT that the run starts from; its word vocabulary must then be known, too.

    Raises:
      ValueError: a corpus or vocabulary cannot be read, no text is held out, or the tokenizer is neither BERT's nor
        RoBERTa's kind.
    """
    text = config.text
    # Read the given files first, so that errors in them show before encoding and building, which may take hours.
    tokenizer = read_named("text.tokenizer", text.tokenizer, SubwordTokenizer.load) or tokenizer_of(source)
    if tokenizer is not None:
        _check_family(tokenizer)
    chars = read_named("text.char_vocab", text.char_vocab, SymbolVocab.load) or symbols
    chars = chars or _beside(source, CHAR_FILE, SymbolVocab.load)
    terms = read_named("text.term_vocab", text.term_vocab, TermVocab.load) or _beside(source, TERM_FILE, TermVocab.load)
    if terms is None and symbols is not None:
        raise ValueError(f"init_from: {source} has no {TERM_FILE}: name the words that it predicts in text.term_vocab")
    train, heldout = prepare_texts(config, "CharBERT misspells text", progress)
    counts = functools.cache(lambda: count_words(train))  # counts words once, and only if a vocabulary is built
    cached = BuiltOnce(cache_dir(config), train)
    if tokenizer is None:
        build = lambda path: build_wordpiece(counts(), text.pieces, path)
        tokenizer = cached.get("subwords", text.pieces, build, SubwordTokenizer.load)
    if chars is None:
        key = f"{text.chars}-{tokenizer.digest()[:8]}"
        build = lambda path: _build_chars(counts(), tokenizer, text.chars).save(path)
        chars = cached.get("chars", key, build, SymbolVocab.load)
    if terms is None:
        build = lambda path: TermVocab.build(counts(), text.terms).save(path)
        terms = cached.get("terms", text.terms, build, TermVocab.load)
    return SubwordData(tokenizer, chars, terms, train, heldout)


def _beside(source: Path | None, name: str, load: Callable[[Path], Vocab]) -> Vocab | None:
    return load(source / name) if source is not None and (source / name).is_file() else None


def _check_family(tokenizer: SubwordTokenizer) -> None:
    special = tokenizer.special
    if tokenizer.family not in (None, "bert", "roberta") or None in (special.cls, special.sep, special.mask):
        raise ValueError(
            f"text.tokenizer: subwords of the family {tokenizer.family}; expected bert or roberta, with a mask"
        )


def _build_chars(counts: Mapping[str, int], tokenizer: SubwordTokenizer, size: int) -> SymbolVocab:
    """Builds the character vocabulary from spellings of subwords; byte-level subwords are spelled by their glyphs."""
    if tokenizer.family != "roberta":
        return SymbolVocab.build(count_symbols(counts.keys(), counts.values()), size)
    words = heapq.nlargest(SAMPLE_WORDS, counts, key=lambda word: (counts[word], word))
    encoded = tokenizer.encode_words_batch([[word] for word in words])
    times = [counts[word] for word, item in zip(words, encoded, strict=True) for _ in item.ids]
    return SymbolVocab.build(count_symbols([tokenizer.token(i) for item in encoded for i in item.ids], times), size)
