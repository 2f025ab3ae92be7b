"""The words that noisy language modelling predicts (CharBERT, Ma et al., COLING 2020, section 3.5).

A vocabulary of whole words, lower-cased, most frequent first; all others are `<unk>`, which is predicted like a word.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from charlm.core.durable import write_text
from charlm.core.reading import read_bytes

UNKNOWN = "<unk>"


class TermVocab:
    """An immutable list of lower-cased words, id = place, `<unk>` among them. Equal lists are equal vocabularies."""

    __slots__ = ("_ids", "_terms")

    def __init__(self, terms: Sequence[str], source: str = "term vocabulary") -> None:
        """Takes the words in order of their ids; one that is listed twice has its last id, as in the authors' reader.

        Raises:
          ValueError: `<unk>` is not among them, or one is no word (empty, or with a line break); names `source`.
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
        """Keeps the most frequent words, ids in order of frequency, ties in order of code point; `<unk>` is the last.

        Args:
          counts: how often each word occurs; words that differ in case alone are one.
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
        """Reads UTF-8 text, one word a line, such as `term_vocab` of the released code; line no. = id.

        Lines may end in CRLF.

        Raises:
          ValueError: the file is no such text; the message names file, entry and what was found.
          OSError: it cannot be read.
        """
        try:
            text = read_bytes(path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text, a word a line: {error}") from None
        return cls(text.replace("\r\n", "\n").removesuffix("\n").split("\n"), str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that `load` reads; a reader never sees half a file."""
        write_text(path, "\n".join(self._terms) + "\n")

    @property
    def terms(self) -> tuple[str, ...]:
        """The words in order of their ids."""
        return self._terms

    @property
    def size(self) -> int:
        """Rows that a prediction layer needs."""
        return len(self._terms)

    @property
    def unknown(self) -> int:
        """The id of words that are not listed."""
        return self._ids[UNKNOWN]

    def id(self, word: str) -> int:
        """Returns the id of a word, whatever its case."""
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
