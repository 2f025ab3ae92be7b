"""What a CharBERT run reads: its corpora as text, and three vocabularies: of subwords, of characters, of words.

A vocabulary is read from a file, taken over from `init_from`, or built from the words of the training corpora and kept
in the cache, under a name that says what it was built from.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import ml_collections

from charlm.data.cache_files import cache_dir, clear_write_errors, replacing, stable_hash
from charlm.data.corpus import EncodedCorpus, encode_corpus, split_corpora
from charlm.data.encode import Progress, log_progress
from charlm.data.forms import TextForm
from charlm.data.records import is_encoded
from charlm.data.text_records import read_text_record
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab, count_symbols
from charlm.text.terms import TermVocab
from charlm.text.words import get_splitter

log = logging.getLogger("charlm")

CHAR_FILE, TERM_FILE = "char_vocab.txt", "term_vocab.txt"
SAMPLE_WORDS = 5_000_000  # words that subwords are built from: more change little, and take minutes
ALPHABET = 1000  # most frequent characters that subwords are built from
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4

Vocab = TypeVar("Vocab")


class SubwordData(NamedTuple):
    """Everything the batches are made from."""

    tokenizer: SubwordTokenizer
    chars: SymbolVocab
    terms: TermVocab
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]

    def digests(self) -> dict[str, str]:
        """Returns what tells the vocabularies from others."""
        return {"subwords": self.tokenizer.digest(), "characters": self.chars.digest(), "words": self.terms.digest()}

    def save(self, folder: Path) -> None:
        """Writes the files of all vocabularies; creates the folder."""
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
      source: folder with vocabularies of what the run starts from; those it lacks are built.
      symbols: characters of the CharBERT that the run starts from; its words must then be known, too.

    Raises:
      ValueError: a corpus or vocabulary cannot be read, nothing is held out, or the subwords are of a family that
        CharBERT is not made for.
    """
    get_splitter(config.text.splitter, config.text.language)  # a missing package is better known before the work
    words = max(config.data.max_length - 2, 1)

    def get_one(spec: str, split: str, key: str) -> EncodedCorpus:
        if is_encoded(spec):
            raise ValueError(f"{key}: {spec!r} holds words encoded for HLM; CharBERT misspells text: name that")
        return encode_corpus(spec, config, split, TextForm(), words, progress, key)

    train, heldout = split_corpora(config, get_one)
    counted: list[Counter[str]] = []

    def counts() -> Counter[str]:
        if not counted:
            counted.append(count_words(train))
        return counted[0]

    text = config.text
    cached = _Cache(cache_dir(config), [os.path.basename(corpus.folder) for corpus in train])
    tokenizer = _read("text.tokenizer", text.tokenizer, SubwordTokenizer.load) or _tokenizer_of(source)
    if tokenizer is None:
        found = cached.get("subwords", text.pieces, lambda path: _build_tokenizer(counts(), text.pieces, path))
        tokenizer = SubwordTokenizer.load(found)
    _check_family(tokenizer)
    chars = _read("text.char_vocab", text.char_vocab, SymbolVocab.load) or symbols
    chars = chars or _beside(source, CHAR_FILE, SymbolVocab.load)
    if chars is None:
        key = f"{text.chars}-{tokenizer.digest()[:8]}"
        build = lambda path: _build_chars(counts(), tokenizer, text.chars).save(path)
        chars = SymbolVocab.load(cached.get("chars", key, build))
    terms = _read("text.term_vocab", text.term_vocab, TermVocab.load) or _beside(source, TERM_FILE, TermVocab.load)
    if terms is None and symbols is not None:
        raise ValueError(f"init_from: {source} has no {TERM_FILE}: name the words that it predicts in text.term_vocab")
    if terms is None:
        build = lambda path: TermVocab.build(counts(), text.terms).save(path)
        terms = TermVocab.load(cached.get("terms", text.terms, build))
    return SubwordData(tokenizer, chars, terms, train, heldout)


def _read(key: str, path: str, load: Callable[[str], Vocab]) -> Vocab | None:
    """Returns what a config key names; None when it names nothing."""
    if not path:
        return None
    try:
        return load(os.path.expanduser(path))
    except OSError as error:  # whose own text has the path once more
        raise ValueError(f"{key}={path!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{key}={path!r}: {error}") from error


def _tokenizer_of(source: Path | None) -> SubwordTokenizer | None:
    if source is None:
        return None
    try:
        return SubwordTokenizer.load(source)
    except ValueError as error:
        raise ValueError(f"init_from: {error}; name the subwords of {source} in text.tokenizer") from error


def _beside(source: Path | None, name: str, load: Callable[[Path], Vocab]) -> Vocab | None:
    return load(source / name) if source is not None and (source / name).is_file() else None


def _check_family(tokenizer: SubwordTokenizer) -> None:
    special = tokenizer.special
    if tokenizer.family not in (None, "bert", "roberta") or None in (special.cls, special.sep, special.mask):
        raise ValueError(
            f"text.tokenizer: subwords of the family {tokenizer.family}; expected bert or roberta, with a mask"
        )


class _Cache:
    """Files built from the same corpora."""

    def __init__(self, root: str, corpora: list[str]) -> None:
        self._root, self._corpora = root, corpora

    def get(self, kind: str, key: object, build: Callable[[str], None]) -> str:
        """Returns the path of a file; builds it when it is not there."""
        path = os.path.join(self._root, f"{kind}-{stable_hash(self._corpora, kind, key)[:16]}")
        with clear_write_errors(self._root):
            if not os.path.exists(path):
                with replacing(path) as temporary:
                    build(temporary)
                log.info("vocabulary of %s built: %s", kind, path)
        return path


def read_texts(corpora: Iterable[EncodedCorpus]) -> Iterator[list[str]]:
    """Yields the words of every record of encoded corpora, in order."""
    from array_record.python.array_record_module import ArrayRecordReader

    for path in itertools.chain.from_iterable(corpus.paths for corpus in corpora):
        reader = ArrayRecordReader(path)
        try:
            for i in range(reader.num_records()):
                yield read_text_record(reader.read([i])[0]).texts()
        finally:
            reader.close()


def count_words(corpora: Iterable[EncodedCorpus]) -> Counter[str]:
    """Returns how often each word of encoded corpora occurs."""
    counts: Counter[str] = Counter()
    for words in read_texts(corpora):
        counts.update(words)
    return counts


def _build_tokenizer(counts: Mapping[str, int], size: int, path: str) -> None:
    """Writes a cased WordPiece vocabulary into the folder `path`; the same words give the same one."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = count_symbols(counts.keys(), counts.values())
    alphabet = sorted(heapq.nlargest(min(ALPHABET, size // 4), letters, key=lambda char: (letters[char], char)))
    # Given as special tokens, letters have ids in this order: the library's own order changes from run to run, and
    # with it which of two equally frequent pairs is merged first.
    first = [*SPECIALS, *alphabet, *(f"##{letter}" for letter in alphabet)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(counts), trainer)
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    os.makedirs(path)
    text = "\n".join(sorted(pieces, key=pieces.__getitem__)) + "\n"
    (Path(path) / "vocab.txt").write_text(text, encoding="utf-8")
    SubwordTokenizer.load(path, lowercase=False).save(path)


def _sample(counts: Mapping[str, int]) -> Iterator[str]:
    """Yields words in their proportions, the most frequent first; of a large corpus, no more than are needed."""
    share = min(1.0, SAMPLE_WORDS / max(sum(counts.values()), 1))
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        yield from itertools.repeat(word, round(counts[word] * share))


def _build_chars(counts: Mapping[str, int], tokenizer: SubwordTokenizer, size: int) -> SymbolVocab:
    """Counts the characters as subwords spell them: byte-level ones by their glyphs."""
    if tokenizer.family != "roberta":
        return SymbolVocab.build(count_symbols(counts.keys(), counts.values()), size)
    words = heapq.nlargest(SAMPLE_WORDS, counts, key=lambda word: (counts[word], word))
    encoded = tokenizer.encode_words_batch([[word] for word in words])
    times = [counts[word] for word, item in zip(words, encoded, strict=True) for _ in item.ids]
    return SymbolVocab.build(count_symbols([tokenizer.token(i) for item in encoded for i in item.ids], times), size)
