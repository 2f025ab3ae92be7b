"""Finds the words that characters between two spaces may mean: known words near them, words run together, leet.

Each way to read costs nats, and the cheapest is taken. Open it to change how a word, or letters with signs and digits
among them, may be read; `charlm.text.speller.reading` reads whole texts.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from charlm.text.noise.edits import Edit
from charlm.text.noise.evasion import LEET
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.speller.channel import typing_costs
from charlm.text.speller.lexicon import LONGEST, Lexicon
from charlm.text.speller.settings import MARKS, WORD, SpellerSettings

SHORTEST = ("a", "i")  # words of one letter, which are never a part of the word beside them if that is known
# Without their apostrophe these look like slips for the word before it, which often says the opposite.
CONTRACTIONS = MappingProxyType(
    {
        word.replace("'", ""): word
        for word in (
            "aren't", "can't", "couldn't", "didn't", "doesn't", "don't", "hadn't", "hasn't", "haven't", "i'm", "i've",
            "isn't", "mustn't", "shouldn't", "that's", "they're", "they've", "wasn't", "we've", "weren't", "what's",
            "won't", "wouldn't", "you're", "you've",
        )
    }
)  # fmt: skip

Fit = Callable[[tuple[str, ...]], np.ndarray]  # how much less each of K words costs where they stand, nats [K]


class Reading(NamedTuple):
    """A part of a text that is not read as it stands.

    Attributes:
      start, end: its characters.
      words: what it may mean, the likeliest first, with probabilities that sum to 1; spaces are between several.
    """

    start: int
    end: int
    words: tuple[tuple[str, float], ...]

    def edits(self, text: str) -> list[Edit]:
        """Returns the edits that write the likeliest words: only the spaces, if nothing else is missing."""
        old, new = text[self.start : self.end], self.words[0][0]
        if " " in new and new.replace(" ", "") == old.lower():
            spaces = [place for place, char in enumerate(new) if char == " "]
            places = [self.start + place - before for before, place in enumerate(spaces)]
            return [Edit(place, place, " ") for place in places]
        return [Edit(self.start, self.end, new)]


class Found(NamedTuple):
    """The cheapest way to read a stretch; without readings it stays as it is."""

    cost: float
    readings: tuple[Reading, ...] = ()


class Ways:
    """Reads what stands between spaces by the words of a lexicon.

    Args:
      lexicon: the known words, in the form that `normalized` gives words.
      settings: costs and limits.
      normalized: the form in which words are compared.
    """

    def __init__(self, lexicon: Lexicon, settings: SpellerSettings, normalized: Callable[[str], str]) -> None:
        self._lexicon, self._settings = lexicon, settings
        self._keyboard = keyboard_for(settings.language)
        self._form = functools.lru_cache(1 << 16)(lambda word: "".join(normalized(word).split()))
        self._near = functools.lru_cache(1 << 16)(self._near_words)
        self._cut = functools.lru_cache(1 << 16)(self._cut_words)
        self._word = functools.lru_cache(1 << 16)(self._of_word)
        self._chunk = functools.lru_cache(1 << 16)(self._of_chunk)

    def chunk(self, chunk: str, doubt: float, fit: Fit | None = None) -> Found:
        """Returns how characters without space between them are read; places count from the first of them.

        Args:
          doubt: what an unknown word costs more than usual.
          fit: what the words around them say; with it, a known word may be read as another.
        """
        return self._chunk(chunk, doubt) if fit is None else self._of_chunk(chunk, doubt, fit)

    def word(self, word: str, doubt: float, fit: Fit | None = None) -> Found:
        """Returns how letters are read, which stay if they are a known word."""
        return self._word(word, doubt) if fit is None else self._of_word(word, doubt, fit)

    def is_known(self, word: str) -> bool:
        """Returns whether a word is in the lexicon."""
        return self.form(word) in self._lexicon

    def form(self, word: str) -> str:
        """Returns a word in the form in which words are compared."""
        return self._form(word)

    def _cost(self, form: str, fit: Fit | None = None) -> float:
        """Returns the cost of a known word that stands as it is."""
        return -self._settings.prior * self._lexicon.log_prior[form] - (float(fit((form,))[0]) if fit else 0.0)

    def _of_chunk(self, chunk: str, doubt: float, fit: Fit | None = None) -> Found:
        core = chunk.strip(MARKS)
        if core and self.is_known(core):
            form = self.form(core)
            found = Found(self._cost(form, fit))
            if fit is not None and WORD.fullmatch(core):
                before = len(chunk) - len(chunk.lstrip(MARKS))
                found = min(found, self._as_other(form, len(core), doubt, fit), key=lambda found: found.cost)
                found = found._replace(readings=moved(found.readings, before))
            return found
        if _ADDRESS.search(chunk):
            return Found(0.0)
        cost, readings = 0.0, []
        for match in _RUN.finditer(chunk):
            found = self._of_run(match[0], doubt, fit)
            cost += found.cost
            readings += moved(found.readings, match.start())
        return Found(cost, tuple(readings))

    def _as_other(self, form: str, length: int, doubt: float, fit: Fit) -> Found:
        """Returns the cheapest way to read a known word of `length` letters as others, itself among them."""
        if not 2 <= len(form) <= LONGEST or not form.isalpha():
            return Found(math.inf)
        own, more = self._cost(form, fit), max(self._settings.other - doubt, 0.0)
        costs, words = self._near(form)
        costs = np.asarray(costs) + more - fit(words) if words else ()
        ways = [(float(cost), word) for cost, word in zip(costs, words, strict=True) if word != form and cost < own]
        if not ways:
            return Found(math.inf)
        return self._likely(sorted([*ways, (own, form)])[: self._settings.kept], length)

    def _of_run(self, run: str, doubt: float, fit: Fit | None) -> Found:
        """Returns how letters, digits and signs are read that touch each other."""
        parts = list(WORD.finditer(run))
        if not parts:
            return Found(0.0)
        # Letters beside a digit are a part of a name such as THX1138, and stay; beside other signs they are words.
        read = [(one.start(), self.word(one[0], doubt, fit), _DIGIT.search(run, *_around(one, run))) for one in parts]
        plain = Found(
            sum(found.cost for _, found, _ in read) + self._settings.odd * sum(1 for _ in _ODD.finditer(run)),
            tuple(one for start, found, digit in read if not digit for one in moved(found.readings, start)),
        )
        return min([plain, *self._signed(run, doubt, fit)], key=lambda found: found.cost)

    def _signed(self, run: str, doubt: float, fit: Fit | None) -> Iterator[Found]:
        """Yields the ways to read a run in which signs or digits stand for letters."""
        inner = _INNER.search(run)  # signs around it may be punctuation
        for start, signed in dict.fromkeys([(0, run), (inner.start(), inner[0]) if inner else (0, run)]):
            signs = sum(char in _LETTERS for char in signed)
            if not 0 < signs < len(signed) or not 3 <= len(signed) <= LONGEST or signs > _MOST_SIGNS:
                continue
            for decoded in _decoded(signed):
                found = self.word(decoded, doubt, fit)
                if not self.is_known(decoded) and (not found.readings or len(decoded) < LEAST_EDITED):
                    continue
                meant = found.readings[0].words if found.readings else ((self.form(decoded), 1.0),)
                cost = found.cost + self._settings.sign * signs
                yield Found(cost, (Reading(start, start + len(signed), meant),))

    def _of_word(self, word: str, doubt: float, fit: Fit | None = None) -> Found:
        """Returns how letters are read, if an unknown word costs `doubt` more than usual."""
        form, s = self.form(word), self._settings
        if form in self._lexicon:
            return Found(self._cost(form, fit))
        if form in CONTRACTIONS:
            return Found(s.costs.drop + s.unknown / 2, (Reading(0, len(word), ((CONTRACTIONS[form], 1.0),)),))
        unknown = self._unknown(form, word) + doubt
        if not 2 <= len(form) <= LONGEST or not form.isalpha():
            return Found(unknown)
        costs, words = self._near(form)
        cut = self._cut(form, word)
        if cut is not None:
            costs, words = (*costs, cut[0]), (*words, cut[1])
        if fit is not None and words:
            costs = (np.asarray(costs) - fit(words)).tolist()
        ways = sorted((cost, other) for cost, other in zip(costs, words, strict=True) if cost < unknown)[: s.kept]
        return self._likely(ways, len(word)) if ways else Found(unknown)

    def _unknown(self, form: str, word: str) -> float:
        """Returns what it costs that a word is one that is not known; capitals are those of `word`."""
        s = self._settings
        cost = s.unknown + s.letter * len(form) - s.capital * min(sum(map(str.isupper, word)), _MOST_CAPITALS)
        if len(form) == 2:
            cost -= _ABBREVIATED
        derived = self._lexicon.derived(form)
        return cost if derived is None else min(cost, s.prior * derived + s.ending)

    def _likely(self, ways: Sequence[tuple[float, str]], length: int) -> Found:
        """Returns the reading of `length` letters as words, the cheapest first, with how likely each is."""
        weights = [math.exp(ways[0][0] - cost) for cost, _ in ways]
        total = sum(weights)
        words = tuple((word, weight / total) for (_, word), weight in zip(ways, weights, strict=True))
        return Found(ways[0][0], (Reading(0, length, words),))

    def _near_words(self, form: str) -> tuple[tuple[float, ...], tuple[str, ...]]:
        """Returns the costs of the known words as which letters may be read, ascending, and the words.

        They are more than a reading keeps, if it keeps few: a context may prefer one that is not the cheapest.
        """
        rows = self._lexicon.nearest(form, self._settings.candidates)
        if not len(rows):
            return (), ()
        words, codes_KC, prior_K = self._lexicon.of_rows(rows)
        cost_K = typing_costs(form, codes_KC, self._keyboard, self._settings.costs)
        cost_K -= self._settings.prior * prior_K
        cheapest = np.argsort(cost_K, kind="stable")[: max(self._settings.kept, _WEIGHED)].tolist()
        return tuple(cost_K[cheapest].tolist()), tuple(words[place] for place in cheapest)

    def _cut_words(self, form: str, word: str) -> tuple[float, str] | None:
        """Returns the cheapest way to read letters as several known words run together, if there is one.

        Args:
          word: the letters in the case in which they are written.
        """
        spaces = [self._settings.space] * len(form)
        if len(form) == len(word):
            for place in range(1, len(word)):
                if word[place - 1].islower() and word[place].isupper():
                    spaces[place] = self._settings.case
        best: list[tuple[float, tuple[str, ...]] | None] = [(0.0, ())]
        for end in range(1, len(form) + 1):
            ways = []
            for start in range(max(0, end - _LONGEST_PART), end):
                before, part = best[start], form[start:end]
                if before is not None and part in self._lexicon:
                    cost = before[0] + self._cost(part) + (spaces[start] if start else 0.0)
                    ways.append((cost, (*before[1], part)))
            best.append(min(ways, default=None))
        whole = best[-1]
        return None if whole is None else (whole[0], " ".join(whole[1]))


def moved(readings: Sequence[Reading], by: int) -> tuple[Reading, ...]:
    """Returns readings whose places are `by` characters further on."""
    return tuple(one._replace(start=one.start + by, end=one.end + by) for one in readings)


_LETTERS = {sign: tuple(char for char, signs in LEET.items() if sign in signs) for sign in set("".join(LEET.values()))}
_SIGN = "".join(map(re.escape, sorted(_LETTERS)))
_RUN = re.compile(rf"(?:[^\W\d_]|[{_SIGN}])+")
_INNER = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{_SIGN}])*[^\W\d_]")
_ODD = re.compile(rf"(?<=[^\W\d_])[{_SIGN}](?=[^\W_]|[{_SIGN}])|(?<![^\W_])[{_SIGN}](?=[^\W\d_])")
_DIGIT = re.compile(r"\d")
_ADDRESS = re.compile(r"[^\W_]@[^\W_]+\.\w|://|^www\.|^#\w|[^\W\d_]{2}\.[^\W\d_]{2}")
_LONGEST_PART = 20
_WEIGHED = 8  # words near to a typed one that a context may choose from
_ABBREVIATED = 3.0  # nats that an unknown word of two letters costs less, since it is more often an abbreviation
_MOST_CAPITALS = 3  # that tell a name or an abbreviation
LEAST_EDITED = 5  # letters of what is read with edits as well as with spaces or signs
_MOST_DECODED, _MOST_SIGNS = 8, 8


def _around(part: re.Match[str], run: str) -> tuple[int, int]:
    """Returns the range of a part with the characters before and behind it."""
    return max(0, part.start() - 1), min(len(run), part.end() + 1)


def _decoded(signed: str) -> list[str]:
    """Returns words in which each sign is a letter that it may stand for."""
    found = [""]
    for char in signed:
        found = [before + one for before in found for one in _LETTERS.get(char, (char,))][:_MOST_DECODED]
    return found
