"""Measures lengths of sentences in words and in subwords, and how well a vocabulary covers the words.

Open it to change what the table about a text contains, or how sentences are read.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.types import JsonObject
from charlm.data.conll import read_tagged
from charlm.data.sources import open_source
from charlm.data.text_tables import read_texts
from charlm.text.sentences import sentence_ends
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import SpacesSplitter, Splitter

TEXT_FORMATS = ("auto", "text", "table", "columns", "conllu", "iob2")
_TAGGED = ("columns", "conllu", "iob2")
_TAGGED_ENDINGS = (".conll", ".conllu", ".iob", ".iob2", ".bio")
_TABLE_ENDINGS = (".tsv", ".csv")
_WORDS_AT_A_TIME, _SENTENCES_AT_A_TIME = 64, 4096


def sample(sentences: Iterable[Sequence[str]], words: int, seed: int = 0) -> list[Sequence[str]]:
    """Returns a random sample of sentences, in their original order, with at least `words` words in all.

    Sentences are drawn with equal chances until they have enough words; if the text has fewer, all are returned.
    Samples serve to compare type/word ratios, which depend on the length of a text. The sentences are read once, and
    little more than the sample is kept in memory.

    Raises:
      ValueError: `words` is not positive.
    """
    if words < 1:
        raise ValueError(f"a sample of {words} words: expected at least 1")
    rng = np.random.default_rng(seed)
    kept: list[tuple[float, int, Sequence[str]]] = []  # a heap; its first item is the next to be removed
    held = 0
    for place, sentence in enumerate(sentences):
        heapq.heappush(kept, (-rng.random(), place, sentence))
        held += len(sentence)
        while held - len(kept[0][2]) >= words:
            held -= len(heapq.heappop(kept)[2])
    return [sentence for _, _, sentence in sorted(kept, key=lambda item: item[1])]


class Lengths(NamedTuple):
    """Summary of the lengths of some sequences; the standard deviation divides by their number."""

    mean: float
    deviation: float
    shortest: int
    longest: int

    @classmethod
    def of(cls, lengths: np.ndarray) -> Lengths:
        """Returns the summary of at least one length."""
        return cls(float(lengths.mean()), float(lengths.std()), int(lengths.min()), int(lengths.max()))


@dataclasses.dataclass(frozen=True)
class TextStatistics:
    """Statistics of some sentences and of how a tokenizer cuts their words.

    Attributes:
      sentences, words, subwords: their numbers; empty sentences do not count.
      types: number of distinct words.
      types_per_word: type/word ratio, which falls with the length of the text.
      words_per_sentence, subwords_per_sentence: lengths of sentences.
      subwords_per_word: mean over all words.
      added_tokens: (subwords - words) / words ("token mass increase").
      cut: share of words that are cut into several pieces.
      entries: share of words that are entries of the vocabulary.
      unknown: share of words with the unknown token.
      cut_types, entries_types, unknown_types: the same shares of distinct words.
    """

    sentences: int
    words: int
    types: int
    subwords: int
    types_per_word: float
    words_per_sentence: Lengths
    subwords_per_sentence: Lengths
    subwords_per_word: float
    added_tokens: float
    cut: float
    entries: float
    unknown: float
    cut_types: float
    entries_types: float
    unknown_types: float

    def to_dict(self) -> JsonObject:
        """Returns the values under their names, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value._asdict() if isinstance(value, Lengths) else value for name, value in values.items()}


def text_statistics(sentences: Iterable[Sequence[str]], tokenizer: SubwordTokenizer) -> TextStatistics:
    """Returns the statistics of sentences, each a sequence of words.

    The sentences are read once, and each distinct word is encoded once.

    Raises:
      ValueError: there are no words.
    """
    counts: Counter[str] = Counter()
    pieces: dict[str, tuple[int, bool]] = {}
    words_S: list[int] = []
    subwords_S: list[int] = []
    batch: list[Sequence[str]] = []

    def flush() -> None:
        new = [word for word in dict.fromkeys(word for words in batch for word in words) if word not in pieces]
        pieces.update(zip(new, _pieces(new, tokenizer), strict=True))
        for words in batch:
            counts.update(words)
            words_S.append(len(words))
            subwords_S.append(sum(pieces[word][0] for word in words))
        batch.clear()

    for words in sentences:
        if words:
            batch.append(words)
        if len(batch) == _SENTENCES_AT_A_TIME:
            flush()
    flush()
    if not counts:
        raise ValueError("no words")
    table = np.array([(counts[word], *found) for word, found in pieces.items()], np.int64)
    return _statistics(np.array(words_S), np.array(subwords_S), *table.T)


def _pieces(words: Sequence[str], tokenizer: SubwordTokenizer) -> Iterator[tuple[int, bool]]:
    """Yields the number of pieces of each word, and whether one of them is the unknown token.

    Words do not affect each other: the tokenizer cuts each word as if a space came before it.
    """
    rows = [words[start : start + _WORDS_AT_A_TIME] for start in range(0, len(words), _WORDS_AT_A_TIME)]
    for row, encoded in zip(rows, tokenizer.encode_words_batch(rows), strict=True):
        found = [(index, id) for index, id in zip(encoded.words, encoded.ids, strict=True) if index is not None]
        number = np.bincount([index for index, _ in found], minlength=len(row))
        unknown = {index for index, id in found if id == tokenizer.special.unk}
        yield from ((int(count), index in unknown) for index, count in enumerate(number))


def _statistics(
    words_S: np.ndarray, subwords_S: np.ndarray, counts_T: np.ndarray, pieces_T: np.ndarray, unknown_T: np.ndarray
) -> TextStatistics:
    """Returns the statistics from the lengths of S sentences and the counts of T distinct words.

    Args:
      words_S, subwords_S: lengths of the sentences.
      counts_T: how often each distinct word occurs.
      pieces_T: number of pieces of each distinct word.
      unknown_T: 1 if a piece of the word is the unknown token, else 0.
    """
    shares = {}
    for name, chosen_T in (
        ("cut", pieces_T > 1),
        ("entries", (pieces_T == 1) & (unknown_T == 0)),
        ("unknown", unknown_T > 0),
    ):
        shares[name] = float(counts_T[chosen_T].sum() / counts_T.sum())
        shares[f"{name}_types"] = float(chosen_T.mean())
    return TextStatistics(
        sentences=len(words_S),
        words=int(words_S.sum()),
        types=len(counts_T),
        subwords=int(subwords_S.sum()),
        types_per_word=float(len(counts_T) / words_S.sum()),
        words_per_sentence=Lengths.of(words_S),
        subwords_per_sentence=Lengths.of(subwords_S),
        subwords_per_word=float(subwords_S.sum() / words_S.sum()),
        added_tokens=float(subwords_S.sum() / words_S.sum() - 1),
        **shares,
    )


def read_sentences(
    path: str, splitter: Splitter, *, format: str = "auto", text: str = "text", word: int | None = None
) -> Iterator[Sequence[str]]:
    """Yields the sentences of a file, each a sequence of words; reports skipped documents on standard error.

    Args:
      path: a file, "builtin" or "tfds:...", see `charlm.data.sources.open_source`.
      splitter: splits texts into words; not used for files with columns of words.
      format: "auto" goes by the ending of the file; "text" is any file that `open_source` reads; "table" is TSV or CSV;
        the others are formats of `charlm.data.conll.read_tagged`.
      text: column or key of the text (table, JSON lines, Parquet).
      word: number of the column of words (CoNLL); None: the usual column of the format.

    Raises:
      ValueError: the file cannot be read, or does not have that format; the message is one line that says where, what
        and what was expected.
    """
    if format not in TEXT_FORMATS:
        raise ValueError(
            f"format={format!r}: expected one of {', '.join(TEXT_FORMATS)}{did_you_mean(format, TEXT_FORMATS, ALIKE)}"
        )
    ending = os.path.splitext(path.removesuffix(".gz"))[1].lower()
    if format == "auto" and ending in _TABLE_ENDINGS:
        raise ValueError(f"{path}: a {ending} file holds a text in each row or a word: say --format=table or columns")
    if format in _TAGGED or (format == "auto" and ending in _TAGGED_ENDINGS):
        yield from (example.words for example in read_tagged(path, word=word, tag=None, scheme="none", format=format))
    elif format == "table":
        column = int(text) if text.removeprefix("-").isdecimal() else text
        for example in read_texts(path, text=column):
            yield from _split(example.text, splitter)
    else:
        source = open_source(path, text_key=text, key="--data")
        for part in source.parts:
            for document in source.documents(part):
                yield from _split(document, splitter)
        for reason, count in source.skipped.items():
            print(f"{path}: skipped {count:,}: {reason}", file=sys.stderr)


def _split(text: str, splitter: Splitter) -> Iterator[Sequence[str]]:
    words = [text[start:end] for start, end in splitter.spans(text)]
    if isinstance(splitter, SpacesSplitter):
        yield words
        return
    start = 0
    for end in sentence_ends(words):
        yield words[start:end]
        start = end
