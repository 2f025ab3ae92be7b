"""Makes the texts of the alignment stage: clean for the teacher, noisy for the student, with their words paired.

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
from charlm.families.char2subword.beside import GatedUnits
from charlm.families.char2subword.units import Char2SubwordUnits
from charlm.text.noise import Noise, NoisedText, Noiser
from charlm.text.noise.misspellings import Misspellings
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import Span

NOISE = 0  # number of the random stream
# Whether a text is to be clean, noisy, or what is drawn for it.
Wanted: TypeAlias = Literal["clean", "noisy", "drawn"]
Part: TypeAlias = tuple[str, Wanted]


class AlignedText(NamedTuple):
    """A text as the student reads it, L positions, and as the teacher reads it, T positions; special tokens included.

    Attributes:
      part: the clean text, and whether noise was wanted.
      number: the numbers that, with the seed, decided the noise.
      noisy: whether the student's text has noise, which may have changed nothing.
      ids_T: int32 [L], what `SpelledBatch.ids_SBL` holds at the student's positions.
      rows_TC: uint16 [L, C], their spellings; zeros at positions without one.
      group_L: int32 [L], the group of words that a position of the student belongs to; -1: to none.
      clean_T: int32 [T], the teacher's subwords.
      clean_group_T: int32 [T], the groups of its positions; -1: none.
    """

    part: Part
    number: tuple[int, ...]
    noisy: bool
    ids_T: np.ndarray
    rows_TC: np.ndarray
    group_L: np.ndarray
    clean_T: np.ndarray
    clean_group_T: np.ndarray


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
      units: how the student reads text.
      tokenizer: how the teacher reads text.
      noise: what is put into texts.
      length: most positions of a text, special tokens included.
      slots: characters of the longest spelling.
      both: True: each text comes twice, clean and noisy; False: noise is drawn for each.
    """

    units: Char2SubwordUnits | GatedUnits
    tokenizer: SubwordTokenizer
    noise: TextNoise
    length: int
    slots: int
    both: bool = False

    def parts(self, record: TextRecord, number: int) -> Iterator[Part]:
        """Yields the sentences of a record; one that is too long for half of the positions, as several texts."""
        words, start, most = record.texts(), 0, max(1, self.length // 2)
        for count in record.sentences.tolist():
            for first in range(start, start + count, most):
                end = min(first + most, start + count)
                spaces = [False, *record.spaces[first + 1 : end].tolist()]
                pairs = zip(words[first:end], spaces, strict=True)
                text = "".join(f" {word}" if space else word for word, space in pairs)
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
        """Returns the aligned text of a part."""
        return self.aligned(parts[0], number)

    def halves(self, sequence: AlignedText) -> tuple[AlignedText, AlignedText]:
        """Returns the halves of a text, with noise of their own; ValueError if it has only one character."""
        text, wanted = sequence.part
        if len(text) < 2:
            raise ValueError("alignment.bucket_rows leave no room for a single character")
        middle = len(text) // 2
        middle = max(text.rfind(" ", 1, middle), 0) or middle
        # SeedSequence does not distinguish (a,) from (a, 0), so the halves are numbered 1 and 2.
        one, other = (self.aligned((half.strip() or half, wanted), (*sequence.number, n)) for n, half in
                      enumerate((text[:middle], text[middle:]), start=1))  # fmt: skip
        return one, other

    def held(self, parts: Iterable[Part], returned: Iterable[AlignedText]) -> JsonObject:
        """Returns the state to save as JSON values: the texts, and of returned ones also their numbers."""
        return {"texts": [list(part) for part in parts], "returned": [[list(s.number), *s.part] for s in returned]}

    def restored(self, state: JsonObject) -> tuple[Iterable[Part], Iterable[AlignedText]]:
        """Returns the arguments of `held` from its result; draws are repeated from the numbers."""
        returned = (self.aligned((text, wanted), tuple(number)) for number, text, wanted in state["returned"])
        return ((text, wanted) for text, wanted in state["texts"]), returned

    def aligned(self, part: Part, number: tuple[int, ...]) -> AlignedText:
        """Returns a text as student and teacher read it; the numbers decide the noise."""
        text, wanted = part
        noised = self.noise.draw(text, number, wanted)
        read = NoisedText(text, text, ()) if noised is None else noised
        clean = self.tokenizer.encode(text)
        units = self.units.fresh()
        (encoded,) = units.encode([read.text])
        inner = [place for place, special in enumerate(clean.special) if not special]
        before, after = (inner[0], len(clean.ids) - inner[-1] - 1) if inner else (len(clean.ids), 0)
        spans, word_of = _words([clean.offsets[n] for n in inner], [clean.words[n] for n in inner])
        group_W, group_P = paired([read.move(*span) for span in spans], encoded.offsets)
        inked = np.array([clean.offsets[n][0] < clean.offsets[n][1] for n in inner], bool)  # not so a mark of a space
        groups = [group_P, np.where(inked, group_W[word_of], np.int32(-1))]
        ends = kept(groups, self.length - max(before + after, units.specials(False)))
        row = units.join(encoded.part(0, ends[0]))
        codes_L, group_L = row.content[:, 0], np.full(row.length, -1, np.int32)
        group_L[row.first : row.first + ends[0]] = group_P[: ends[0]]
        ids, whole = np.array(clean.ids, np.int32), np.full(len(clean.ids), -1, np.int32)
        whole[inner] = groups[1]
        left = np.r_[: before + ends[1], len(ids) - after : len(ids)]
        read_L, rows_LC = units.spellings.ids(codes_L), units.spellings.rows(codes_L)
        return AlignedText(part, number, noised is not None, read_L, rows_LC, group_L, ids[left], whole[left])


def _words(offsets: Sequence[Span], words: Sequence[int | None]) -> tuple[list[Span], np.ndarray]:
    """Returns the spans of words in ascending order, and the word of each piece, int [P]."""
    spans: list[Span] = []
    word_of = np.zeros(len(offsets), np.int64)
    for place, (start, end) in enumerate(offsets):
        if place and words[place] == words[place - 1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
        word_of[place] = len(spans) - 1
    return spans, word_of
