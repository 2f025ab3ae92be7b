"""What words are to a Char2Subword model: rows of the table of subwords, or spellings (Aguilar et al., 2021, 3.3).

A word is one unit, whatever its length. In full mode every word is spelled; in hybrid mode one that is an entry of the
vocabulary as a full word has its row. Pieces inside words (`##ness`) stand for no word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from charlm.families.char2subword.spelling import spell_rows, spell_word
from charlm.families.char2subword.spelling_vocab import Entries
from charlm.text.subwords import SubwordTokenizer

KEPT_WORDS = 2**18  # words that are remembered at most
FIRST_ROWS = 256
BUCKETS = (7, 11, 16)  # character slots of the shorter spellings, mark included; the last bucket holds the longest


def spelling_slots(longest: int) -> tuple[int, ...]:
    """Returns the length buckets of spellings, ascending, up to the longest."""
    return (*(slots for slots in BUCKETS if slots < longest), longest)


def full_words(tokenizer: SubwordTokenizer) -> dict[str, int]:
    """Returns the entries of a vocabulary that are full words, by their characters; special ones are none."""
    entries = Entries.of(tokenizer)
    found: dict[str, int] = {}
    for index, surface in zip(entries.ids_N.tolist(), entries.surfaces, strict=True):
        if surface.starts_word:
            found.setdefault(surface.chars, index)
    return found


def special_ids(tokenizer: SubwordTokenizer) -> list[int]:
    """Returns the ids of the special tokens in ascending order: the rows that a table keeps when words are spelled."""
    return sorted({index for index in tokenizer.special if index is not None})


class SpelledWords:
    """The words of one model.

    Args:
      tokenizer: of the transformer: its normalizer, its special tokens, in hybrid mode its full words.
      rows: the ids whose rows the table still has, in the order of the rows; empty: all, each in its place.

    Raises:
      ValueError: a special token has no row, or hybrid mode has no table.
    """

    def __init__(self, tokenizer: SubwordTokenizer, mode: Literal["full", "hybrid"], rows: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._row_of: Mapping[int, int] | None = {index: row for row, index in enumerate(rows)} if rows else None
        if rows and mode != "full":
            raise ValueError(f"mode={mode!r}: the table of subwords was left out of this model; mode='full' needs none")
        self.entries = {} if mode == "full" else full_words(tokenizer)
        unknown = tokenizer.special.unk
        # A word of nothing that counts (a control character to BERT) is still a word.
        self._nothing: int | str = spell_word("") if unknown is None else self.row(unknown)
        self._known: dict[str, int | str] = {}

    def row(self, index: int) -> int:
        """Returns the row of the table that an id of the tokenizer has; ValueError when it was left out."""
        if self._row_of is None:
            return index
        if index not in self._row_of:
            raise ValueError(f"the table has no row for {self._tokenizer.token(index)!r}: it was left out")
        return self._row_of[index]

    def normalized(self, word: str) -> str:
        """Returns a word as it is spelled: as the tokenizer normalises it, whole, so without spaces."""
        return "".join(self._tokenizer.normalized(word).split())

    def read(self, words: Iterable[str]) -> list[int | str]:
        """Returns for each word the row that it has, or its spelling.

        Special tokens spelled out ("[SEP]") are words like others.
        """
        found = []
        for word in words:
            what = self._known.get(word)
            if what is None:
                what = self._look_up(word)
                if len(self._known) >= KEPT_WORDS:
                    self._known.clear()
                self._known[word] = what
            found.append(what)
        return found

    def _look_up(self, word: str) -> int | str:
        word = self.normalized(word)
        if not word:
            return self._nothing
        index = self.entries.get(word)
        return spell_word(word) if index is None else self.row(index)


class Spellings:
    """Distinct spellings as rows of characters, numbered in the order in which they are met.

    Args:
      vocab: of characters. slots: characters C of a row; longer spellings are cut.
      write: rows uint16 [U, C] of spellings, vocabulary and slots, 0 pads.
    """

    def __init__(self, vocab: Any, slots: int, write: Callable[..., np.ndarray] = spell_rows) -> None:
        self._vocab, self._slots, self._write = vocab, slots, write
        self._numbers: dict[str, int] = {}
        self._rows_NC = np.zeros((FIRST_ROWS, slots), np.uint16)

    def __len__(self) -> int:
        return len(self._numbers)

    def emptied(self) -> Spellings:
        """Returns another one with the same characters, and no spelling yet."""
        return Spellings(self._vocab, self._slots, self._write)

    def codes(self, read: Sequence[int | str]) -> np.ndarray:
        """Returns what `SpelledWords.read` returns as int32 [W]: rows as they are, spelling n as -1 - n."""
        new = [what for what in dict.fromkeys(read) if isinstance(what, str) and what not in self._numbers]
        if new:
            start = len(self._numbers)
            while start + len(new) > len(self._rows_NC):
                self._rows_NC = np.concatenate([self._rows_NC, np.zeros_like(self._rows_NC)])
            self._rows_NC[start : start + len(new)] = self._write(new, self._vocab, self._slots)
            self._numbers.update((spelling, start + n) for n, spelling in enumerate(new))
        return np.array([what if isinstance(what, int) else -1 - self._numbers[what] for what in read], np.int32)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Returns the characters uint16 [..., C] behind codes [...]; zeros where nothing is spelled."""
        spelled = codes < 0
        return np.where(spelled[..., None], self._rows_NC[np.where(spelled, -1 - codes, 0)], np.uint16(0))
