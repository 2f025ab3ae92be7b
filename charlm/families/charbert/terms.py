"""The word vocabulary that noisy language modelling predicts (CharBERT, Ma et al., COLING 2020, section 3.5).

Open it to change which words are predicted, or when a file of words is refused. The vocabulary lists whole words,
lower-cased, most frequent first. All other words are `<unk>`, which is predicted like a word. The vocabulary that
CharacterBERT predicts is another one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from charlm.core.durable import write_text
from charlm.core.reading import read_bytes
from charlm.text.symbols import UNKNOWN


class TermVocab:
    """An immutable list of lower-cased words, including `<unk>`; a word's id is its index. Compares by value."""

    __slots__ = ("_ids", "_terms")

    def __init__(self, terms: Sequence[str], source: str = "term vocabulary") -> None:
        """Takes the words in order of their ids; a word listed twice gets its last id, as in the authors' reader.

        Args:
          source: the name of the vocabulary in error messages.

        Raises:
          ValueError: `<unk>` is missing, or an entry is no word (empty, or with a line break).
        """
        self._terms = tuple(terms)
        for place, term in enumerate(self._terms):
            if not isinstance(term, str) or not term or "\n" in term or "\r" in term:
                raise ValueError(f"{source}: entry {place}: expected a word, got {term!r}")
        self._ids = {term: place for place, term in enumerate(self._terms)}
        if UNKNOWN not in self._ids:
            raise ValueError(f"{source}: expected {UNKNOWN} among the words, got none in {len(self._terms)}")

    @classmethod
    def build(cls, counts: Mapping[str, int], size: int = 30_001) -> TermVocab:
        """Builds the vocabulary of the most frequent words, in order of frequency, then code point; `<unk>` is last.

        Args:
          counts: how often each word occurs; words that differ only in case are counted together.
          size: rows of the prediction layer, `<unk>` included (section 4.1: 30K words; the released file has 30,001).

        Raises:
          ValueError: `size` leaves no room for a word.
        """
        if size < 2:
            raise ValueError(f"size of a term vocabulary: expected at least 2, got {size}")
        lower: dict[str, int] = {}
        for word, count in counts.items():
            term = word.lower()
            lower[term] = lower.get(term, 0) + count
        kept = [term for term, count in lower.items() if count > 0 and term not in ("", UNKNOWN)]
        kept = [term for term in kept if "\n" not in term and "\r" not in term]
        kept.sort(key=lambda term: (-lower[term], term))
        return cls([*kept[: size - 1], UNKNOWN])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TermVocab:
        """Reads UTF-8 text with one word per line, such as the released code's `term_vocab`; an id is a line index.

        Lines may end in CRLF.

        Raises:
          ValueError: the file has another format; the message names the file, the entry and what was found.
          OSError: the file cannot be read.
        """
        try:
            text = read_bytes(path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text, a word a line: {error}") from None
        return cls(text.replace("\r\n", "\n").removesuffix("\n").split("\n"), str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that `load` reads, atomically: a reader never sees half a file."""
        write_text(path, "\n".join(self._terms) + "\n")

    @property
    def terms(self) -> tuple[str, ...]:
        """The words in order of their ids."""
        return self._terms

    @property
    def size(self) -> int:
        """The number of entries, which is that of rows a prediction layer needs."""
        return len(self._terms)

    @property
    def unknown(self) -> int:
        """The id of words that are not listed."""
        return self._ids[UNKNOWN]

    def id(self, word: str) -> int:
        """Returns the id of a word, regardless of its case; that of `<unk>` for unlisted words."""
        return self._ids.get(word.lower(), self.unknown)

    def digest(self) -> str:
        """Returns the SHA-256 of the list in hexadecimal: equal on every machine for equal vocabularies."""
        return hashlib.sha256(json.dumps(self._terms, separators=(",", ":")).encode("ascii")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return self._terms == other._terms if isinstance(other, TermVocab) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._terms)

    def __repr__(self) -> str:
        return f"TermVocab({len(self._terms)} words)"
