"""What a recogniser knows, its words and characters, and how words are read: the semi-characters of Sakaguchi et al.

A word is its first character, its last one, and the bag of those between, in lower case (Sakaguchi et al., AAAI 2017,
"Robsut Wrod Reocginiton"; Pruthi et al., ACL 2019, section 3). Open it to change how words are read or stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.durable import write_text
from charlm.core.reading import read_object

WORDS_FILE = "recogniser.json"  # beside the parameters of a recogniser
UNKNOWN = 0  # the label of every word that is not listed
OTHER = 1  # the number of every character that is not listed; 0 is padding


class SemiCharacters(NamedTuple):
    """How words are read.

    Attributes:
      first, last: int32 [..., L], numbers of the first and of the last character, 0 where there is no word.
      inner: uint8 [..., L, A], how often each character occurs between them; A counts the numbers from 1 on.
    """

    first: np.ndarray
    inner: np.ndarray
    last: np.ndarray


class KnownWords:
    """The words that a recogniser can answer with, and the characters that it tells apart.

    Args:
      words: in lower case, in the order of their labels, which begin with 1.
      characters: in the order of their numbers, which begin with 2.
      splitter, language: cut texts into words, see `charlm.text.words.get_splitter`.
      source: names them in error messages.

    Raises:
      ValueError: there is no word, or a word or character occurs twice.
    """

    def __init__(
        self,
        words: Sequence[str],
        characters: Sequence[str],
        splitter: str,
        language: str = "en",
        source: str = "words",
    ) -> None:
        self.words, self.characters = tuple(words), tuple(characters)
        self.splitter, self.language = splitter, language
        if not self.words or not all(self.words):
            raise ValueError(f"{source}: expected words, none empty, got {len(self.words)}")
        for what, listed in (("word", self.words), ("character", self.characters)):
            if len(set(listed)) < len(listed):
                twice = next(one for one, count in Counter(listed).items() if count > 1)
                raise ValueError(f"{source}: expected distinct {what}s, got {twice!r} twice")
        self._labels = {word: label for label, word in enumerate(self.words, 1)}
        self._numbers = {char: number for number, char in enumerate(self.characters, OTHER + 1)}

    @classmethod
    def build(cls, counts: Mapping[str, int], words: int, characters: int, splitter: str, language: str) -> KnownWords:
        """Returns the most frequent words and the most frequent characters of them; ties in order of code points.

        Args:
          counts: how often each word occurs, in any case.
          words, characters: how many are kept at most.

        Raises:
          ValueError: there is no word.
        """
        lower: Counter[str] = Counter()
        for word, count in counts.items():
            lower[word.lower()] += count
        kept = sorted(lower, key=lambda word: (-lower[word], word))[:words]
        letters: Counter[str] = Counter()
        for word in kept:
            for char in word:
                letters[char] += lower[word]
        listed = sorted(letters, key=lambda char: (-letters[char], char))[:characters]
        return cls(kept, listed, splitter, language, "data.train")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KnownWords:
        """Reads the file that `save` writes; ValueError, naming the file, if it is of another kind."""
        told = read_object(path)
        try:
            return cls(told["words"], told["characters"], told["splitter"], told["language"], str(path))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} does not hold the words of a recogniser: {error!r}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that `load` reads, atomically."""
        write_text(path, json.dumps(self._told(), ensure_ascii=False, indent=0) + "\n")

    def _told(self) -> dict[str, str | list[str]]:
        return {
            "words": list(self.words),
            "characters": list(self.characters),
            "splitter": self.splitter,
            "language": self.language,
        }

    def digest(self) -> str:
        """Returns the SHA-256 of all of it in hexadecimal: equal on every machine for equal words."""
        return hashlib.sha256(json.dumps(self._told(), separators=(",", ":")).encode("ascii")).hexdigest()

    @property
    def size(self) -> int:
        """The number of labels, `UNKNOWN` included."""
        return len(self.words) + 1

    @property
    def alphabet(self) -> int:
        """A, the number of characters, `OTHER` included."""
        return len(self.characters) + 1

    def word(self, label: int) -> str:
        """Returns the word of a label; "" for `UNKNOWN`."""
        return self.words[label - 1] if label else ""

    def labels(self, words: Sequence[str]) -> np.ndarray:
        """Returns the label of each word, int32 [W]; case does not count."""
        return np.array([self._labels.get(word.lower(), UNKNOWN) for word in words], np.int32)

    def read(self, words: Sequence[str]) -> SemiCharacters:
        """Returns what is read of each word, arrays [W] and [W, A]; a word of one character begins and ends with it."""
        first_W, last_W = np.zeros(len(words), np.int32), np.zeros(len(words), np.int32)
        inner_WA = np.zeros((len(words), self.alphabet), np.uint8)
        for n, word in enumerate(words):
            numbers = [self._numbers.get(char, OTHER) for char in word.lower()]
            first_W[n], last_W[n] = numbers[0], numbers[-1]
            bag_A = np.bincount(np.array(numbers[1:-1], np.int64) - 1, minlength=self.alphabet)
            inner_WA[n] = np.minimum(bag_A, 255)  # a URL may be longer than a byte counts
        return SemiCharacters(first_W, inner_WA, last_W)
