"""Builds subword vocabularies (WordPiece and byte-level BPE) from the words of corpora, and keeps them in the cache.

CharBERT, CharacterBERT and XRayEmb use it when the config names no vocabulary. Open it to change how subwords are
chosen, or from how many words. The name of a cached file is a hash of what it was built from; the same words always
give the same vocabulary.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from charlm.core.durable import replacing, write_text
from charlm.core.files import clear_write_errors, load_cached, stable_hash
from charlm.data.corpus import EncodedCorpus
from charlm.data.records import clear_damage, remedy_of
from charlm.data.text_records import read_text_record
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.pieces import byte_of_glyph
from charlm.text.symbols import count_symbols

log = logging.getLogger("charlm")

SAMPLE_WORDS = 5_000_000  # most words that subwords are built from; more words change little and take minutes
ALPHABET = 1000  # number of the most frequent characters that subwords are built from
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
BYTE_SPECIALS = {  # in the order of their ids, as released
    "roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "gpt2": ("<|endoftext|>",),
}

Vocab = TypeVar("Vocab")


class BuiltOnce:
    """Files in the cache that are built once from the same corpora.

    Args:
      root: folder of the cache.
      corpora: the corpora that the files are built from.
    """

    def __init__(self, root: str, corpora: Sequence[EncodedCorpus]) -> None:
        self._root, self._corpora = root, [os.path.basename(corpus.folder) for corpus in corpora]

    def get(self, kind: str, key: object, build: Callable[[str], None], load: Callable[[str], Vocab]) -> Vocab:
        """Returns what `load` reads from the file; `build` first writes the file when it is missing or damaged."""
        path = os.path.join(self._root, f"{kind}-{stable_hash(self._corpora, kind, key)[:16]}")

        def make() -> None:
            try:
                with replacing(path) as temporary:
                    build(temporary)
            except OSError:
                if not os.path.isdir(path):  # else another process built the same folder meanwhile, which is read
                    raise
            log.info("vocabulary of %s built: %s", kind, path)

        with clear_write_errors(self._root):
            return load_cached(path, load, make)


def read_named(key: str, path: str, load: Callable[[str], Vocab]) -> Vocab | None:
    """Loads the file that a config key names, None when it names none; raises ValueError when it cannot be read."""
    if not path:
        return None
    try:
        return load(os.path.expanduser(path))
    except OSError as error:  # str(error) would repeat the path
        raise ValueError(f"{key}={path!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{key}={path!r}: {error}") from error


def tokenizer_of(source: Path | None) -> SubwordTokenizer | None:
    """Returns the tokenizer of the model that a run starts from; None without a model, ValueError when it has none."""
    if source is None:
        return None
    try:
        return SubwordTokenizer.load(source)
    except ValueError as error:
        raise ValueError(f"init_from: {error}; name the subwords of {source} in text.tokenizer") from error


def words_of_records(corpora: Iterable[EncodedCorpus]) -> Iterator[list[str]]:
    """Yields the words of every record of encoded corpora, in order."""
    from array_record.python.array_record_module import ArrayRecordReader

    for name, path in ((corpus.name, path) for corpus in corpora for path in corpus.paths):
        with clear_damage(path, remedy_of(name)):
            reader = ArrayRecordReader(path)
            try:
                for i in range(reader.num_records()):
                    yield read_text_record(reader.read([i])[0]).texts()
            finally:
                reader.close()


def count_words(corpora: Iterable[EncodedCorpus]) -> Counter[str]:
    """Counts how often each word occurs in encoded corpora."""
    counts: Counter[str] = Counter()
    for words in words_of_records(corpora):
        counts.update(words)
    return counts


def build_wordpiece(counts: Mapping[str, int], size: int, path: str) -> None:
    """Writes a cased WordPiece vocabulary into the new folder `path`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = count_symbols(counts.keys(), counts.values())
    alphabet = sorted(heapq.nlargest(min(ALPHABET, size // 4), letters, key=lambda char: (letters[char], char)))
    # Letters are passed as special tokens, so that they get ids in this order. The library's own order changes from
    # run to run, and with it the choice which of two equally frequent pairs is merged first.
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
    write_text(Path(path) / "vocab.txt", text)
    SubwordTokenizer.load(path, lowercase=False).save(path)


def build_byte_level(counts: Mapping[str, int], size: int, path: str, family: str) -> None:
    """Writes a byte-level BPE vocabulary of GPT-2's or RoBERTa's kind into the new folder `path`.

    Every word gets a space before it, as in running text, except words made of punctuation alone.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(BYTE_SPECIALS[family]),
        initial_alphabet=list(byte_of_glyph()),
        show_progress=False,
    )
    spaced = (f" {word}" if any(map(str.isalnum, word)) else word for word in _sample(counts))
    tokenizer.train_from_iterator(spaced, trainer)
    os.makedirs(path)
    tokenizer.model.save(path)  # vocab.json and merges.txt
    SubwordTokenizer.load(path, family=family).save(path)


def _sample(counts: Mapping[str, int]) -> Iterator[str]:
    """Yields words in proportion to their counts, the most frequent first, at most about `SAMPLE_WORDS` of them."""
    share = min(1.0, SAMPLE_WORDS / max(sum(counts.values()), 1))
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        yield from itertools.repeat(word, round(counts[word] * share))
