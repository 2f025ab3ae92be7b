"""Makes the texts of alignment: clean for the teacher, noisy for the student, with their words paired.

Open it to change how noise is drawn for a text, or which words of the two texts belong together. Words are paired by
their characters: those of the clean text are followed through the noise. Where noise joined or cut words, the words of
both sides that share characters form one group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from charlm.core.types import JsonObject
from charlm.data.streams import generator
from charlm.data.text_records import TextRecord
from charlm.families.units import Joined, Units
from charlm.text.noise import Noise, NoisedText, Noiser
from charlm.text.noise.misspellings import Misspellings
from charlm.text.words import Span, Splitter

NOISE = 0  # number of the random stream
# Whether a text is to be clean, noisy, or what is drawn for it.
Wanted: TypeAlias = Literal["clean", "noisy", "drawn"]
Part: TypeAlias = tuple[str, Wanted]


class AlignedText(NamedTuple):
    """A text for both sides.

    Attributes:
      part: the clean text, and whether noise was wanted.
      number: the numbers that, with the seed, decided the noise.
      noised: the text as the student reads it, whose noise may have changed nothing; None: the student reads it clean.
    """

    part: Part
    number: tuple[int, ...]
    noised: NoisedText | None


class Side(NamedTuple):
    """A text as one side reads it.

    Attributes:
      row: the row of a batch.
      group_L: int32, the group of words that each position belongs to; -1: to none.
    """

    row: Joined
    group_L: np.ndarray


@dataclasses.dataclass(frozen=True)
class TextNoise:
    """Noise of several kinds; kind and rate are drawn for each text.

    Attributes:
      kinds: one of them is drawn for a text; its rate is drawn evenly from 0 to that of the kind.
      share: share of the texts that get noise.
      seed: seed of the draws.
      misspellings: for kinds that need a list.
    """

    kinds: tuple[Noise, ...]
    share: float
    seed: int
    misspellings: Misspellings | None = None

    def draw(self, text: str, number: tuple[int, ...], wanted: Wanted) -> NoisedText | None:
        """Returns the text with noise; None: it stays clean. The numbers and the seed decide all draws."""
        rng = generator(self.seed, NOISE, *number)
        drawn, kind, rate = rng.random(3).tolist()
        if wanted == "clean" or (wanted == "drawn" and drawn >= self.share):
            return None
        noise = self.kinds[int(kind * len(self.kinds))]
        noiser = Noiser(dataclasses.replace(noise, rate=rate * noise.rate), self.seed, self.misspellings)
        found = noiser.text(text, key=":".join(map(str, number)))
        return found if found.text.strip() else None


def paired(words: Sequence[Span], pieces: Sequence[Span]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the groups of words and of pieces that share characters, int32 [W] and [P]; -1: nothing is shared.

    Args:
      words: ascending spans of characters, that do not overlap; empty ones share nothing.
      pieces: ascending spans of characters of the same text.
    """
    words_W2, pieces_P2 = (np.array(spans, np.int32).reshape(-1, 2) for spans in (words, pieces))
    shares_WP = np.minimum(words_W2[:, None, 1], pieces_P2[None, :, 1]) > np.maximum(
        words_W2[:, None, 0], pieces_P2[None, :, 0]
    )
    group_W, group_P = np.full(len(words_W2), -1, np.int32), np.full(len(pieces_P2), -1, np.int32)
    (found,) = np.nonzero(shares_WP.any(axis=1))
    if not len(found):
        return group_W, group_P
    apart = ~(shares_WP[found[1:]] & shares_WP[found[:-1]]).any(axis=1)
    group_W[found] = np.concatenate([[0], np.cumsum(apart)])
    some_P = shares_WP.any(axis=0)
    group_P[some_P] = group_W[shares_WP.argmax(axis=0)[some_P]]
    return group_W, group_P


def kept(groups: Sequence[np.ndarray], room: int) -> list[int]:
    """Returns how many of the first positions of both texts to keep, so that each fits and no group is cut.

    A group that does not fit into a text alone is cut.

    Args:
      groups: the groups of the positions of both texts, ascending but for -1.
    """
    beyond = [group[room:][group[room:] >= 0] for group in groups]
    first = min((int(group[0]) for group in beyond if len(group)), default=None)
    ends = [len(group) for group in groups]
    if first:
        ends = [int(np.argmax(group >= first)) if (group >= first).any() else len(group) for group in groups]
    return [min(end, room) for end in ends]


@dataclasses.dataclass(frozen=True)
class TextMaker:
    """Makes aligned texts; see `charlm.data.streams.SequenceMaker`. A part is a text of its own.

    Attributes:
      noise: what is put into texts.
      length: most positions of a text, special tokens included.
      both: True: each text comes twice, clean and noisy; False: noise is drawn for each.
      lowercase: whether both sides read texts in lower case.
    """

    noise: TextNoise
    length: int
    both: bool = False
    lowercase: bool = False

    def parts(self, record: TextRecord, number: int) -> Iterator[Part]:
        """Yields the sentences of a record; one that is too long for half of the positions, as several texts."""
        words, start, most = record.texts(), 0, max(1, self.length // 2)
        for count in record.sentences.tolist():
            for first in range(start, start + count, most):
                end = min(first + most, start + count)
                spaces = [False, *record.spaces[first + 1 : end].tolist()]
                pairs = zip(words[first:end], spaces, strict=True)
                text = "".join(f" {word}" if space else word for word, space in pairs)
                text = text.lower() if self.lowercase else text
                if self.both:
                    yield text, "clean"
                    yield text, "noisy"
                else:
                    yield text, "drawn"
            start += count

    def filled(self, used: bool | None, part: Part) -> bool | None:
        """Returns True for the first part; None for a second, because every part is a text of its own."""
        return None if used else True

    def make(self, parts: list[Part], number: tuple[int, ...]) -> AlignedText:
        """Returns the aligned text of a part; the numbers decide the noise."""
        text, wanted = parts[0]
        return AlignedText((text, wanted), number, self.noise.draw(text, number, wanted))

    def halves(self, sequence: AlignedText) -> tuple[AlignedText, AlignedText]:
        """Returns the halves of a text, with noise of their own; ValueError if it has only one character."""
        text, wanted = sequence.part
        if len(text) < 2:
            raise ValueError(f"the tables of a batch leave no room for the text {text!r}")
        middle = len(text) // 2
        middle = max(text.rfind(" ", 1, middle), 0) or middle
        # SeedSequence does not distinguish (a,) from (a, 0), so the halves are numbered 1 and 2.
        one, other = (self.make([(half.strip() or half, wanted)], (*sequence.number, n)) for n, half in
                      enumerate((text[:middle], text[middle:]), start=1))  # fmt: skip
        return one, other

    def held(self, parts: Iterable[Part], returned: Iterable[AlignedText]) -> JsonObject:
        """Returns the state to save as JSON values: the texts, and of returned ones also their numbers."""
        return {"texts": [list(part) for part in parts], "returned": [[list(s.number), *s.part] for s in returned]}

    def restored(self, state: JsonObject) -> tuple[Iterable[Part], Iterable[AlignedText]]:
        """Returns the arguments of `held` from its result; draws are repeated from the numbers."""
        returned = (self.make([(text, wanted)], tuple(number)) for number, text, wanted in state["returned"])
        return ((text, wanted) for text, wanted in state["texts"]), returned


def read(text: AlignedText, student: Units, teacher: Units, splitter: Splitter, length: int) -> tuple[Side, Side]:
    """Returns a text as student and teacher read it, in at most `length` positions; no group of words is cut.

    Args:
      splitter: says what a word of the clean text is.
    """
    clean = text.part[0]
    noised = NoisedText(clean, clean, ()) if text.noised is None else text.noised
    (own,), (theirs,) = student.encode([noised.text]), teacher.encode([clean])
    spans, word_of = words_of(theirs.offsets, splitter.spans(clean))
    group_W, group_P = paired([noised.move(*span) for span in spans], own.offsets)
    inked = np.array([start < end for start, end in theirs.offsets], bool)  # not so a mark of a space
    groups = [group_P, np.where(inked, group_W[word_of], np.int32(-1))]
    ends = kept(groups, length - max(student.specials(False), teacher.specials(False)))
    sides = []
    for units, encoded, group, end in zip((student, teacher), (own, theirs), groups, ends, strict=True):
        row = units.join(encoded.part(0, end))
        group_L = np.full(row.length, -1, np.int32)
        group_L[row.first : row.first + end] = group[:end]
        sides.append(Side(row, group_L))
    return sides[0], sides[1]


def words_of(offsets: Sequence[Span], words: Sequence[Span]) -> tuple[list[Span], np.ndarray]:
    """Returns the spans of the pieces of each word, ascending, and the word of each piece, int [P].

    A piece belongs to the first word that ends behind its beginning, so a mark of a space to the word that follows.

    Args:
      offsets: ascending spans of the pieces.
      words: ascending spans of the words.
    """
    ends, starts = np.array([end for _, end in words]), np.array([start for start, _ in offsets])
    index_P = np.searchsorted(ends, starts, side="right")
    spans: list[Span] = []
    word_of = np.zeros(len(offsets), np.int64)
    for place, (start, end) in enumerate(offsets):
        if place and index_P[place] == index_P[place - 1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
        word_of[place] = len(spans) - 1
    return spans, word_of
