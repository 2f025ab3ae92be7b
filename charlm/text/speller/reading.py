"""Finds which known words a text with typing errors means: words, words run together, words cut in two, leet.

A text is read as the cheapest sequence of words: a known word costs its negative log-probability, an unknown one a
constant and something for each letter, and so do edits, spaces that are missing or too many, and signs for letters. So
an unknown word stays as it is unless a known word explains it better. Beside other misspelled words it costs more. Open
it to change these costs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from charlm.text.noise.edits import Edit
from charlm.text.noise.evasion import LEET
from charlm.text.noise.keyboards import AUTO, keyboard_for
from charlm.text.speller.channel import Costs, check_numbers, typing_costs
from charlm.text.speller.lexicon import LONGEST, Lexicon

MORE_WITH_WORDS = 5.0  # nats by which an unknown word costs more if the words of the documents are known
SHORTEST = ("a", "i")  # words of one letter, which are never a part of the word beside them if that is known
WORD = re.compile(r"[^\W\d_]+")
MARKS = ".,;:!?\"'()[]{}“”’‘"
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


@dataclasses.dataclass(frozen=True)
class SpellerSettings:
    """Costs in nats, and limits.

    Attributes:
      prior: what the negative log-probability of a known word is multiplied by.
      unknown, letter: cost of an unknown word, and of each of its letters.
      capital: what an unknown word costs less for each of its capitals, since it is more often a name.
      ending: what a known word with a common ending costs beside both.
      space: cost of a space that is missing or too many.
      case: cost of a missing space before a capital behind a small letter ("wasNASA").
      sign: cost of a sign or digit that stands for a letter.
      odd: cost of a sign or digit within or beside a word if it does not.
      candidates: how many words near a typed one are weighed.
      kept: how many of them a reading has at most.
      misspelled: the share of words that a writer of whom nothing is known misspells.
      usual: for how many words of a text that knowledge counts.
      writer: how much the other words of a text tell about its writer. An unknown word costs more by `writer` times the
        nats by which misspelled words are likelier than for a writer of whom nothing is known.
      careless: the most of these nats.
      language: whose keyboard it is; "auto": that of the script.
      costs: those of edits.
    """

    prior: float = 0.8
    unknown: float = 10.0
    letter: float = 0.9
    capital: float = 2.0
    ending: float = 0.0
    space: float = 3.5
    case: float = 1.0
    sign: float = 1.0
    odd: float = 3.0
    candidates: int = 200
    kept: int = 8
    misspelled: float = 0.03
    usual: float = 10.0
    writer: float = 1.5
    careless: float = 6.0
    language: str = AUTO
    costs: Costs = dataclasses.field(default_factory=Costs)

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        check_numbers(self)
        if not 0 < self.misspelled < 1:
            raise ValueError(f"misspelled={self.misspelled!r}: expected a share between 0 and 1")
        if not self.usual >= 1:
            raise ValueError(f"usual={self.usual!r}: expected at least 1 word")


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

    def edits(self, text: str) -> list[Edit]:
        """Returns the edits that write the likeliest words: only the spaces, if nothing else is missing."""
        old, new = text[self.start : self.end], self.words[0][0]
        if " " in new and new.replace(" ", "") == old.lower():
            spaces = [place for place, char in enumerate(new) if char == " "]
            places = [self.start + place - before for before, place in enumerate(spaces)]
            return [Edit(place, place, " ") for place in places]
        return [Edit(self.start, self.end, new)]


class _Found(NamedTuple):
    """The cheapest way to read a stretch; without readings it stays as it is."""

    cost: float
    readings: tuple[Reading, ...] = ()


class _Step(NamedTuple):
    """The cheapest way to read a text up to some place: what is added to the step before, by its number."""

    cost: float
    before: int
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
        self._near = functools.lru_cache(1 << 16)(self._near_words)
        self._word = functools.lru_cache(1 << 16)(self._of_word)
        self._chunk = functools.lru_cache(1 << 16)(self._of_chunk)

    def read(self, text: str) -> list[Reading]:
        """Returns the parts of a text that are read as other words, ascending.

        Who misspells other words has more likely misspelled an unknown one, too, than used one that is not known. So a
        text is read again with what its first reading tells about its writer.
        """
        chunks = []
        for match in _CHUNK.finditer(text):
            chunk = match[0]
            if not chunks or chunks[-1][1][-1] in _ENDS:  # the capital of a sentence makes no name
                chunk = chunk[:1].lower() + chunk[1:] if len(chunk[:1].lower()) == 1 else chunk
            chunks.append((match.start(), chunk))
        doubts = [0.0] * len(chunks)
        found, changed = self._cheapest(text, chunks, doubts)
        for _ in range(_ROUNDS):
            before, doubts = doubts, self._doubts([chunk for _, chunk in chunks], changed)
            if doubts == before:
                break
            found, changed = self._cheapest(text, chunks, doubts)
        return found

    def _doubts(self, chunks: Sequence[str], changed: Sequence[bool]) -> list[float]:
        """Returns for each chunk what an unknown word costs more, by the share of the others that are misspelled."""
        s, misspelled = self.settings, sum(changed)
        is_word = [own or WORD.search(chunk) is not None for chunk, own in zip(chunks, changed, strict=True)]
        words, found = sum(is_word), []
        for own, one in zip(changed, is_word, strict=True):
            share = (s.misspelled * s.usual + misspelled - own) / (s.usual + words - one)
            more = _log_odds(share) - _log_odds(s.misspelled)
            # In steps, so that few ways to read a word are kept.
            found.append(round(s.writer * min(max(more, 0.0), s.careless) / _STEP) * _STEP)
        return found

    def _cheapest(
        self, text: str, chunks: Sequence[tuple[int, str]], doubts: Sequence[float]
    ) -> tuple[list[Reading], list[bool]]:
        """Returns the cheapest readings of a text, and which chunks they change."""
        steps = [_Step(0.0, 0, ())]  # steps[n]: up to the first n chunks
        for n, ((start, chunk), doubt) in enumerate(zip(chunks, doubts, strict=True)):
            own = self._chunk(chunk, doubt) if len(chunk) <= _LONGEST_CHUNK else _Found(0.0)
            step = _Step(steps[n].cost + own.cost, n, _moved(own.readings, start))
            joined = self._joined(text, chunks[n - 1], (start, chunk), max(doubts[n - 1 : n + 1])) if n else None
            if joined is not None and steps[n - 1].cost + joined.cost < step.cost:
                step = _Step(steps[n - 1].cost + joined.cost, n - 1, joined.readings)
            steps.append(step)
        found, changed, place = [], [False] * len(chunks), len(chunks)
        while place:
            step = steps[place]
            found.append(step.readings)
            changed[step.before : place] = [bool(step.readings)] * (place - step.before)
            place = step.before
        return [reading for readings in reversed(found) for reading in readings], changed

    def _joined(self, text: str, one: tuple[int, str], other: tuple[int, str], doubt: float) -> _Found | None:
        """Returns two chunks read as one word; None if they cannot be.

        Only if none of the two is known may the whole have edits, and then it has to be long enough to tell much. If
        both are known, one of them has to be so short that it is more often a piece than a word.
        """
        (start, first), (begin, second) = one, other
        if max(len(first), len(second)) > LONGEST:
            return None
        head, tail = _HEAD.fullmatch(first), _TAIL.fullmatch(second)
        if not head or not tail or text[start + len(first) : begin] != " ":
            return None
        words = head[1], tail[1]
        whole, is_one = "".join(words), self._is_known("".join(words))
        known = [word for word in words if self._is_known(word)]
        if known and not is_one:
            return None
        if len(known) == len(words) and (
            min(map(len, words)) > _LONGEST_PIECE or {*map(str.lower, words)} & {*SHORTEST}
        ):
            return None
        if not is_one and len(whole) < _LEAST_EDITED:
            return None
        found = self._word(whole, doubt)
        if not found.readings and not is_one:
            return None
        begins, ends = start + head.start(1), begin + tail.end(1)
        meant = found.readings[0].words if found.readings else ((self._form(whole), 1.0),)
        return _Found(found.cost + self.settings.space, (Reading(begins, ends, meant),))

    def _is_known(self, word: str) -> bool:
        return self._form(word) in self.lexicon

    def _cost(self, form: str) -> float:
        """Returns the cost of a known word that stands as it is."""
        return -self.settings.prior * self.lexicon.log_prior[form]

    def _form(self, word: str) -> str:
        return "".join(self._normalized(word).split())

    def _of_chunk(self, chunk: str, doubt: float) -> _Found:
        """Returns how characters without space between them are read; places count from the first of them."""
        core = chunk.strip(MARKS)
        if core and self._is_known(core):
            return _Found(self._cost(self._form(core)))
        if _ADDRESS.search(chunk):
            return _Found(0.0)
        cost, readings = 0.0, []
        for match in _RUN.finditer(chunk):
            found = self._of_run(match[0], doubt)
            cost += found.cost
            readings += _moved(found.readings, match.start())
        return _Found(cost, tuple(readings))

    def _of_run(self, run: str, doubt: float) -> _Found:
        """Returns how letters, digits and signs are read that touch each other."""
        parts = list(WORD.finditer(run))
        if not parts:
            return _Found(0.0)
        # Letters beside a digit are a part of a name such as THX1138, and stay; beside other signs they are words.
        read = [(one.start(), self._word(one[0], doubt), _DIGIT.search(run, *_around(one, run))) for one in parts]
        plain = _Found(
            sum(found.cost for _, found, _ in read) + self.settings.odd * sum(1 for _ in _ODD.finditer(run)),
            tuple(one for start, found, digit in read if not digit for one in _moved(found.readings, start)),
        )
        return min([plain, *self._signed(run, doubt)], key=lambda found: found.cost)

    def _signed(self, run: str, doubt: float) -> Iterator[_Found]:
        """Yields the ways to read a run in which signs or digits stand for letters."""
        inner = _INNER.search(run)  # signs around it may be punctuation
        for start, signed in dict.fromkeys([(0, run), (inner.start(), inner[0]) if inner else (0, run)]):
            signs = sum(char in _LETTERS for char in signed)
            if not 0 < signs < len(signed) or not 3 <= len(signed) <= LONGEST or signs > _MOST_SIGNS:
                continue
            for decoded in _decoded(signed):
                found = self._word(decoded, doubt)
                if not self._is_known(decoded) and (not found.readings or len(decoded) < _LEAST_EDITED):
                    continue
                meant = found.readings[0].words if found.readings else ((self._form(decoded), 1.0),)
                cost = found.cost + self.settings.sign * signs
                yield _Found(cost, (Reading(start, start + len(signed), meant),))

    def _of_word(self, word: str, doubt: float) -> _Found:
        """Returns how letters are read, if an unknown word costs `doubt` more than usual."""
        form, s = self._form(word), self.settings
        if form in self.lexicon:
            return _Found(self._cost(form))
        if form in CONTRACTIONS:
            return _Found(s.costs.drop + s.unknown / 2, (Reading(0, len(word), ((CONTRACTIONS[form], 1.0),)),))
        unknown = s.unknown + s.letter * len(form) - s.capital * min(sum(map(str.isupper, word)), _MOST_CAPITALS)
        if len(form) == 2:
            unknown -= _ABBREVIATED
        derived = self.lexicon.derived(form)
        if derived is not None:
            unknown = min(unknown, s.prior * derived + s.ending)
        unknown += doubt
        if not 2 <= len(form) <= LONGEST or not form.isalpha():
            return _Found(unknown)
        ways = [*self._near(form), *self._cut(form, word)]
        ways = sorted((cost, other) for cost, other in ways if cost < unknown)[: s.kept]
        if not ways:
            return _Found(unknown)
        weights = [math.exp(ways[0][0] - cost) for cost, _ in ways]
        total = sum(weights)
        found = tuple((other, weight / total) for (_, other), weight in zip(ways, weights, strict=True))
        return _Found(ways[0][0], (Reading(0, len(word), found),))

    def _near_words(self, form: str) -> tuple[tuple[float, str], ...]:
        """Returns known words as which letters may be read, with their costs."""
        rows = self.lexicon.nearest(form, self.settings.candidates)
        if not len(rows):
            return ()
        words, codes_KC, prior_K = self.lexicon.of_rows(rows)
        cost_K = typing_costs(form, codes_KC, self._keyboard, self.settings.costs)
        cost_K -= self.settings.prior * prior_K
        cheapest = np.argsort(cost_K, kind="stable")[: self.settings.kept].tolist()
        return tuple((float(cost_K[place]), words[place]) for place in cheapest)

    def _cut(self, form: str, word: str) -> Iterator[tuple[float, str]]:
        """Yields the cheapest way to read letters as several known words run together, if there is one.

        Args:
          word: the letters in the case in which they are written.
        """
        spaces = [self.settings.space] * len(form)
        if len(form) == len(word):
            for place in range(1, len(word)):
                if word[place - 1].islower() and word[place].isupper():
                    spaces[place] = self.settings.case
        best: list[tuple[float, tuple[str, ...]] | None] = [(0.0, ())]
        for end in range(1, len(form) + 1):
            ways = []
            for start in range(max(0, end - _LONGEST_PART), end):
                before, part = best[start], form[start:end]
                if before is not None and part in self.lexicon:
                    cost = before[0] + self._cost(part) + (spaces[start] if start else 0.0)
                    ways.append((cost, (*before[1], part)))
            best.append(min(ways, default=None))
        if (whole := best[-1]) is not None:
            yield whole[0], " ".join(whole[1])


_LETTERS = {sign: tuple(char for char, signs in LEET.items() if sign in signs) for sign in set("".join(LEET.values()))}
_SIGN = "".join(map(re.escape, sorted(_LETTERS)))
_CHUNK = re.compile(r"\S+")
_HEAD = re.compile(r"[\"'(\[“‘]*([^\W\d_]+)")  # a word that may go on in the next chunk
_TAIL = re.compile(r"([^\W\d_]+)[\"'.,;:!?)\]}”’]*")
_RUN = re.compile(rf"(?:[^\W\d_]|[{_SIGN}])+")
_INNER = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{_SIGN}])*[^\W\d_]")
_ODD = re.compile(rf"(?<=[^\W\d_])[{_SIGN}](?=[^\W_]|[{_SIGN}])|(?<![^\W_])[{_SIGN}](?=[^\W\d_])")
_DIGIT = re.compile(r"\d")
_ADDRESS = re.compile(r"[^\W_]@[^\W_]+\.\w|://|^www\.|^#\w|[^\W\d_]{2}\.[^\W\d_]{2}")
_ENDS = ".!?"  # of sentences
_ROUNDS = 2  # of reading a text again: a third one changes few words, and two readings may follow each other for ever
_STEP = 0.5  # nats
_LONGEST_CHUNK = 400  # characters; what is longer is no text that somebody typed, and stays as it is
_LONGEST_PART = 20
_LONGEST_PIECE = 3
_ABBREVIATED = 3.0  # nats that an unknown word of two letters costs less, since it is more often an abbreviation
_MOST_CAPITALS = 3  # that tell a name or an abbreviation
_LEAST_EDITED = 5  # letters of what is read with edits as well as with spaces or signs
_MOST_DECODED, _MOST_SIGNS = 8, 8


def _around(part: re.Match[str], run: str) -> tuple[int, int]:
    """Returns the range of a part with the characters before and behind it."""
    return max(0, part.start() - 1), min(len(run), part.end() + 1)


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))


def _decoded(signed: str) -> list[str]:
    """Returns words in which each sign is a letter that it may stand for."""
    found = [""]
    for char in signed:
        found = [before + one for before in found for one in _LETTERS.get(char, (char,))][:_MOST_DECODED]
    return found


def _moved(readings: tuple[Reading, ...], by: int) -> tuple[Reading, ...]:
    return tuple(one._replace(start=one.start + by, end=one.end + by) for one in readings)
