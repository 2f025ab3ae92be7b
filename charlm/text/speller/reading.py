"""Finds which known words a text with typing errors means: words, words run together, words cut in two, leet.

A text is read as the cheapest sequence of words: a known word costs its negative log-probability, an unknown one a
constant and something for each letter, and so do edits, spaces that are missing or too many, and signs for letters. So
an unknown word stays as it is unless a known word explains it better. Beside other misspelled words it costs more. With
a context, a word costs less where it fits between the others, and a known word may be read as another. Open it to
change how words of a text depend on each other; `charlm.text.speller.ways` has the ways to read one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from charlm.text.speller.context import Context, Mixture
from charlm.text.speller.lexicon import LONGEST, Lexicon
from charlm.text.speller.settings import WORD, SpellerSettings
from charlm.text.speller.ways import LEAST_EDITED, SHORTEST, Fit, Found, Reading, Ways, moved

_Chunk = tuple[int, str]  # where characters without space between them begin, and the characters


class _Step(NamedTuple):
    """The cheapest way to read a text up to some place: what is added to the step before, by its number."""

    cost: float
    before: int
    readings: tuple[Reading, ...]


class _Read(NamedTuple):
    """A text that was read once: for each chunk its readings, and whether it is changed.

    Two chunks that are read as one word have this reading at the first of them, and are both changed.
    """

    readings: list[tuple[Reading, ...]]
    changed: list[bool]


class Speller:
    """Reads texts by the words of a lexicon.

    Args:
      lexicon: the known words, in the form that `normalized` gives words.
      settings: costs and limits.
      normalized: the form in which words are compared, usually without case and marks.
      context: how words fit between others; None: nothing is known about that.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        settings: SpellerSettings | None = None,
        normalized: Callable[[str], str] = str.lower,
        context: Context | None = None,
    ) -> None:
        self.lexicon, self.settings, self.context = lexicon, settings or SpellerSettings(), context
        self._ways = Ways(lexicon, self.settings, normalized)

    def read(self, text: str) -> list[Reading]:
        """Returns the parts of a text that are read as other words, ascending.

        Who misspells other words has more likely misspelled an unknown one, too, than used one that is not known. So a
        text is read again with what its first reading tells about its writer, and then with what each word's
        neighbours, as they are read, say about it.
        """
        chunks = []
        for match in _CHUNK.finditer(text):
            chunk = match[0]
            if not chunks or chunks[-1][1][-1] in _ENDS:  # the capital of a sentence makes no name
                chunk = chunk[:1].lower() + chunk[1:] if len(chunk[:1].lower()) == 1 else chunk
            chunks.append((match.start(), chunk))
        doubts = [0.0] * len(chunks)
        read = self._cheapest(text, chunks, doubts)
        for _ in range(_ROUNDS):
            before, doubts = doubts, self._doubts([chunk for _, chunk in chunks], read.changed)
            if doubts == before:
                break
            read = self._cheapest(text, chunks, doubts)
        if self.context is not None and self.settings.context and len(chunks) > 1:
            surroundings = _Surroundings(self.context, self.settings.context, self._words(text, chunks, read))
            read = self._cheapest(text, chunks, doubts, surroundings)
        return [reading for readings in read.readings for reading in readings]

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

    def _words(self, text: str, chunks: Sequence[_Chunk], read: _Read) -> list[list[Mixture]]:
        """Returns for each chunk the words in it, as they are read."""
        found, at = [], 0
        for (start, chunk), readings in zip(chunks, read.readings, strict=True):
            words: list[Mixture] = []
            at = max(at, start)  # a reading may reach into the next chunk
            for one in readings:
                words += self._plain(text, at, one.start)
                likeliest = one.words[0][0]
                if " " in likeliest:
                    words += [((word, 1.0),) for word in likeliest.split()]
                else:
                    words.append(tuple((word, share) for word, share in one.words if " " not in word))
                at = one.end
            end = start + len(chunk)
            words += self._plain(text, at, end)
            at = max(at, end)
            found.append(words)
        return found

    def _plain(self, text: str, start: int, end: int) -> list[Mixture]:
        """Returns the words of a stretch that is read as it stands."""
        forms = [self._ways.form(match[0]) for match in WORD.finditer(text, start, end)]
        return [((form, 1.0),) if form in self.lexicon else () for form in forms]

    def _cheapest(
        self, text: str, chunks: Sequence[_Chunk], doubts: Sequence[float], around: _Surroundings | None = None
    ) -> _Read:
        """Returns the cheapest readings of a text."""
        steps = [_Step(0.0, 0, ())]  # steps[n]: up to the first n chunks
        for n, ((start, chunk), doubt) in enumerate(zip(chunks, doubts, strict=True)):
            fit = around.fit(n, n) if around else None
            own = self._ways.chunk(chunk, doubt, fit) if len(chunk) <= _LONGEST_CHUNK else Found(0.0)
            step = _Step(steps[n].cost + own.cost, n, moved(own.readings, start))
            joined = self._joined(text, chunks, n, max(doubts[n - 1 : n + 1]), around) if n else None
            if joined is not None and steps[n - 1].cost + joined.cost < step.cost:
                step = _Step(steps[n - 1].cost + joined.cost, n - 1, joined.readings)
            steps.append(step)
        found, place = _Read([()] * len(chunks), [False] * len(chunks)), len(chunks)
        while place:
            step = steps[place]
            found.readings[step.before] = step.readings
            found.changed[step.before : place] = [bool(step.readings)] * (place - step.before)
            place = step.before
        return found

    def _joined(
        self, text: str, chunks: Sequence[_Chunk], n: int, doubt: float, around: _Surroundings | None
    ) -> Found | None:
        """Returns chunk n and the one before it read as one word; None if they cannot be.

        Only if none of the two is known may the whole have edits, and then it has to be long enough to tell much. If
        both are known, one of them has to be so short that it is more often a piece than a word.
        """
        (start, first), (begin, second) = chunks[n - 1 : n + 1]
        if max(len(first), len(second)) > LONGEST:
            return None
        head, tail = _HEAD.fullmatch(first), _TAIL.fullmatch(second)
        if not head or not tail or text[start + len(first) : begin] != " ":
            return None
        words = head[1], tail[1]
        whole, is_one = "".join(words), self._ways.is_known("".join(words))
        known = [word for word in words if self._ways.is_known(word)]
        if known and not is_one:
            return None
        if len(known) == len(words) and (
            min(map(len, words)) > _LONGEST_PIECE or {*map(str.lower, words)} & {*SHORTEST}
        ):
            return None
        if not is_one and len(whole) < LEAST_EDITED:
            return None
        found = self._ways.word(whole, doubt, around.fit(n - 1, n) if around else None)
        if not found.readings and not is_one:
            return None
        begins, ends = start + head.start(1), begin + tail.end(1)
        meant = found.readings[0].words if found.readings else ((self._ways.form(whole), 1.0),)
        return Found(found.cost + self.settings.space, (Reading(begins, ends, meant),))


class _Surroundings:
    """What the words of a text, as they were read, say about each place.

    Args:
      context: how words fit.
      weight: what fits are multiplied by.
      words: of each chunk.
    """

    def __init__(self, context: Context, weight: float, words: Sequence[Sequence[Mixture]]) -> None:
        self._context, self._weight = context, weight
        self._before_NH, self._behind_NH = context.sides([*itertools.chain.from_iterable(words)])
        self._ends = [0, *itertools.accumulate(map(len, words))]

    def fit(self, first: int, last: int) -> Fit:
        """Returns the fit of words in place of the chunks from `first` to `last`.

        Of several words run together it is that of the first.
        """
        around_H = self._before_NH[self._ends[first]] + self._behind_NH[self._ends[last + 1]]

        def fit(words: tuple[str, ...]) -> np.ndarray:
            return self._weight * self._context.fits(around_H, tuple(word.partition(" ")[0] for word in words))

        return fit


_CHUNK = re.compile(r"\S+")
_HEAD = re.compile(r"[\"'(\[“‘]*([^\W\d_]+)")  # a word that may go on in the next chunk
_TAIL = re.compile(r"([^\W\d_]+)[\"'.,;:!?)\]}”’]*")
_ENDS = ".!?"  # of sentences
_ROUNDS = 2  # of reading a text again: a third one changes few words, and two readings may follow each other for ever
_STEP = 0.5  # nats
_LONGEST_CHUNK = 400  # characters; what is longer is no text that somebody typed, and stays as it is
_LONGEST_PIECE = 3


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))
