"""The vocabulary of the characters of subwords, which CharBERT reads beside the subwords themselves.

Open it to see what id a character of a subword gets; HLM's vocabulary is in `charlm.text.chars`. Source: CharBERT, Ma
et al., COLING 2020, section 4.1, and the released code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from charlm.core.durable import write_text
from charlm.core.reading import read_text
from charlm.core.types import Json

UNKNOWN = "<unk>"
SEPARATOR = " "  # the spelling of id 0 in the released files; no token has a space in it


class SymbolVocab:
    """An immutable list of characters; the id of a character is its place in the list.

    Id 0 stands for padding, for the slot between tokens, and for any special token. Ids of other characters begin at 1,
    in any order. Characters that are not listed have the id of `<unk>`. A character that is listed twice has its last
    id, as in the authors' reader. Equal lists are equal vocabularies.
    """

    __slots__ = ("_ids", "_symbols")

    def __init__(self, symbols: Sequence[str], source: str = "character vocabulary") -> None:
        """Takes the characters in order of their ids; the list includes the entry of id 0 and `<unk>`.

        Raises:
          ValueError: there is no `<unk>` after place 0, or an entry is longer than one character; the message names
            `source`.
        """
        self._symbols = tuple(symbols)
        for place, symbol in enumerate(self._symbols):
            if not isinstance(symbol, str) or (len(symbol) > 1 and symbol != UNKNOWN):
                raise ValueError(f"{source}: entry {place}: expected one character or {UNKNOWN}, got {symbol!r}")
        if UNKNOWN not in self._symbols[1:]:
            raise ValueError(f"{source}: expected {UNKNOWN} among the entries, got none in {len(self._symbols)}")
        # The first entry is the separator, however it is spelled, so no character may have its id.
        self._ids = {symbol: place for place, symbol in enumerate(self._symbols) if place}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SymbolVocab:
        """Reads UTF-8 text with one character per line, such as `bert_char_vocab` of the released code.

        The id of a character is the number of its line, counted from 0. Lines may end in CRLF.

        Raises:
          ValueError: the file does not hold such text; the message names the file, the entry and what was found.
          OSError: the file cannot be read.
        """
        try:
            text = read_text(path)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text, a character a line: {error}") from None
        return cls(text.removesuffix("\n").split("\n"), str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that `load` reads; a reader never sees a half-written file.

        Raises:
          ValueError: the vocabulary holds a line break, which a file of lines cannot hold.
        """
        if broken := {"\n", "\r"} & set(self._symbols):
            raise ValueError(f"{path}: {broken.pop()!r} cannot be a line of a character vocabulary")
        write_text(path, "\n".join(self._symbols) + "\n")

    @classmethod
    def build(cls, counts: Mapping[str, int], size: int = 1000) -> SymbolVocab:
        """Builds a vocabulary of the most frequent characters; ids follow frequency, ties are broken by code point.

        Args:
          counts: how often each character occurs, see `count_symbols`; whitespace is left out, since tokens have none.
          size: number of rows of the character table, including id 0 and `<unk>` (section 4.1: 1000).

        Raises:
          ValueError: `size` leaves no room for a character, or a key is not a single character.
        """
        if size < 3:
            raise ValueError(f"size of a character vocabulary: expected at least 3, got {size}")
        if odd := [symbol for symbol in counts if len(symbol) != 1]:
            raise ValueError(f"counts: expected single characters, got {odd[0]!r}")
        kept = [symbol for symbol, count in counts.items() if count > 0 and not symbol.isspace()]
        kept.sort(key=lambda symbol: (-counts[symbol], symbol))
        return cls([SEPARATOR, *kept[: size - 2], UNKNOWN])

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Json], source: str = "character vocabulary") -> SymbolVocab:
        """Builds a vocabulary from the result of `to_dict`; raises a ValueError naming `source` for anything else."""
        symbols = mapping.get("symbols") if isinstance(mapping, Mapping) else None
        if not isinstance(symbols, list):
            raise ValueError(f"{source}: expected a list of characters under 'symbols', got {symbols!r}")
        return cls(symbols, source)

    def to_dict(self) -> dict[str, list[str]]:
        """Returns the vocabulary as a JSON object."""
        return {"symbols": list(self._symbols)}

    @property
    def symbols(self) -> tuple[str, ...]:
        """The characters in order of their ids."""
        return self._symbols

    @property
    def size(self) -> int:
        """The number of rows a character table needs: the largest id + 1."""
        return len(self._symbols)

    @property
    def unknown(self) -> int:
        """The id of characters that are not listed."""
        return self._ids[UNKNOWN]

    def ids(self, token: str) -> np.ndarray:
        """Returns the id of each character of a token, int32 [len(token)]; never 0."""
        unknown = self.unknown
        return np.array([self._ids.get(char, unknown) for char in token], np.int32)

    def digest(self) -> str:
        """Returns the SHA-256 of the list in hexadecimal; equal vocabularies have equal digests on every machine."""
        return hashlib.sha256(json.dumps(self._symbols, separators=(",", ":")).encode("ascii")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return self._symbols == other._symbols if isinstance(other, SymbolVocab) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._symbols)

    def __repr__(self) -> str:
        return f"SymbolVocab({len(self._symbols)} characters)"


def count_symbols(tokens: Iterable[str], counts: Iterable[int] | None = None) -> Counter[str]:
    """Returns how often each character occurs.

    Args:
      tokens: tokens as their vocabulary spells them, without the mark of a continuation (`##`).
      counts: how often each token occurs; None: once each.
    """
    total: Counter[str] = Counter()
    if counts is None:
        for token in tokens:
            total.update(token)
        return total
    for token, count in zip(tokens, counts, strict=True):
        for char in token:
            total[char] += int(count)
    return total
