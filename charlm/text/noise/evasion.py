"""Noise as people write to get past filters: lookalikes, leet, invisible and combining characters, styled alphabets.

Its texts look nearly as before to a reader, while the code points differ. The invisible ones, lookalikes and reordered
letters are the perturbations of "Bad Characters" (Boucher et al., 2022); letters with marks and other shapes are those
of VIPER (Eger et al., 2019). Open it to change or write such an operation, and add a new one to `kinds`.
"""

from __future__ import annotations

import functools
import string
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from charlm.text.confusables import lookalikes
from charlm.text.noise.characters import Characters, is_letter
from charlm.text.noise.edits import Edit
from charlm.text.noise.keyboards import Keyboard
from charlm.text.noise.operations import How, draw, replace_codes
from charlm.text.noise.words import Change, pick

# Digits and signs for letters, as Wikipedia's article "Leet" lists them for one character.
LEET = MappingProxyType(
    {"a": "4@", "b": "8", "e": "3", "g": "69", "i": "1!", "l": "1", "o": "0", "s": "5$", "t": "7+", "z": "2"}
)
# Zero width space, non-joiner and joiner (Boucher et al., 2022), word joiner, zero width no-break space.
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"
# The block "Combining Diacritical Marks" without U+034F, which is invisible, and without marks that span two letters.
COMBINING = "".join(
    chr(code) for code in range(0x300, 0x370) if unicodedata.combining(chr(code)) in (202, 216, 220, 230, 232)
)
_LRI, _PDI, _RLO, _PDF = "\u2066", "\u2069", "\u202e", "\u202c"
_FULLWIDTH = 0xFEE0  # from an ASCII character to its full-width form
# Where the mathematical alphabets begin, each with its capitals and then its small letters (U+1D400 to U+1D6A3).
_ALPHABETS = tuple(range(0x1D400, 0x1D6A4, 52))
# Where the digits of an alphabet begin, for the alphabets that have digits.
_DIGITS = MappingProxyType(
    {0x1D400: 0x1D7CE, 0x1D538: 0x1D7D8, 0x1D5A0: 0x1D7E2, 0x1D5D4: 0x1D7EC, 0x1D670: 0x1D7F6}
)  # bold, double-struck, sans-serif, sans-serif bold, monospace
# Letters of an alphabet that Unicode had before (the italic h is the Planck constant), whose places are empty.
_OLDER = MappingProxyType(
    {
        0x1D434: {"h": "ℎ"},
        0x1D49C: dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True)),
        0x1D504: dict(zip("CHIRZ", "ℭℌℑℜℨ", strict=True)),
        0x1D538: dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    }
)
# Where Unicode has Latin letters with marks and of other shapes. Each of these code points had its name when VIPER was
# published, and names never change, so the tables made of them are the same with every Python.
_LATIN = ((0xC0, 0x2B0), (0x1D00, 0x1DC0), (0x1E00, 0x1F00), (0x2C60, 0x2C80), (0xA722, 0xA788))
_NEIGHBOURS = 20  # of which the released code of VIPER takes one
# The mark that a letter gets, the first of these with which Unicode has it.
_MARKS = ("CIRCUMFLEX", "CARON", "ACUTE", "DOT ABOVE", "DIAERESIS", "TILDE", "HOOK")


def homoglyph(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces letters by ones of other scripts that look like them."""
    return _exchange(characters, how, rng, _lookalikes())


def leet(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces letters by digits and signs that look like them."""
    return _exchange(characters, how, rng, _leet())


def fullwidth(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces ASCII letters and digits by their full-width forms."""
    return _exchange(characters, how, rng, _fullwidth())


def viper_dces(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces ASCII letters by letters that Unicode describes alike (VIPER with descriptions, Eger et al., 2019)."""
    return _exchange(characters, how, rng, _described())


def viper_eces(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces an ASCII letter by itself with a mark, always the same one (VIPER's easy table, Eger et al., 2019)."""
    return _exchange(characters, how, rng, _marked())


def zero_width(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Inserts a character without width between two characters of a word."""
    return _insert_behind(characters, how, rng, ZERO_WIDTH, inside=True)


def combining(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Puts a combining mark on letters and digits."""
    return _insert_behind(characters, how, rng, COMBINING, inside=False)


def styled(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Writes a whole word in one of the mathematical alphabets; what the alphabet lacks stays."""
    alphabet = pick(_styles(), draws[1])
    assert alphabet is not None
    return 0, len(chars), "".join(alphabet.get(char[0], char[0]) + char[1:] for char in chars)


def bidi(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Exchanges two letters, with controls around them that make a display put them back (Boucher et al., 2022).

    The first letter stays, so that no control stands at the start of a word.
    """
    pairs = [place for place in range(1, len(chars) - 1) if is_letter(chars[place]) and is_letter(chars[place + 1])]
    place = pick([place for place in pairs if chars[place] != chars[place + 1]], draws[1])
    if place is None:
        return None
    before, after = chars[place : place + 2]
    return place, place + 2, f"{_LRI}{_RLO}{_LRI}{after}{_PDI}{_LRI}{before}{_PDI}{_PDF}{_PDI}"


class _Forms(NamedTuple):
    """Other forms of characters, and for every code point whether it has any; the last entry stands for all higher."""

    of: Mapping[str, str]
    listed: np.ndarray

    @classmethod
    def made(cls, table: Mapping[str, str]) -> _Forms:
        codes = [ord(char) for char in table]
        listed = np.zeros(max(codes) + 2, bool)
        listed[codes] = True
        return cls(table, listed)


def _exchange(characters: Characters, how: How, rng: np.random.Generator, table: _Forms) -> list[Edit]:
    """Replaces characters of words by one of those that a table has for them; their combining marks stay."""
    listed = table.listed[np.minimum(characters.codes_U, len(table.listed) - 1)]
    hit, which = draw(characters.in_words(how.min_length) & listed, how.rate, rng)
    forms = [table.of[chr(code)] for code in characters.codes_U[hit].tolist()]
    return replace_codes(
        characters, hit, [new[int(share * len(new))] for new, share in zip(forms, which.tolist(), strict=True)]
    )


def _insert_behind(characters: Characters, how: How, rng: np.random.Generator, chosen: str, inside: bool) -> list[Edit]:
    """Inserts one of the characters `chosen` behind letters of words; if `inside`, not behind the last of a word."""
    allowed = characters.in_words(how.min_length) & characters.letters_U
    if inside:
        ends = np.zeros(len(allowed), bool)
        ends[characters.words_2W[1] - 1] = True
        allowed &= ~ends
    hit, which = draw(allowed, how.rate, rng)
    places = characters.starts[hit + 1].tolist()
    new = [chosen[int(share * len(chosen))] for share in which.tolist()]
    return [Edit(place, place, char) for place, char in zip(places, new, strict=True)]


@functools.cache
def _lookalikes() -> _Forms:
    return _Forms.made(lookalikes())


@functools.cache
def _leet() -> _Forms:
    return _Forms.made(LEET | {letter.upper(): signs for letter, signs in LEET.items()})


@functools.cache
def _fullwidth() -> _Forms:
    return _Forms.made({char: chr(ord(char) + _FULLWIDTH) for char in string.ascii_letters + string.digits})


@functools.cache
def _described() -> _Forms:
    """Returns for each ASCII letter the letters whose names mean it, too, of those with the fewest other words.

    A name means the letter that is its only word of one character, in the case that it states. VIPER compares names as
    bags of words, too.
    """
    found: dict[str, list[tuple[int, str]]] = {letter: [] for letter in string.ascii_letters}
    for code in (code for first, end in _LATIN for code in range(first, end)):
        words = unicodedata.name(chr(code)).split()
        letters, cases = [word for word in words if len(word) == 1], {"SMALL", "CAPITAL"}.intersection(words)
        if words[0] == "LATIN" and len(letters) == len(cases) == 1:
            letter = letters[0] if cases == {"CAPITAL"} else letters[0].lower()
            found[letter].append((len(words), chr(code)))
    return _Forms.made({letter: "".join(one for _, one in sorted(of)[:_NEIGHBOURS]) for letter, of in found.items()})


@functools.cache
def _marked() -> _Forms:
    """Returns for each ASCII letter itself with one mark; Unicode has Q with none of them."""
    of = {unicodedata.name(chr(code)): chr(code) for first, end in _LATIN for code in range(first, end)}
    table = {}
    for letter in string.ascii_letters:
        forms = (of.get(f"{unicodedata.name(letter)} WITH {mark}") for mark in _MARKS)
        if form := next(filter(None, forms), None):
            table[letter] = form
    return _Forms.made(table)


@functools.cache
def _styles() -> tuple[Mapping[str, str], ...]:
    """Returns the mathematical alphabets: each has a form of every ASCII letter, and of digits if it has digits."""
    letters = string.ascii_uppercase + string.ascii_lowercase
    found: list[Mapping[str, str]] = []
    for start in _ALPHABETS:
        table = {letter: chr(start + place) for place, letter in enumerate(letters)} | _OLDER.get(start, {})
        digits = {str(digit): chr(_DIGITS[start] + digit) for digit in range(10)} if start in _DIGITS else {}
        found.append(MappingProxyType(table | digits))
    return tuple(found)
