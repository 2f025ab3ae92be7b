"""How a Char2Subword model reads words: as rows of the table, or as spellings (Aguilar et al., 2021, section 3.3).

Open it to see when a word is spelled. A word is one unit, whatever its length. In full mode every word is spelled; in
hybrid mode a word that is in the vocabulary as a full word is read as its row. Pieces inside words (`##ness`) never
stand for a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from charlm.families.char2subword.model import MODES
from charlm.families.char2subword.spelling import spell_word
from charlm.families.char2subword.spelling_vocab import Entries
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import KEPT_WORDS


def full_words(tokenizer: SubwordTokenizer) -> dict[str, int]:
    """Returns the ids of the entries that are full words, by their characters; special tokens are not included."""
    entries = Entries.of(tokenizer)
    found: dict[str, int] = {}
    for index, surface in zip(entries.ids_N.tolist(), entries.surfaces, strict=True):
        if surface.starts_word:
            found.setdefault(surface.chars, index)
    return found


def special_ids(tokenizer: SubwordTokenizer) -> list[int]:
    """Returns the ids of the special tokens in ascending order: the rows that a model needs in full mode."""
    return sorted({index for index in tokenizer.special if index is not None})


class SpelledWords:
    """Reads words for one model.

    Args:
      tokenizer: the transformer's; gives the normalisation, the special tokens, and in hybrid mode the full words.
      rows: the ids whose rows the table still has, in the order of the rows; empty: the table has all rows.

    Raises:
      ValueError: a special token has no row, or the mode is hybrid but the table was left out.
    """

    def __init__(self, tokenizer: SubwordTokenizer, mode: Literal["full", "hybrid"], rows: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._row_of: Mapping[int, int] | None = {index: row for row, index in enumerate(rows)} if rows else None
        if rows and mode != "full":
            raise ValueError(f"mode={mode!r}: the table of subwords was left out of this model; mode='full' needs none")
        self.entries = {} if mode == "full" else full_words(tokenizer)
        unknown = tokenizer.special.unk
        # A word that normalisation leaves empty (to BERT, a control character) is still a word.
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
        """Returns a word as the tokenizer normalises it, without the spaces that normalisation may add."""
        return "".join(self._tokenizer.normalized(word).split())

    def read(self, words: Iterable[str]) -> list[int | str]:
        """Returns for each word its row of the table, or its spelling.

        The text of a special token ("[SEP]") is read like any other word.
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


def check_mode(value: object) -> None:
    """Raises ValueError unless the value is a mode of Char2Subword (section 3.3), or our gated mode."""
    if value not in MODES:
        raise ValueError(f"mode={value!r}: expected {', '.join(MODES[:-1])} or {MODES[-1]}")
