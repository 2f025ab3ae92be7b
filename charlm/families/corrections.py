"""What a corrector returns for a text, how known words reach it, and where its weights are stored.

Open it to change the fields of a correction, or how a file of words is read. It needs no JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from charlm.core.durable import write_json
from charlm.core.reading import read_object
from charlm.core.types import JsonObject

THRESHOLD = 0.5  # probability from which on a correction is made
WEIGHING_FILE = "weighing.json"  # beside a model: how it weighs candidates, if that was fitted
MOST = 1e15  # the largest count of a word


class Mend(NamedTuple):
    """A word of a text that is corrected.

    Attributes:
      start, end: its characters in the text.
      word: as it stands there.
      correction: what it becomes.
      probability: that the correction is the word meant, among the candidates and the word as it stands.
    """

    start: int
    end: int
    word: str
    correction: str
    probability: float


class Meant(NamedTuple):
    """A text whose misspellings are known.

    Attributes:
      spans: the characters (start, end) of its words.
      meant: what each word should be; None: that is not known.
    """

    text: str
    spans: Sequence[tuple[int, int]]
    meant: Sequence[str | None]


class Correction(NamedTuple):
    """A text with its corrections, in the order of the text; `text` is as it was given."""

    text: str
    edits: tuple[Mend, ...]

    @property
    def corrected(self) -> str:
        """The text with all corrections."""
        parts, at = [], 0
        for edit in self.edits:
            parts += [self.text[at : edit.start], edit.correction]
            at = edit.end
        return "".join([*parts, self.text[at:]])


def read_weighing(folder: Path) -> JsonObject | None:
    """Returns what `write_weighing` wrote beside a model, None if there is nothing; ValueError if it cannot be read."""
    path = folder / WEIGHING_FILE
    return read_object(path) if path.is_file() else None


def write_weighing(folder: Path, weighing: JsonObject) -> None:
    """Stores how a model weighs candidates, as `Predictor.fit_corrections` returns it, beside the model."""
    write_json(folder / WEIGHING_FILE, weighing)


def check_threshold(threshold: float) -> None:
    """Raises ValueError unless the threshold is a probability."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ValueError(f"threshold={threshold!r}: expected a probability from 0 to 1")


def weighted(words: Mapping[str, float] | Iterable[str]) -> dict[str, float]:
    """Returns words in lower case with how often each is seen; words of a plain list count once each.

    Raises:
      ValueError: one string is given, or something is no word, or a count is not positive.
    """
    if isinstance(words, str):
        raise ValueError("words: expected several words, got one string")
    if isinstance(words, bytes) or not isinstance(words, Iterable):
        raise ValueError(f"words: expected words, perhaps with their counts, got {words!r:.80}")
    pairs = words.items() if isinstance(words, Mapping) else ((word, 1.0) for word in words)
    found: dict[str, float] = {}
    for word, count in pairs:
        if not isinstance(word, str) or word.split() != [word]:
            raise ValueError(f"words: expected words, got {word!r}")
        if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count <= MOST:
            raise ValueError(f"words: {word!r} has the count {count!r}, expected a positive number of at most {MOST:g}")
        found[word.lower()] = found.get(word.lower(), 0.0) + count
    return found


def counted_words(lines: Sequence[str], where: str) -> dict[str, float]:
    """Returns the words of a file: one a line, perhaps with its count behind it.

    Args:
      where: names the file in messages.

    Raises:
      ValueError: a line has more than a word and a positive number, which is named, or there is no word.
    """
    found: dict[str, float] = {}
    for number, line in enumerate(lines, start=1):
        word, *counts = line.removeprefix("\ufeff").split() or [""]  # some files begin with that mark
        if not word:
            continue
        try:
            count = float(counts[0]) if counts else 1.0
        except ValueError:
            count = 0.0
        if len(counts) > 1 or not 0 < count <= MOST:
            raise ValueError(f"{where}, line {number}: expected a word, perhaps with a positive count, got {line!r}")
        found[word] = found.get(word, 0.0) + count
        if found[word] > MOST:
            raise ValueError(f"{where}, line {number}: {word!r} has more than {MOST:g} in all")
    if not found:
        raise ValueError(f"{where}: there is no word in it")
    return found
