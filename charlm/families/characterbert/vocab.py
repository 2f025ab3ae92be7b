"""The vocabulary of words that CharacterBERT predicts: the most frequent words of its training text (section 3).

Open it to see how words are counted, and which files with such a vocabulary can be read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence

from charlm.core.durable import write_text
from charlm.core.reading import read_bytes
from charlm.families.characterbert.characters import normalized

WORD_VOCAB_FILE = "mlm_vocab.txt"  # stands beside a model; the name is that of the released pre-training code


class WordVocab:
    """An immutable list of words; a word's id is its index."""

    def __init__(self, words: Sequence[str], source: str = "vocabulary of words") -> None:
        """Takes the words in order of their ids.

        Args:
          source: the name of the vocabulary in error messages.

        Raises:
          ValueError: there is no word, or a word occurs twice, is empty or holds white space.
        """
        self.words = tuple(words)
        self._ids = {word: place for place, word in enumerate(self.words)}
        if not self.words or len(self._ids) != len(self.words):
            twice = next((word for word, count in Counter(self.words).items() if count > 1), "")
            raise ValueError(f"{source}: expected distinct words, got {f'{twice!r} twice' if twice else 'none'}")
        if wrong := next((word for word in self.words if word.split() != [word]), None):
            raise ValueError(f"{source}: expected words, got {wrong!r}")

    @classmethod
    def build(cls, counts: Mapping[str, int], size: int, lowercase: bool) -> WordVocab:
        """Builds the vocabulary of the most frequent normalised words, ties in order of code point.

        Raises:
          ValueError: there is no word.
        """
        read: Counter[str] = Counter()
        for word, count in counts.items():
            read[normalized(word, lowercase)] += count
        known = [word for word in read if word.split() == [word]]
        return cls(sorted(known, key=lambda word: (-read[word], word))[:size], "data.train")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WordVocab:
        """Reads UTF-8 text with one word per line; a count before the word, as the released code writes, is ignored.

        Raises:
          ValueError: the file has another format; the message names the file.
          OSError: the file cannot be read.
        """
        try:
            lines = read_bytes(path).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text, a word a line: {error}") from None
        return cls([line.split()[-1] for line in lines if line.strip()], str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that `load` reads, atomically: a reader never sees half a file."""
        write_text(path, "".join(f"{word}\n" for word in self.words))

    @property
    def size(self) -> int:
        """The number of words."""
        return len(self.words)

    def id(self, word: str) -> int | None:
        """Returns the id of a normalised word; None when it is not listed."""
        return self._ids.get(word)

    def digest(self) -> str:
        """Returns the SHA-256 of the list in hexadecimal: equal on every machine for equal vocabularies."""
        return hashlib.sha256(json.dumps(self.words, separators=(",", ":")).encode("ascii")).hexdigest()
