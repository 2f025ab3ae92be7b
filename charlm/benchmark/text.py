"""The texts of the benchmark, the same for every path, and BERT's vocabulary.

Texts are substrings of one corpus, either consecutive or drawn from all over it, or pairs of the latter. Open it to see
how texts of equal length in words are chosen.
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

BERT_PIECES = 30_522  # size of the vocabulary of BERT-base, uncased
LEARNED_CHARS = 50_000_000  # maximum text for learning a vocabulary, so that it takes minutes for any corpus
TRAINED = "trained on this corpus, which favours BERT"
CONSECUTIVE, DRAWN, PAIRS, FREQUENT = "consecutive", "drawn", "pairs, drawn", "frequent words"
PAIR = "\x1f"  # stands between the two sentences of a pair; Unicode's separator of units
SHORTER = 0.4  # least share of a pair's words in either sentence: MRPC's shorter one has 2/3 of the longer one's words
DRAWN_FROM = 64  # drawn texts are spread over this many times their own words, or over a smaller corpus
SPECIALS = 3  # [CLS] and two [SEP] of a pair
ENDS = (".", "!", "?")
_BETWEEN = "\n\n"


@dataclasses.dataclass(frozen=True)
class TextShape:
    """The shape of a batch: number of texts, and words of each text, including [CLS] and [SEP]."""

    batch: int
    words: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.words} words"

    def drawn_lengths(self) -> list[int]:
        """Returns the number of words of each text of a drawn batch, the same for every model.

        The lengths are spread evenly from half to one and a half times `words`, in random order; their sum is that of
        texts of equal length.

        Raises:
          ValueError: the shape is too small for lengths to vary.
        """
        most = min(self.words // 2, self.words - 3)  # largest deviation; a text has 3 at least: [CLS], a word, [SEP]
        if self.batch < 2 or most < 1:
            raise ValueError(f"--drawn: {self} cannot vary in length: expected two texts of four words at least")
        made = [self.words + round(most * (2 * i - self.batch + 1) / (self.batch - 1)) for i in range(self.batch)]
        random.Random(0).shuffle(made)
        return made

    def check_pairs(self) -> None:
        """Raises ValueError if the shape is too small for pairs, or for lengths to vary."""
        if min(self.drawn_lengths()) < SPECIALS + 2:
            raise ValueError(
                f"--pairs: {self} are too few: expected {SPECIALS + 2} words in the shortest pair at least"
            )


class Corpus:
    """The corpus that the user names; of the built-in corpus, only the held-out part is used for texts."""

    def __init__(self, config: ml_collections.ConfigDict) -> None:
        """Takes the only corpus of `config.data.train`, which is opened when it is read (`open_source`)."""
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
        """Yields the documents from which vocabularies are learned."""
        left = LEARNED_CHARS
        for document in self._documents("all"):
            yield document[:left]
            left -= len(document)
            if left <= 0:
                return

    def _words(self, count: int) -> tuple[str, list[Span]]:
        """Returns text of at least `count` words (all of the corpus if it has fewer), and the offsets of the words."""
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

    def texts(self, shape: TextShape) -> list[str]:
        """Returns the first consecutive texts of the corpus that have exactly the words of the shape.

        A text is the substring of the corpus from its first word to its last, so that every model can cut it in its own
        way. If the splitter would cut a text differently out of its context, the text begins one word later.

        Raises:
          ValueError: the shape has no room for a word, or the corpus has too few words.
        """
        room = shape.words - 2
        if room < 1 or shape.batch < 1:
            raise ValueError(f"a batch of {shape}: expected a text, and three words at least: [CLS], a word, [SEP]")
        _, spans = self._words(shape.batch * room * 5 // 4 + 64)  # a reserve, as some words are left out
        made, at = [], 0
        for _ in range(shape.batch):
            text, at = self._cut(spans, at, room, shape)
            made.append(text)
        return made

    def drawn(self, shape: TextShape, batches: int = 1, specials: int = 2) -> list[list[str]]:
        """Returns batches of texts from all over the corpus, with the lengths of `TextShape.drawn_lengths`.

        The texts of a batch are cut as in `texts`, never overlap, and are spread evenly over the corpus; the texts of
        other batches lie between them. The first batch does not depend on the number of batches.

        Args:
          specials: how many of the words of each text are special ones, which are not cut from the corpus.

        Raises:
          ValueError: the shape is too small for lengths to vary, or the corpus has too few words.
        """
        rooms = [words - specials for words in shape.drawn_lengths()]
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

    def pairs(self, shape: TextShape) -> list[str]:
        """Returns pairs of adjacent stretches from all over the corpus, with the lengths of `TextShape.drawn_lengths`.

        They have the lengths of MRPC's sentences, of 5 to 40 words, the shorter with at least two thirds as many as the
        longer (Dolan and Brockett, 2005), for pairs of 23 to 69 words with [CLS] and two [SEP]. A pair is parted at the
        end of a sentence if one lies in these bounds. Its halves go on in the same text, but are no paraphrases.

        Raises:
          ValueError: the shape is too small, or the corpus has too few words.
        """
        shape.check_pairs()
        (texts,) = self.drawn(shape, specials=SPECIALS)
        draw = random.Random(1)
        return [_parted(text, draw.uniform(SHORTER, 1 - SHORTER)) for text in texts]

    def _cut(self, spans: list[Span], at: int, room: int, shape: TextShape) -> tuple[str, int]:
        """Returns the first text of `room` words at or after word `at` that the splitter cuts alike out of its context.

        Also returns the index of the word after the text.
        """
        splitter = RulesSplitter()
        while len(inside := spans[at : at + room]) == room:
            start = inside[0][0]
            text = self._stream[start : inside[-1][1]]
            if splitter.spans(text) == [(a - start, b - start) for a, b in inside]:
                return text, at + room
            at += 1
        raise ValueError(f"--text={self.name}: {len(spans):,} words are too few for a batch of {shape}")

    def stretch(self, words: int) -> str:
        """Returns consecutive text of `words` words, or all text if the corpus has fewer."""
        stream, spans = self._words(words)
        return stream[: spans[min(words, len(spans)) - 1][1]] if spans and words else ""

    def frequent(self, shape: TextShape, vocabulary: int, longest: int) -> list[str]:
        """Returns texts of random frequent words, joined by spaces; the same for every model.

        The words are drawn with equal chances from the most frequent words of the corpus, as
        `charlm.families.xrayemb.cycle_words` draws them.

        Args:
          shape: the number of texts, and of words in each.
          vocabulary: the number of frequent words.
          longest: the maximum number of characters of a word.

        Raises:
          ValueError: the corpus has no such word.
        """
        from charlm.families.xrayemb.cycle_words import stratified

        counts = self.counts()
        fitting = (word for word in counts if len(word) <= longest and word.split() == [word])
        words = sorted(fitting, key=lambda word: (-counts[word], word))[:vocabulary]
        if not words:
            raise ValueError(f"--text={self.name}: no word of at most {longest} characters")
        words.sort(key=len)
        ends_N, draw = np.arange(1, len(words) + 1) / len(words), np.random.default_rng(0)
        return [" ".join(words[i] for i in stratified(ends_N, shape.words, draw)) for _ in range(shape.batch)]

    def counts(self) -> Counter[str]:
        """Returns how often each word of the corpus occurs, in the text from which vocabularies are learned."""
        splitter = RulesSplitter()
        counts: Counter[str] = Counter()
        for document in self._learned():
            counts.update(document[start:end] for start, end in splitter.spans(document))
        return counts

    def chars(self) -> CharVocab:
        """Returns the most frequent characters of the corpus, as many as the model of the config has rows for."""
        counts: Counter[str] = Counter()
        for document in self._learned():
            counts.update(document)
        return CharVocab.build(counts, self._config.model.vocab_size)

    def wordpiece(self) -> SubwordTokenizer:
        """Returns a WordPiece tokenizer of at most `BERT_PIECES`, trained on the corpus or read from the cache."""
        key = stable_hash("wordpiece", 1, BERT_PIECES, LEARNED_CHARS, self._open("all").fingerprint())
        folder = Path(cache_dir(self._config)) / "wordpiece"
        path = folder / f"{key}.txt"
        if not path.exists():
            log.info("training a WordPiece vocabulary of %s pieces on %s (once)", f"{BERT_PIECES:,}", self.name)
            folder.mkdir(parents=True, exist_ok=True)
            _train_wordpiece(self._learned(), path)
        return SubwordTokenizer.load(path, lowercase=True)


def sentences(text: str) -> list[str]:
    """Returns the two sentences of a pair, or the text itself."""
    return text.split(PAIR)


def _parted(text: str, share: float) -> str:
    """Returns a text as a pair, which has a share of its words in the first sentence, or nearly so.

    Raises:
      ValueError: the splitter would cut the words otherwise wherever the text is parted.
    """
    splitter = RulesSplitter()
    spans = splitter.spans(text)
    inside = [n for n in range(1, len(spans)) if SHORTER <= n / len(spans) <= 1 - SHORTER] or range(1, len(spans))
    ended = lambda n: text[spans[n - 1][0] : spans[n - 1][1]] in ENDS
    for n in sorted(inside, key=lambda n: (not ended(n), abs(n - share * len(spans)))):
        first, second = text[: spans[n - 1][1]], text[spans[n][0] :]
        if (len(splitter.spans(first)), len(splitter.spans(second))) == (n, len(spans) - n):
            return first + PAIR + second
    raise ValueError(f"--pairs: no place to part {text!r:.80}")


def _train_wordpiece(documents: Iterator[str], path: Path) -> None:
    """Trains a vocabulary by the recipe of `tokenizers` for BERT: lower case, pieces that occur at least twice."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=BERT_PIECES, min_frequency=2, limit_alphabet=1000, special_tokens=special, show_progress=False
    )
    lines = itertools.chain.from_iterable(document.split("\n") for document in documents)
    tokenizer.train_from_iterator(lines, trainer)
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    write_text(path, "".join(f"{piece}\n" for piece, _ in pieces))


def load_wordpiece(path: str) -> SubwordTokenizer:
    """Reads `--bert-vocab`: a folder, a tokenizer.json, or a vocab.txt.

    A vocab.txt is uncased, unless a tokenizer_config.json beside it says otherwise.

    Raises:
      ValueError: there is no tokenizer.
    """
    if path.endswith(".txt") and not os.path.exists(os.path.join(os.path.dirname(path), "tokenizer_config.json")):
        return SubwordTokenizer.load(path, lowercase=True)
    return SubwordTokenizer.load(path)


def distinct_share(texts: list[str]) -> float:
    """Returns the share of distinct words; [CLS] and [SEP] of every text count as words."""
    splitter, parts = RulesSplitter(), [part for text in texts for part in sentences(text)]
    words = [part[start:end] for part in parts for start, end in splitter.spans(part)]
    return (len(set(words)) + 2) / (len(words) + len(texts) + len(parts))
