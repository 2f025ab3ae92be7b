"""The examples that readers of fine-tuning data return, one class per kind of task, and counts of skipped ones.

Open it to see what a task gets from a reader, or to add a kind of example.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

PLACES = 3  # places kept per reason: enough to see the pattern, few enough to print

log = logging.getLogger("charlm")

_noted: ContextVar[list[str] | None] = ContextVar("_noted", default=None)  # where `Skipped.log` adds its lines, too


class TextExample(NamedTuple):
    """A text or a pair of texts with a class, a number or a relevance.

    Attributes:
      id: the id that predictions are written under.
      place: where the example was read, such as "train.tsv:12".
      text: the text; in ranking, the query.
      pair: the second text; in ranking, the passage; None: there is none.
      label: class name, or number for regression and ranking; None: not known.
      group: what belongs together: the query's id in ranking, the fold in cross-validation; empty: nothing.
    """

    id: str
    place: str
    text: str
    pair: str | None = None
    label: str | float | None = None
    group: str = ""


class TaggedExample(NamedTuple):
    """A sentence of words with one tag each.

    Attributes:
      id: the id that predictions are written under.
      place: where its first word was read, such as "dev.conll:12".
      words: the words, exactly as in the file.
      tags: one tag for each word; None: not known.
      spaces: whether a space follows each word; None: a space follows every word.
      group: its fold in cross-validation; empty: none.
    """

    id: str
    place: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    spaces: tuple[bool, ...] | None = None
    group: str = ""

    def __repr__(self) -> str:
        """Returns the fields; without a fold as before there were any, since runs remember a digest of this text."""
        fields = zip(self._fields, self if self.group else self[:-1], strict=False)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"


class Answer(NamedTuple):
    """An answer, `context[start : start + len(text)]`; start is -1 when the context does not contain it."""

    text: str
    start: int


class QuestionExample(NamedTuple):
    """A question about a context.

    Attributes:
      id: unique id that predictions are written under.
      place: file and id, such as "dev.json: 5726469".
      question: the question.
      context: the text that is searched for the answer.
      answers: every annotator's answer; empty when there is none or none is known.
      impossible: whether the context is known not to answer the question.
    """

    id: str
    place: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


class Skipped:
    """Counts what a reader left out or repaired, by reason, and keeps the first places; it may serve several files.

    Attributes:
      skipped: number of examples left out, by reason.
      repaired: number of repaired defects (their examples stay), by reason.
    """

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self._places: dict[str, list[str]] = {}

    def skip(self, reason: str, place: str) -> None:
        """Counts an example that is left out."""
        self.skipped[reason] += 1
        self._keep(f"skipped: {reason}", place)

    def repair(self, reason: str, place: str) -> None:
        """Counts a defect that was repaired."""
        self.repaired[reason] += 1
        self._keep(f"repaired: {reason}", place)

    def _keep(self, key: str, place: str) -> None:
        places = self._places.setdefault(key, [])
        if len(places) < PLACES:
            places.append(place)

    def report(self) -> list[str]:
        """Returns a line for each reason, the most frequent first: "skipped 12 x empty text: a.tsv:3, ..."."""
        lines = []
        for kind, counts in (("skipped", self.skipped), ("repaired", self.repaired)):
            for reason, count in counts.most_common():
                places = self._places[f"{kind}: {reason}"]
                more = ", ..." if count > len(places) else ""
                lines.append(f"{kind} {count:,} x {reason}: {', '.join(places)}{more}")
        return lines

    def log(self) -> None:
        """Logs the lines of `report`, and adds them to the list of `noted`, within its block."""
        lines, noted = self.report(), _noted.get()
        for line in lines:
            log.info("%s", line)
        if noted is not None:
            noted += lines


@contextlib.contextmanager
def noted(lines: list[str]) -> Iterator[None]:
    """Within this block, adds to `lines` what readers left out or repaired, so that a report can say it.

    A task's `read` is not asked to return it, since tasks of other packages have only their examples to return.
    """
    token = _noted.set(lines)
    try:
        yield
    finally:
        _noted.reset(token)


def joined(words: Sequence[str], spaces: Sequence[bool] | None = None) -> tuple[str, list[tuple[int, int]]]:
    """Joins words to a text; returns it, without a space at its end, and the start and end of each word in it."""
    pieces, offsets, position = [], [], 0
    for i, word in enumerate(words):
        offsets.append((position, position + len(word)))
        space = " " if i + 1 < len(words) and (spaces is None or spaces[i]) else ""
        pieces += [word, space]
        position += len(word) + len(space)
    return "".join(pieces), offsets
