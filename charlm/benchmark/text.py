"""The same real text for every path: consecutive words of one corpus, as substrings of it, and BERT's vocabulary."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ml_collections

from charlm.data.cache_files import cache_dir, replacing, stable_hash
from charlm.data.sources import Source, open_source
from charlm.text.chars import CharVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import RulesSplitter, Span

log = logging.getLogger("charlm")

PIECES = 30_522  # of BERT-base, uncased
LEARNED_CHARS = 50_000_000  # a vocabulary is learned from so much text at most: minutes for any corpus
TRAINED = "trained on this corpus, which favours BERT"
_BETWEEN = "\n\n"


@dataclasses.dataclass(frozen=True)
class Shape:
    """A batch: texts, and the words of each, [CLS] and [SEP] included."""

    batch: int
    words: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.words} words"


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
        stream, spans = self._words(shape.batch * room * 5 // 4 + 64)  # some are left out, see above
        splitter, made, at = RulesSplitter(), [], 0
        while len(made) < shape.batch:
            inside = spans[at : at + room]
            if len(inside) < room:
                raise ValueError(f"--text={self.name}: {len(spans):,} words are too few for a batch of {shape}")
            start = inside[0][0]
            text = stream[start : inside[-1][1]]
            same = splitter.spans(text) == [(a - start, b - start) for a, b in inside]
            made += [text] if same else []
            at += room if same else 1
        return made

    def stretch(self, words: int) -> str:
        """Returns consecutive text of so many words, or all there is."""
        stream, spans = self._words(words)
        return stream[: spans[min(words, len(spans)) - 1][1]] if spans and words else ""

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
    with replacing(str(path)) as temporary:
        Path(temporary).write_text("".join(f"{piece}\n" for piece, _ in pieces), encoding="utf-8")


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
