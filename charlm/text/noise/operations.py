"""Noise operations that draw for every character of a text at once, and the one that deletes and inserts spaces.

Every operation has the form (characters, how, rng) -> edits, in ascending order. The number of random draws depends on
the text only. So with the same seed, a higher rate hits the same characters as a lower one and more (except `swap`).
Open it to change or write an operation for characters, and add a new one to `kinds`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from charlm.text.noise.characters import Characters, other_cases
from charlm.text.noise.edits import Edit
from charlm.text.noise.keyboards import Keyboard
from charlm.text.noise.misspellings import Misspellings


@dataclass(frozen=True)
class How:
    """The settings of an operation; the fields are those of `charlm.text.noise.Noise`."""

    rate: float
    min_length: int
    keyboard: Keyboard
    misspellings: Misspellings | None = None


def drop(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Deletes characters of words."""
    hit, _ = draw(characters.in_words(how.min_length), how.rate, rng)
    return _replace(characters, hit, [""] * len(hit))


def repeat(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Doubles characters of words."""
    hit, _ = draw(characters.in_words(how.min_length), how.rate, rng)
    return _repeat(characters, hit, [2] * len(hit))


def hlm_drop(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Deletes characters, spaces and punctuation too."""
    hit, _ = draw(characters.anywhere(how.min_length), how.rate, rng)
    return _replace(characters, hit, [""] * len(hit))


def hlm_repeat(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Adds one to three copies of characters, spaces and punctuation too."""
    hit, which = draw(characters.anywhere(how.min_length), how.rate, rng)
    return _repeat(characters, hit, (2 + (which * 3).astype(int)).tolist())


def hlm(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Deletes characters or adds one to three copies, with equal probability."""
    hit, which = draw(characters.anywhere(how.min_length), how.rate, rng)
    return _repeat(characters, hit, np.where(which < 0.5, 0, 2 + (which * 6 - 3).astype(int)).tolist())


def case(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Puts characters of words into the other case."""
    hit, _ = draw(characters.in_words(how.min_length), how.rate, rng)
    return _other_case(characters, hit)


def hlm_case(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Draws a new case, upper or lower, for characters, so that half of the characters it hits change."""
    hit, which = draw(characters.anywhere(how.min_length), how.rate, rng)
    return _other_case(characters, hit[which < 0.5])


def swap(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Exchanges neighbouring characters of words; each character is in at most one exchanged pair.

    A pair that overlaps a chosen pair before it cannot be chosen. So a pair that follows another pair is drawn with
    probability rate / (1 - rate), which counts only if the pair before was not chosen: then the probability of every
    pair is the rate, wherever the pair is.
    """
    U = len(characters.codes_U)
    if U < 2:
        return []
    inside = characters.in_words(how.min_length)
    pairs = inside[1:] & inside[:-1] & ~characters.marks_U[:-1] & ~_same_as_next(characters)
    after_pair = np.append(False, pairs[:-1])
    drawn = pairs & (rng.random(U - 1) < np.where(after_pair, how.rate / (1 - how.rate), how.rate))
    place = np.arange(U - 1)
    run_start = np.maximum.accumulate(np.where(drawn, -1, place)) + 1  # of adjacent drawn pairs, keep every second one
    hit = np.flatnonzero(drawn & ((place - run_start) % 2 == 0))
    text = characters.text
    first, second, end = (characters.starts[hit + step].tolist() for step in range(3))
    return [Edit(a, c, text[b:c] + text[a:b]) for a, b, c in zip(first, second, end, strict=True)]


def insert(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Inserts a letter after characters of words.

    The letter is from the keyboard layout of the character, in the same case; if there is no layout, from the text.
    """
    hit, which = draw(characters.in_words(how.min_length), how.rate, rng)
    alphabets = how.keyboard.alphabets
    own = characters.codes_U[characters.letters_U]
    edits = []
    for index, share in zip(hit.tolist(), which.tolist(), strict=True):
        letters = alphabets.get(chr(characters.codes_U[index]))
        letter = letters[int(share * len(letters))] if letters else chr(own[int(share * len(own))])
        place = int(characters.starts[index + 1])
        edits.append(Edit(place, place, letter))
    return edits


def keyboard(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces letters by ones beside them on the keyboard."""
    typed = _typed(how.keyboard)
    on_keyboard = typed[np.minimum(characters.codes_U, len(typed) - 1)]
    hit, which = draw(characters.in_words(how.min_length) & on_keyboard, how.rate, rng)
    near = [how.keyboard.near(chr(code)) for code in characters.codes_U[hit].tolist()]
    new = [letters[int(share * len(letters))] for letters, share in zip(near, which.tolist(), strict=True)]
    return replace_codes(characters, hit, new)


def spaces(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Deletes the whitespace after words or inserts a space inside them, with equal chances if both are possible."""
    edits = []
    for word in between_spaces(characters, how, rng, draws=2):
        if word.join is not None and (word.length < 2 or word.draws[0] < 0.5):
            edits.append(word.join)
        elif word.length > 1:
            edits.append(word.cut(characters, word.draws[1]))
    return edits


class Hit(NamedTuple):
    """A word between spaces that noise hits.

    Attributes:
      first, end: index of its first character and one past its last.
      join: the edit that deletes the whitespace behind it; None if there is none to delete.
      draws: further draws from [0, 1).
    """

    first: int
    end: int
    join: Edit | None
    draws: list[float]

    @property
    def length(self) -> int:
        """The number of characters."""
        return self.end - self.first

    def cut(self, characters: Characters, share: float) -> Edit:
        """Returns the edit that puts a space inside the word, which needs two characters."""
        place = int(characters.starts[self.first + 1 + int(share * (self.length - 1))])
        return Edit(place, place, " ")


def between_spaces(characters: Characters, how: How, rng: np.random.Generator, draws: int) -> Iterator[Hit]:
    """Yields each word between spaces that is long enough with probability `how.rate`, with a number of draws."""
    first_W, end_W = characters.between_spaces_2W
    draws_WN = rng.random((len(first_W), 1 + draws))
    for w in np.flatnonzero((draws_WN[:, 0] < how.rate) & (end_W - first_W >= how.min_length)).tolist():
        first, end = int(first_W[w]), int(end_W[w])
        may_join = w + 1 < len(first_W) and (characters.frozen_U is None or not characters.frozen_U[end])
        gap = (int(characters.starts[end]), int(characters.starts[first_W[w + 1]])) if may_join else None
        yield Hit(first, end, Edit(*gap, "") if gap else None, draws_WN[w, 1:].tolist())


def draw(allowed_U: np.ndarray, rate: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Chooses each allowed character with probability `rate`; returns their indices and a further draw for each."""
    draws_2U = rng.random((2, len(allowed_U)))
    hit = np.flatnonzero((draws_2U[0] < rate) & allowed_U)
    return hit, draws_2U[1, hit]


def _replace(characters: Characters, hit: np.ndarray, new: Iterable[str]) -> list[Edit]:
    """Replaces whole characters."""
    starts, ends = characters.starts[hit].tolist(), characters.starts[hit + 1].tolist()
    return list(map(Edit, starts, ends, new))


def _repeat(characters: Characters, hit: np.ndarray, times: list[int]) -> list[Edit]:
    """Replaces each character by `times` copies of it; 0 deletes the character."""
    text = characters.text
    starts, ends = characters.starts[hit].tolist(), characters.starts[hit + 1].tolist()
    return [Edit(start, end, text[start:end] * n) for start, end, n in zip(starts, ends, times, strict=True)]


def replace_codes(characters: Characters, hit: np.ndarray, new: Iterable[str]) -> list[Edit]:
    """Replaces the first code point of characters; their combining marks stay."""
    starts = characters.starts[hit]
    return list(map(Edit, starts.tolist(), (starts + 1).tolist(), new))


def _other_case(characters: Characters, hit: np.ndarray) -> list[Edit]:
    """Changes the case of the characters, where they have another case."""
    table = other_cases()
    codes = np.minimum(characters.codes_U[hit], len(table) - 1)  # neither the last entry nor any code beyond has a case
    changed = table[codes]
    cased = changed != codes
    return replace_codes(characters, hit[cased], map(chr, changed[cased].tolist()))


def _same_as_next(characters: Characters) -> np.ndarray:
    """Returns, for every character but the last, whether the next character is the same."""
    codes, sizes = characters.codes_U, np.diff(characters.starts)
    same = (codes[1:] == codes[:-1]) & (sizes[1:] == sizes[:-1])
    for index in np.flatnonzero(same & (sizes[1:] > 1)).tolist():
        first, second = characters.pieces(index, index + 2)
        same[index] = first == second
    return same


@functools.cache
def _typed(keyboard: Keyboard) -> np.ndarray:
    """Returns, for every code point, whether the keyboard has it; the last entry stands for all higher code points."""
    codes = [ord(letter) for letter in keyboard.neighbours]
    typed = np.zeros(max(codes) + 2, bool)
    typed[codes] = True
    return typed
