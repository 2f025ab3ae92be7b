"""Splits a text into characters and words, the units for which noise is drawn.

A character is one code point together with the combining marks, joiners, variation selectors and skin tones that follow
it; pictographs that are joined to each other are one character. Edits cut only between characters, so no mark is
separated from its letter or moves to the start of a word. (A mark that is already at the start of a word is a character
of its own.) Open this module when noise splits or skips a character that it should not.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_EXTENDS, _SPACE, _WORD, _PICTOGRAPH, _APOSTROPHE = 1, 2, 4, 8, 16
# The table covers planes 0 and 1. Code points from plane 2 up to plane 14 count as Han letters; those from plane 14 on
# (tags and variation selectors) extend the character before them.
_TABLE, _PLANE_14 = 0x20000, 0xE0000
_ZWJ = 0x200D
_EXTENDING = frozenset([0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400)])  # halfwidth voicing marks of kana; skin tones


@dataclass(frozen=True, eq=False)
class Characters:
    """The U characters of a text, and which of them make up its W words.

    Attributes:
      text: the text.
      starts: offset of each character, followed by the length of the text: U + 1 numbers.
      codes_U: the first code point of each character.
      flags_U: the properties of that code point.
      given_2W: index of the first character of each word and one past its last; None if the caller gave no words.
      frozen_U: marks the characters that no edit may touch; None if there are none.
    """

    text: str
    starts: np.ndarray
    codes_U: np.ndarray
    flags_U: np.ndarray
    given_2W: np.ndarray | None = None
    frozen_U: np.ndarray | None = None

    @classmethod
    def of(cls, text: str) -> Characters:
        """Returns the characters of a text; its words are runs of letters and digits, with apostrophes inside."""
        plain = text.isascii()
        encoded = text.encode("ascii") if plain else text.encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(encoded, np.uint8 if plain else np.dtype("<u4")).astype(np.int32)
        flags = _flags()[codes if plain else _rows(codes)]
        extends = (flags & _EXTENDS) > 0
        if not extends.any():
            return cls(text, np.arange(len(text) + 1), codes, flags)
        extends[1:] &= (flags[:-1] & _SPACE) == 0
        extends[0] = False
        # A joiner joins two pictographs; after a letter (Indian scripts) it belongs to that letter only (UAX 29, GB11).
        first = flags[~extends][np.cumsum(~extends) - 1]
        joins = (codes[:-1] == _ZWJ) & ((first[:-1] & _PICTOGRAPH) > 0)
        extends[1:] |= joins & ((flags[1:] & _PICTOGRAPH) > 0)
        starts = np.flatnonzero(~extends)
        return cls(text, np.append(starts, len(text)), codes[starts], flags[starts])

    @classmethod
    def of_words(cls, words: Sequence[str], spaces: Sequence[bool]) -> Characters:
        """Returns the characters of `" ".join(words)`.

        Args:
          words: the words; none may be empty.
          spaces: for each word, whether a space really follows it; where not, no edit may touch the joining space. The
            last value is ignored.
        """
        found = cls.of(" ".join(words))
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        bounds = np.stack([np.append(0, ends[:-1] + 1), ends])
        given = np.searchsorted(found.starts, bounds)
        frozen = None
        if not all(spaces[:-1]):
            frozen = np.zeros(len(found.codes_U), bool)
            frozen[given[1, :-1]] = ~np.array(spaces[:-1], bool)
        return cls(found.text, found.starts, found.codes_U, found.flags_U, given, frozen)

    @functools.cached_property
    def words_2W(self) -> np.ndarray:
        """The words: index of the first character and one past the last; given words need a letter or digit."""
        if self.given_2W is None:
            return _runs(self._of_words_U)
        letters_before = np.append(0, np.cumsum(self.letters_U))
        first_W, end_W = self.given_2W
        return self.given_2W[:, letters_before[end_W] > letters_before[first_W]]

    @property
    def between_spaces_2W(self) -> np.ndarray:
        """The given words, or else the runs without whitespace: index of the first character and one past the last."""
        return _runs((self.flags_U & _SPACE) == 0) if self.given_2W is None else self.given_2W

    @functools.cached_property
    def _of_words_U(self) -> np.ndarray:
        """Which characters are in words if none are given: letters, digits, and an apostrophe between two of them."""
        lettered = (self.flags_U & _WORD) > 0
        quotes = np.flatnonzero(self.flags_U & _APOSTROPHE)
        quotes = quotes[(quotes > 0) & (quotes < len(lettered) - 1)]
        inside = quotes[lettered[quotes - 1] & lettered[quotes + 1]]
        lettered[inside] = True
        return lettered

    @property
    def letters_U(self) -> np.ndarray:
        """Which characters are letters or digits."""
        return (self.flags_U & _WORD) > 0

    @property
    def marks_U(self) -> np.ndarray:
        """Which characters are marks that follow no letter."""
        return (self.flags_U & _EXTENDS) > 0

    def in_words(self, min_length: int, shorter: bool = False) -> np.ndarray:
        """Returns which characters are in words of at least `min_length` characters; if `shorter`, in shorter words."""
        if min_length <= 1 and not shorter and self.given_2W is None:
            return self._of_words_U
        first_W, end_W = self.words_2W
        wanted_W = (end_W - first_W >= min_length) != shorter
        steps = np.zeros(len(self.codes_U) + 1, np.int8)
        steps[first_W[wanted_W]] = 1
        steps[end_W[wanted_W]] = -1
        return np.cumsum(steps[:-1], dtype=np.int8) > 0

    def anywhere(self, min_length: int) -> np.ndarray:
        """Returns which characters may be edited: all but those of words shorter than `min_length` and frozen ones."""
        allowed = ~self.in_words(min_length, shorter=True) if min_length > 1 else np.ones(len(self.codes_U), bool)
        return allowed if self.frozen_U is None else allowed & ~self.frozen_U

    def pieces(self, first: int, end: int) -> Sequence[str]:
        """Returns characters `first` to `end` - 1 as a sequence of strings."""
        start, stop = int(self.starts[first]), int(self.starts[end])
        if stop - start == end - first:  # one code point each, so a slice of the text is that sequence
            return self.text[start:stop]
        bounds = self.starts[first : end + 1].tolist()
        return [self.text[start:stop] for start, stop in itertools.pairwise(bounds)]


def is_mark(char: str) -> bool:
    """Says whether a character is a mark that follows no letter."""
    return bool(Characters.of(char).marks_U[:1].any())


@functools.lru_cache(1 << 14)
def is_letter(char: str) -> bool:
    """Says whether a character is a letter or digit; Han characters newer than Python's Unicode tables count too."""
    return bool(Characters.of(char).letters_U[:1].any())


def other_case(char: str) -> str:
    """Returns a code point in the other case; unchanged if its other case is not a single code point (ß, İ)."""
    for changed in (char.lower(), char.upper()):
        if changed != char and len(changed) == 1:
            return changed
    return char


@functools.cache
def other_cases() -> np.ndarray:
    """Returns, for every code point below the end of the table, the one in the other case, or itself if it has none."""
    return np.array([ord(other_case(chr(code))) for code in range(_TABLE)], np.int32)


def _runs(mask_U: np.ndarray) -> np.ndarray:
    """Returns the first index and one past the last of every run of true values, [2, runs]."""
    steps = np.diff(mask_U.view(np.int8), prepend=0, append=0)
    return np.stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)])


def _rows(codes: np.ndarray) -> np.ndarray:
    """Returns the row of each code point in the table of flags."""
    if not len(codes) or codes.max() < _TABLE:
        return codes
    return np.where(codes < _TABLE, codes, np.where(codes < _PLANE_14, _TABLE, _TABLE + 1))


@functools.cache
def _flags() -> np.ndarray:
    """Returns the flags of every code point of planes 0 and 1, then one row for Han and one for plane 14 and above.

    Building the table takes 0.1 s.
    """
    flags = np.zeros(_TABLE + 2, np.uint8)
    for code in range(_TABLE):
        char = chr(code)
        category = unicodedata.category(char)
        if category in ("Mn", "Mc", "Me", "Cf") or code in _EXTENDING:
            flags[code] = _EXTENDS
        elif char.isalnum():
            flags[code] = _WORD
        elif char.isspace():
            flags[code] = _SPACE
        elif category in ("So", "Sm"):
            flags[code] = _PICTOGRAPH
    flags[[ord("'"), ord("’")]] = _APOSTROPHE
    flags[_TABLE:] = _WORD, _EXTENDS
    return flags
