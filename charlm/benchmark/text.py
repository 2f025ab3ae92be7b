"""The same real text for every path, as substrings of one corpus, consecutive or drawn from all over it, and BERT's
vocabulary.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ml_collections
import numpy as np

from charlm.core.durable import write_text
from charlm.core.files import cache_dir, stable_hash
from charlm.data.sources import Source, open_source
from charlm.text.chars import CharVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import RulesSplitter, Span

log = logging.getLogger("charlm")

PIECES = 30_522  # of BERT-base, uncased
LEARNED_CHARS = 50_000_000  # a vocabulary is learned from so much text at most: minutes for any corpus
TRAINED = "trained on this corpus, which favours BERT"
CONSECUTIVE, DRAWN, FREQUENT = "consecutive", "drawn", "frequent words"
DRAWN_FROM = 64  # drawn texts lie spread over so many times the words that they hold, or over all there is
_BETWEEN = "\n\n"


@dataclasses.dataclass(frozen=True)
class Shape:
    """A batch: texts, and the words of each, [CLS] and [SEP] included."""

    batch: int
    words: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.words} words"

    def drawn_lengths(self) -> list[int]:
        """Returns the words of each text of a drawn batch, the same for every model: in no order, from half to one and
        a half times the shape's, evenly; their sum is that of texts of equal length.

        Raises:
          ValueError: when lengths cannot vary.
        """
        most = min(self.words // 2, self.words - 3)  # more or less than the mean; three: [CLS], a word, [SEP]
        if self.batch < 2 or most < 1:
            raise ValueError(f"--drawn: {self} cannot vary in length: expected two texts of four words at least")
        made = [self.words + round(most * (2 * i - self.batch + 1) / (self.batch - 1)) for i in range(self.batch)]
        random.Random(0).shuffle(made)
        return made


class Corpus:
    """A corpus that the user names; of the built-in one the held-out part is measured."""

    def __init__(self, config: ml_collections.ConfigDict) -> None:
        """Opens `config.data.train`'s only corpus; ValueError as `open_source`."""
        self._config = config
        self.name = config.data.train[0]
        self._stream = ""
        self._spans: list[Span] = []

    def _open(self, split: str) -> Source:
        cache = cache_dir(self._config)
        return open_source(self.name, text_key=self._config.data.text_key, split=split, cache_dir=cache, key="--text")

    def _documents(self, split: str) -> Iterator[str]:
        source = self._open(split)
        return (document for part in source.parts for document in source.documents(part))

    def _learned(self) -> Iterator[str]:
        """Yields the documents that vocabularies are learned from."""
        left = LEARNED_CHARS
        for document in self._documents("all"):
            yield document[:left]
            left -= len(document)
            if left <= 0:
                return

    def _words(self, count: int) -> tuple[str, list[Span]]:
        """Returns text of at least `count` words, less when the corpus has not so many, and where they stand."""
        splitter, words, read = RulesSplitter(), 0, []
        if len(self._spans) < count:
            for document in self._documents("heldout" if self.name == "builtin" else "all"):
                read.append(document)
                words += len(splitter.spans(document))
                if words >= count:
                    break
            self._stream = _BETWEEN.join(read)
            self._spans = splitter.spans(self._stream)
        return self._stream, self._spans

    def texts(self, shape: Shape) -> list[str]:
        """Returns the first consecutive texts of the corpus that have exactly the shape's words.

        A text is the substring of the corpus from its first word to its last, so that every model may cut it as it
        does. A text that the splitter would cut differently by itself begins one word later.

        Raises:
          ValueError: no room for a word, or the corpus has too few.
        """
        room = shape.words - 2
        if room < 1 or shape.batch < 1:
            raise ValueError(f"a batch of {shape}: expected a text, and three words at least: [CLS], a word, [SEP]")
        _, spans = self._words(shape.batch * room * 5 // 4 + 64)  # some are left out, see above
        made, at = [], 0
        for _ in range(shape.batch):
            text, at = self._cut(spans, at, room, shape)
            made.append(text)
        return made

    def drawn(self, shape: Shape, batches: int = 1) -> list[list[str]]:
        """Returns batches of texts from all over the corpus, their lengths those of `Shape.drawn_lengths`.

        Texts of a batch are cut as those of `texts`, never overlap and lie evenly spread; another batch's lie between
        them. The first batch is the same however many there are.

        Raises:
          ValueError: when lengths cannot vary, or the corpus has too few words.
        """
        rooms = [words - 2 for words in shape.drawn_lengths()]
        needed = sum(rooms)
        spans = self._words(DRAWN_FROM * needed)[1][: DRAWN_FROM * needed]
        free = max(0, len(spans) - needed)
        made = []
        for number in range(batches):
            batch, at = [], 0
            for i, room in enumerate(rooms):
                planned = sum(rooms[:i]) + free * (i * batches + number) // (batches * shape.batch)
                text, at = self._cut(spans, max(at, planned), room, shape)
                batch.append(text)
            made.append(batch)
        return made

    def _cut(self, spans: list[Span], at: int, room: int, shape: Shape) -> tuple[str, int]:
        """Returns the first text of `room` words at or after a word that is cut alike by itself, and where it ends."""
        splitter = RulesSplitter()
        while len(inside := spans[at : at + room]) == room:
            start = inside[0][0]
            text = self._stream[start : inside[-1][1]]
            if splitter.spans(text) == [(a - start, b - start) for a, b in inside]:
                return text, at + room
            at += 1
        raise ValueError(f"--text={self.name}: {len(spans):,} words are too few for a batch of {shape}")

    def stretch(self, words: int) -> str:
        """Returns consecutive text of so many words, or all there is."""
        stream, spans = self._words(words)
        return stream[: spans[min(words, len(spans)) - 1][1]] if spans and words else ""

    def frequent(self, shape: Shape, vocabulary: int, longest: int) -> list[str]:
        """Returns as many texts as the shape has, each of as many words, spaces between them: the most frequent ones of
        the corpus, all alike likely, drawn as `charlm.families.xrayemb.cycle_words` draws them, the same for every
        model.

        Args:
          vocabulary: how many words are drawn from. longest: characters of a word at most.

        Raises:
          ValueError: when the corpus has no word.
        """
        from charlm.families.xrayemb.cycle_words import stratified

        splitter = RulesSplitter()
        counts: Counter[str] = Counter()
        for document in self._learned():
            counts.update(document[start:end] for start, end in splitter.spans(document))
        fitting = (word for word in counts if len(word) <= longest and word.split() == [word])
        words = sorted(fitting, key=lambda word: (-counts[word], word))[:vocabulary]
        if not words:
            raise ValueError(f"--text={self.name}: no word of at most {longest} characters")
        words.sort(key=len)
        ends_N, draw = np.arange(1, len(words) + 1) / len(words), np.random.default_rng(0)
        return [" ".join(words[i] for i in stratified(ends_N, shape.words, draw)) for _ in range(shape.batch)]

    def chars(self) -> CharVocab:
        """Returns the most frequent characters of the corpus, as many as the config's model has rows for."""
        counts: Counter[str] = Counter()
        for document in self._learned():
            counts.update(document)
        return CharVocab.build(counts, self._config.model.vocab_size)

    def wordpiece(self) -> SubwordTokenizer:
        """Returns a WordPiece tokenizer of at most `PIECES` pieces trained on the corpus, or found in the cache."""
        key = stable_hash("wordpiece", 1, PIECES, LEARNED_CHARS, self._open("all").fingerprint())
        folder = Path(cache_dir(self._config)) / "wordpiece"
        path = folder / f"{key}.txt"
        if not path.exists():
            log.info("training a WordPiece vocabulary of %s pieces on %s (once)", f"{PIECES:,}", self.name)
            folder.mkdir(parents=True, exist_ok=True)
            _train_wordpiece(self._learned(), path)
        return SubwordTokenizer.load(path, lowercase=True)


def _train_wordpiece(documents: Iterator[str], path: Path) -> None:
    """Trains as the `tokenizers` library's own recipe for BERT does: lower case, pieces that occur twice at least."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=PIECES, min_frequency=2, limit_alphabet=1000, special_tokens=special, show_progress=False
    )
    lines = itertools.chain.from_iterable(document.split("\n") for document in documents)
    tokenizer.train_from_iterator(lines, trainer)
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    write_text(path, "".join(f"{piece}\n" for piece, _ in pieces))


def load_wordpiece(path: str) -> SubwordTokenizer:
    """Reads `--bert-vocab`: a folder, a tokenizer.json, or a vocab.txt, which is uncased unless a file beside it tells.

    Raises:
      ValueError: no tokenizer there.
    """
    if path.endswith(".txt") and not os.path.exists(os.path.join(os.path.dirname(path), "tokenizer_config.json")):
        return SubwordTokenizer.load(path, lowercase=True)
    return SubwordTokenizer.load(path)


def distinct_share(texts: list[str]) -> float:
    """Returns the share of distinct words, [CLS] and [SEP] of every text counted as two more."""
    splitter = RulesSplitter()
    words = [text[start:end] for text in texts for start, end in splitter.spans(text)]
    return (len(set(words)) + 2) / (len(words) + 2 * len(texts))
