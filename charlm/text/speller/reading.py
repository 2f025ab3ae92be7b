"""Finds which known words a text with typing errors means: words, words run together, words cut in two, leet.

A text is read as the cheapest sequence of words: a known word costs its negative log-probability, an unknown one a
constant and something for each letter, and so do edits, spaces that are missing or too many, and signs for letters. So
an unknown word stays as it is unless a known word explains it better. Open it to change these costs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from charlm.text.noise.evasion import LEET
from charlm.text.noise.keyboards import AUTO, keyboard_for
from charlm.text.speller.channel import Costs, typing_costs
from charlm.text.speller.lexicon import Lexicon

MORE_WITH_WORDS = 9.0  # nats by which an unknown word costs more if the words of the documents are known


@dataclasses.dataclass(frozen=True)
class SpellerSettings:
    """Costs in nats, and limits.

    Attributes:
      prior: what the negative log-probability of a known word is multiplied by.
      unknown, letter: cost of an unknown word, and of each of its letters.
      space: cost of a space that is missing or too many.
      sign: cost of a sign or digit that stands for a letter.
      odd: cost of a sign or digit within or beside a word if it does not.
      candidates: how many words near a typed one are weighed.
      kept: how many of them a reading has at most.
      language: whose keyboard it is; "auto": that of the script.
      costs: those of edits.
    """

    prior: float = 0.8
    unknown: float = 9.5
    letter: float = 0.9
    space: float = 5.0
    sign: float = 1.0
    odd: float = 3.0
    candidates: int = 200
    kept: int = 8
    language: str = AUTO
    costs: Costs = dataclasses.field(default_factory=Costs)


def with_words(settings: SpellerSettings) -> SpellerSettings:
    """Returns settings for a speller that knows the words of the documents, which seldom lack a word that is asked."""
    return dataclasses.replace(settings, unknown=settings.unknown + MORE_WITH_WORDS)


class Reading(NamedTuple):
    """A part of a text that is not read as it stands.

    Attributes:
      start, end: its characters.
      words: what it may mean, the likeliest first, with probabilities that sum to 1; spaces are between several.
    """

    start: int
    end: int
    words: tuple[tuple[str, float], ...]


class _Found(NamedTuple):
    """The ways to read a stretch, cheapest first; `readings` is empty if it stays as it is."""

    cost: float
    readings: tuple[Reading, ...]


class Speller:
    """Reads texts by the words of a lexicon.

    Args:
      lexicon: the known words, in the form that `normalized` gives words.
      settings: costs and limits.
      normalized: the form in which words are compared, usually without case and marks.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        settings: SpellerSettings | None = None,
        normalized: Callable[[str], str] = str.lower,
    ) -> None:
        self.lexicon, self.settings = lexicon, settings or SpellerSettings()
        self._normalized, self._keyboard = normalized, keyboard_for(self.settings.language)
        self._word = functools.lru_cache(1 << 16)(self._of_word)
        self._chunk = functools.lru_cache(1 << 16)(self._of_chunk)

    def read(self, text: str) -> list[Reading]:
        """Returns the parts of a text that are read as other words, ascending."""
        chunks = [(match.start(), match[0]) for match in _CHUNK.finditer(text)]
        # best[n]: the cheapest reading of the first n chunks
        best = [_Found(0.0, ())]
        for n, (start, chunk) in enumerate(chunks):
            own = self._chunk(chunk)
            found = _Found(best[n].cost + own.cost, (*best[n].readings, *_moved(own.readings, start)))
            joined = self._joined(text, chunks[n - 1], (start, chunk)) if n else None
            if joined is not None and best[n - 1].cost + joined.cost < found.cost:
                found = _Found(best[n - 1].cost + joined.cost, (*best[n - 1].readings, *joined.readings))
            best.append(found)
        return list(best[-1].readings)

    def _joined(self, text: str, one: tuple[int, str], other: tuple[int, str]) -> _Found | None:
        """Returns two chunks read as one word; None if they cannot be.

        Two known words are joined only if one is a single letter. Only if none is known may the whole have edits.
        """
        (start, first), (begin, second) = one, other
        head, tail = _HEAD.fullmatch(first), _TAIL.fullmatch(second)
        if not head or not tail or begin - start - len(first) != 1:
            return None
        words = head[1], tail[1]
        known = sum(map(self._is_known, words))
        if known == len(words) and min(map(len, words)) > 1:
            return None
        whole = "".join(words)
        found = self._word(whole) if not known or self._is_known(whole) else _Found(0.0, ())
        if not found.readings and not self._is_known(whole):
            return None
        begins, ends = start + head.start(1), begin + tail.end(1)
        readings = found.readings or (Reading(0, 0, ((self._form(whole), 1.0),)),)
        cost = found.cost + self.settings.space
        return _Found(cost, tuple(one._replace(start=begins, end=ends) for one in readings))

    def _is_known(self, word: str) -> bool:
        return self._form(word) in self.lexicon

    def _cost(self, form: str) -> float:
        """Returns the cost of a known word that stands as it is."""
        return -self.settings.prior * self.lexicon.log_prior[form]

    def _form(self, word: str) -> str:
        return "".join(self._normalized(word).split())

    def _of_chunk(self, chunk: str) -> _Found:
        """Returns how characters without space between them are read; places count from the first of them."""
        words = list(_WORD.finditer(chunk))
        if not words:
            return _Found(0.0, ())
        if self._is_known(chunk):
            return _Found(self._cost(self._form(chunk)), ())
        parts = [(match.start(), self._word(match[0])) for match in words]
        odd = sum(1 for match in _BESIDE.finditer(chunk))
        plain = _Found(
            sum(found.cost for _, found in parts) + self.settings.odd * odd,
            tuple(one for start, found in parts for one in _moved(found.readings, start)),
        )
        signed = min(self._signed(chunk), key=lambda found: found.cost, default=plain)
        return signed if signed.cost < plain.cost else plain

    def _signed(self, chunk: str) -> Iterator[_Found]:
        """Yields the ways to read a chunk in which signs or digits stand for letters."""
        for match in {(m.start(), m[0]): m for m in (_SIGNED.search(chunk), _INNER.search(chunk)) if m}.values():
            signs = [place for place, char in enumerate(match[0]) if char in _LETTERS]
            if not signs or len(signs) == len(match[0]) or len(match[0]) < 3:
                continue
            for decoded in _decoded(match[0]):
                found = self._word(decoded)
                known = self._is_known(decoded)
                if not known and (not found.readings or len(decoded) < 5):
                    continue
                readings = found.readings or (Reading(0, 0, ((self._form(decoded), 1.0),)),)
                cost = found.cost + self.settings.sign * len(signs)
                yield _Found(cost, tuple(one._replace(start=match.start(), end=match.end()) for one in readings))

    def _of_word(self, word: str) -> _Found:
        """Returns how letters are read."""
        form, s = self._form(word), self.settings
        if form in self.lexicon:
            return _Found(self._cost(form), ())
        unknown = s.unknown + s.letter * len(form)
        if len(form) < 2 or not form.isalpha():
            return _Found(unknown, ())
        ways = [*self._near(form), *self._cut(form)]
        ways = sorted((cost, other) for cost, other in ways if cost < unknown)[: s.kept]
        if not ways:
            return _Found(unknown, ())
        weights = [math.exp(ways[0][0] - cost) for cost, _ in ways]
        total = sum(weights)
        found = tuple((other, weight / total) for (_, other), weight in zip(ways, weights, strict=True))
        return _Found(ways[0][0], (Reading(0, len(word), found),))

    def _near(self, form: str) -> Iterator[tuple[float, str]]:
        """Yields known words as which letters may be read, with their costs."""
        rows = self.lexicon.nearest(form, self.settings.candidates)
        if not len(rows):
            return
        words, codes_KC, prior_K = self.lexicon.of_rows(rows)
        cost_K = typing_costs(form, codes_KC, self._keyboard, self.settings.costs)
        cost_K -= self.settings.prior * prior_K
        for place in np.argsort(cost_K, kind="stable")[: self.settings.kept].tolist():
            yield float(cost_K[place]), words[place]

    def _cut(self, form: str) -> Iterator[tuple[float, str]]:
        """Yields the cheapest way to read letters as several known words run together, if there is one."""
        best: list[tuple[float, tuple[str, ...]] | None] = [(0.0, ())]
        for end in range(1, len(form) + 1):
            ways = []
            for start in range(max(0, end - _LONGEST_PART), end):
                before, part = best[start], form[start:end]
                if before is not None and part in self.lexicon:
                    cost = before[0] + self._cost(part) + (self.settings.space if start else 0.0)
                    ways.append((cost, (*before[1], part)))
            best.append(min(ways, default=None))
        if (whole := best[-1]) is not None:
            yield whole[0], " ".join(whole[1])


_CHUNK = re.compile(r"\S+")
_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = {sign: tuple(char for char, signs in LEET.items() if sign in signs) for sign in set("".join(LEET.values()))}
_SIGN = "".join(map(re.escape, sorted(sign for sign in _LETTERS)))
_HEAD = re.compile(r"[\"'(\[“‘]*([^\W\d_]+)")  # a word that may go on in the next chunk
_TAIL = re.compile(r"([^\W\d_]+)[\"'.,;:!?)\]”’]*")
_SIGNED = re.compile(rf"(?:[^\W\d_]|[{_SIGN}])+")
_INNER = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{_SIGN}])*[^\W\d_]")  # without signs at the ends, which may be punctuation
_BESIDE = re.compile(rf"(?<=[^\W\d_])[{_SIGN}](?=[^\W_]|[{_SIGN}])|(?<![^\W_])[{_SIGN}](?=[^\W\d_])")
_LONGEST_PART = 20
_MOST_DECODED = 8


def _decoded(signed: str) -> list[str]:
    """Returns words in which each sign is a letter that it may stand for."""
    found = [""]
    for char in signed:
        found = [before + one for before in found for one in _LETTERS.get(char, (char,))][:_MOST_DECODED]
    return found


def _moved(readings: tuple[Reading, ...], by: int) -> tuple[Reading, ...]:
    return tuple(one._replace(start=one.start + by, end=one.end + by) for one in readings)
