"""Records what noise changed in a text or in words; maps spans, tags and predictions to the noised form and back.

Open it when answers or tags of noised text do not lie where they should.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from charlm.text.words import Span

T = TypeVar("T")


class Edit(NamedTuple):
    """Replaces original[start:end] by `text`: a deletion if `text` is empty, an insertion if start == end."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class NoisedText:
    """A text, its noised form, and the edits between them, which are ascending and do not overlap."""

    original: str
    text: str
    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, original: str, edits: Sequence[Edit]) -> NoisedText:
        """Applies `edits`, which must be ascending and within the text and must not overlap (ValueError)."""
        pieces = []
        position = 0
        for edit in edits:
            start, end, text = edit
            if not position <= start <= end <= len(original):
                raise ValueError(f"{edit}: expected {position} <= start <= end <= {len(original)}")
            pieces += original[position:start], text
            position = end
        pieces.append(original[position:])
        return cls(original, "".join(pieces), tuple(edits))

    def move(self, start: int, end: int) -> Span:
        """Returns where original[start:end] lies in the noised text.

        The span keeps its surviving characters and any text inserted strictly inside it. Replaced characters survive:
        the replacement is matched with the original character by character, and if one of the two is longer, its
        remaining characters go with the last character of the other. So copies of a repeated character belong to its
        span. A non-empty span becomes empty only if all of it was deleted; an empty span stays empty. Both ends of
        non-empty spans move monotonically.

        Raises:
          ValueError: (start, end) is not a span of the original.
        """
        if not 0 <= start <= end <= len(self.original):
            raise ValueError(f"span ({start}, {end}): expected 0 <= start <= end <= {len(self.original)}")
        moved, moved_end = self._start(start), self._end(end)
        if start == end:  # an insertion or deletion at this place may put the moved start behind the moved end
            place = max(moved, moved_end)
            return place, place
        return moved, moved_end

    def back(self, start: int, end: int) -> Span:
        """Returns which part of the original text[start:end] comes from: `move` with the edits inverted.

        So deleted characters count as inserted, and a span that holds only inserted text comes from an empty span.
        """
        return self._reverse.move(start, end)

    @functools.cached_property
    def _reverse(self) -> NoisedText:
        places = (edit.start + shift for edit, shift in zip(self.edits, self._shifts, strict=False))
        edits = (
            Edit(place, place + len(edit.text), self.original[edit.start : edit.end])
            for edit, place in zip(self.edits, places, strict=True)
        )
        return NoisedText(self.text, self.original, tuple(edits))

    @functools.cached_property
    def _ends(self) -> list[int]:
        return [edit.end for edit in self.edits]

    @functools.cached_property
    def _shifts(self) -> list[int]:
        """For n = 0, 1, 2 ...: by how many characters the first n edits shift the text behind them."""
        growth = (len(text) - (end - start) for start, end, text in self.edits)
        return list(itertools.accumulate(growth, initial=0))

    def _start(self, position: int) -> int:
        """Returns the new start of a span that began at `position`: behind any text inserted there."""
        index = bisect.bisect_right(self._ends, position)
        return self._within(index, position, -1)

    def _end(self, position: int) -> int:
        """Returns the new end of a span that ended at `position`: before any text inserted there."""
        index = bisect.bisect_left(self._ends, position)
        if index < len(self.edits) and self.edits[index].start < position == self._ends[index]:
            return position + self._shifts[index + 1]
        return self._within(index, position, 0)

    def _within(self, index: int, position: int, margin: int) -> int:
        """Moves a position by the edits before edit `index`; inside that edit, at most to the end of its text + margin.

        A start (margin -1) stays before the last character of the replacement, and an end (margin 0) may lie behind it.
        So the span of every replaced character holds at least one character of the replacement.
        """
        shift = self._shifts[index]
        if index == len(self.edits) or position <= self.edits[index].start:
            return position + shift
        start, _, text = self.edits[index]
        return start + shift + max(0, min(position - start, len(text) + margin))


@dataclass(frozen=True)
class NoisedWords:
    """Noised words, none of them empty, and how they correspond to the original words.

    Attributes:
      words: the noised words.
      first: for every original word, the index of the noised word in which it begins.
      origin: for every noised word, the index of the original word that its first character came from.
    """

    words: tuple[str, ...]
    first: tuple[int, ...]
    origin: tuple[int, ...]

    @classmethod
    def of(cls, words: Sequence[str], edits: Sequence[Edit]) -> NoisedWords:
        """Applies edits of `" ".join(words)`: deleting a space merges two words, inserting one in a word cuts it."""
        noised: list[str] = []
        first: list[int] = []
        origin: list[int] = []
        queue = list(reversed(edits))
        start, merged = 0, False
        for index, word in enumerate(words):
            end = start + len(word)
            parts, position = [""], start
            while queue and queue[-1].end <= end:
                edit = queue.pop()
                parts[-1] += word[position - start : edit.start - start]
                if edit.text == " " and start < edit.start == edit.end < end:
                    parts.append("")
                else:
                    parts[-1] += edit.text
                position = edit.end
            parts[-1] += word[position - start :]
            if merged:
                noised[-1] += parts.pop(0)
            first.append(len(noised) - merged)
            noised += parts
            origin += [index] * len(parts)
            merged = bool(queue) and queue[-1] == (end, end + 1, "")
            if queue and queue[-1].start == end:  # an edit of the space between the words; the next word ignores it
                queue.pop()
            start = end + 1
        return cls(tuple(noised), tuple(first), tuple(origin))


class Rewriter(Protocol):
    """What changes texts and words and records how: noise, or a correction in front of a model."""

    def text(self, text: str, key: str | int, protected: Sequence[Span] = ()) -> NoisedText:
        """Returns the changed text; `key` identifies the example, and no span of `protected` vanishes."""
        ...

    def words(self, words: Sequence[str], key: str | int, spaces: Sequence[bool] | bool = True) -> NoisedWords:
        """Returns the changed words; `spaces` says behind which words there is a space."""
        ...


def move_tags(tags: Sequence[str], noised: NoisedWords) -> list[str]:
    """Returns one tag for every noised word, for training on noised text: the tag of its original word.

    If all tags are "O", "B", "I", or begin with B- or I-, the later parts of a word that was cut continue its entity.
    Valid IOB2 stays valid: if the first word of an entity was merged into the word before it, the entity begins at its
    next word.

    Raises:
      ValueError: the number of tags differs from the number of original words.
    """
    _check_count("tags", tags, "original", len(noised.first))
    moved = [tags[origin] for origin in noised.origin]
    if not all(tag in ("O", "B", "I") or tag.startswith(("B-", "I-")) for tag in tags):
        return moved
    valid = all(_continues(before, tag) for before, tag in zip(["O", *tags], tags, strict=False))
    for index, tag in enumerate(moved):
        if noised.first[noised.origin[index]] != index and tag != "O":
            moved[index] = "I" + tag[1:]
        if valid and not _continues(moved[index - 1] if index else "O", moved[index]):
            moved[index] = "B" + tag[1:]
    return moved


def _continues(before: str, tag: str) -> bool:
    """Says whether `tag` may follow `before` in IOB2."""
    return tag[:1] != "I" or (before[:1] in ("B", "I") and before[1:] == tag[1:])


def collect(predicted: Sequence[T], noised: NoisedWords) -> list[T]:
    """Returns one prediction for every original word: that of the noised word in which it begins.

    Raises:
      ValueError: the number of predictions differs from the number of noised words.
    """
    _check_count("predictions", predicted, "noised", len(noised.words))
    return [predicted[index] for index in noised.first]


def _check_count(name: str, values: Sequence[object], kind: str, expected: int) -> None:
    if len(values) != expected:
        raise ValueError(f"{name}: expected one for each of the {expected} {kind} words, got {len(values)}")


def keep_protected(text: str, edits: list[Edit], protected: Sequence[Span], rng: np.random.Generator) -> list[Edit]:
    """Returns the edits without those that would make a protected span vanish or exchange characters with its outside.

    If only whitespace of a span would survive, one of its deletions, chosen at random, is left out. (In a span that is
    all whitespace, any surviving character is enough.)
    """
    borders = sorted({border for span in protected for border in span})
    kept = [edit for edit in edits if not edit.text or not _straddles(edit, borders)]
    deletions = [edit for edit in kept if not edit.text]
    if not deletions or not protected:
        return kept
    visible = np.array([not char.isspace() for char in text])
    alive = np.ones(len(text), bool)
    for start, end, _ in deletions:
        alive[start:end] = False
    surviving = np.concatenate([[0], np.cumsum(visible & alive)])
    spans_S2 = np.array(protected)
    doubtful = surviving[spans_S2[:, 0]] == surviving[spans_S2[:, 1]]
    spared: set[Edit] = set()
    for start, end in spans_S2[doubtful].tolist():
        matters = visible if visible[start:end].any() else ~visible
        if start < end and not (alive & matters)[start:end].any():
            near = [edit for edit in deletions if edit.start < end and start < edit.end]
            fatal = [edit for edit in near if matters[max(edit.start, start) : min(edit.end, end)].any()]
            edit = fatal[int(rng.random() * len(fatal))]
            alive[edit.start : edit.end] = True
            spared.add(edit)
    return [edit for edit in kept if edit not in spared]


def _straddles(edit: Edit, borders: list[int]) -> bool:
    """Says whether one of the ascending `borders` lies inside the edit."""
    index = bisect.bisect_right(borders, edit.start)
    return index < len(borders) and borders[index] < edit.end
