"""Prepares the data of XRayEmb's second pre-training: corpora, subwords, characters, and the most frequent words.

The objective's `prepare` calls it; open it to see where each vocabulary comes from.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import ml_collections
import numpy as np

from charlm.core.durable import write_text
from charlm.core.files import cache_dir
from charlm.core.reading import loads, read_bytes
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.data.encode import Progress, log_progress
from charlm.data.subword_building import (
    BuiltOnce,
    build_byte_level,
    build_wordpiece,
    count_words,
    read_named,
    tokenizer_of,
)
from charlm.families.subword.kinds import SUBWORDS
from charlm.families.xrayemb.chars import XRAY_CHARS_FILE, XRayChars
from charlm.families.xrayemb.vocab import xray_chars_of_words
from charlm.families.xrayemb.words import XRayWords
from charlm.text.subwords import SubwordTokenizer

BACKBONES = tuple(SUBWORDS)


class FrequentWords(NamedTuple):
    """The most frequent words of a corpus and their counts, by falling count; ties in order of code point."""

    words: tuple[str, ...]
    counts_N: np.ndarray


class XRayData(NamedTuple):
    """Everything that batches are made from."""

    tokenizer: SubwordTokenizer
    chars: XRayChars
    frequent: FrequentWords
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]

    def digests(self) -> dict[str, str]:
        """Returns the digests that identify the vocabularies."""
        return {"subwords": self.tokenizer.digest(), "characters": self.chars.digest()}

    def save(self, folder: Path) -> None:
        """Writes the files of both vocabularies; creates the folder."""
        self.tokenizer.save(folder)
        self.chars.save(folder / XRAY_CHARS_FILE)


def prepare_xray(
    config: ml_collections.ConfigDict,
    source: Path | None = None,
    chars: XRayChars | None = None,
    progress: Progress = log_progress,
) -> XRayData:
    """Returns all data that second pre-training reads.

    Args:
      source: folder with the subwords of the model that the run starts from.
      chars: the characters of that model; None: they are built from the corpora.

    Raises:
      ValueError: a corpus or vocabulary cannot be read, nothing is held out, or the subwords are of another family
        than BERT, RoBERTa, RoFormer and GPT-2.
    """
    # Files are read first, so that errors show before encoding and building, which may take hours.
    tokenizer = read_named("text.tokenizer", config.text.tokenizer, SubwordTokenizer.load) or tokenizer_of(source)
    if tokenizer is not None and tokenizer.family not in (None, *SUBWORDS.values()):
        known = ", ".join(dict.fromkeys(SUBWORDS.values()))
        raise ValueError(f"text.tokenizer: subwords of the family {tokenizer.family}; expected {known}")
    train, heldout = prepare_texts(config, "XRayEmb reads text", progress)
    counts = functools.cache(lambda: count_words(train))  # read once, when something is built
    cached = BuiltOnce(cache_dir(config), train)
    tokenizer = tokenizer or _built(config, cached, counts)
    if chars is None:
        size = config.text.chars + len(("padding", "<unk>", "<e>")) if config.text.chars else None
        build = lambda path: xray_chars_of_words(counts(), tokenizer, size).save(path)
        chars = cached.get("xray-chars", f"{size}-{tokenizer.digest()[:8]}", build, XRayChars.load)
    limit = config.cycle.vocabulary
    build = lambda path: _write_frequent(counts(), tokenizer, limit, path)
    frequent = cached.get("frequent-words", f"{limit}-{tokenizer.digest()[:8]}", build, _read_frequent)
    return XRayData(tokenizer, chars, frequent, train, heldout)


def _built(
    config: ml_collections.ConfigDict, cached: BuiltOnce, counts: Callable[[], Counter[str]]
) -> SubwordTokenizer:
    """Returns a tokenizer of subwords of the backbone's kind, built from the corpora."""
    size, kind = config.text.pieces, SUBWORDS[config.model.backbone or "bert"]
    if kind == "bert":
        build = lambda path: build_wordpiece(counts(), size, path)
        return cached.get("subwords", size, build, SubwordTokenizer.load)
    build = lambda path: build_byte_level(counts(), size, path, kind)
    return cached.get(f"subwords-{kind}", size, build, SubwordTokenizer.load)


def _write_frequent(counts: Counter[str], tokenizer: SubwordTokenizer, limit: int, path: str) -> None:
    """Writes the most frequent words as policies find them: without punctuation if the tokenizer separates it."""
    words, given = XRayWords(tokenizer), list(counts)
    read: Counter[str] = Counter()
    for word, item in zip(given, tokenizer.encode_words_batch([[word] for word in given]), strict=True):
        runs = words.find(item.ids, words=item.words)
        for start, end in zip(runs.starts_W.tolist(), runs.ends_W.tolist(), strict=True):
            read[words.text(item.ids[start:end])] += counts[word]
    found = sorted(read.items(), key=lambda item: (-item[1], item[0]))[:limit]
    write_text(path, json.dumps(found, ensure_ascii=True) + "\n")  # lone surrogates, too


def _read_frequent(path: str) -> FrequentWords:
    try:
        found = loads(read_bytes(path))
        words, counts = zip(*found, strict=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} holds no words and counts: {error}") from None
    return FrequentWords(tuple(words), np.array(counts, np.int64))
