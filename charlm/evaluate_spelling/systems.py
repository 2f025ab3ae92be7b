"""The systems of an evaluation: spellers of charlm, the correctors of `charlm.text.defences`, and none at all.

Open it to change how a system is asked. A defence is asked twice: for whole texts, where it may join and cut words, and
word by word, where each word stays one word.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

from charlm.evaluate_spelling.data import Example
from charlm.families.predictor import Predictor
from charlm.text.defences import Defence
from charlm.text.noise.edits import Edit

NONE = "as it is"


class System(abc.ABC):
    """Corrects sentences.

    Attributes:
      name: how tables name it.
      about: what it is, for notes.
    """

    name: str
    about: str

    @abc.abstractmethod
    def edits(self, examples: Sequence[Example]) -> list[list[Edit]]:
        """Returns the corrections of each sentence, ascending."""


class AsItIs(System):
    """Corrects nothing."""

    name, about = NONE, "leaves everything as it is"

    def edits(self, examples: Sequence[Example]) -> list[list[Edit]]:
        """Returns no corrections."""
        return [[] for _ in examples]


class OfTexts(System):
    """A defence that is asked for whole texts."""

    def __init__(self, name: str, defence: Defence) -> None:
        self.name, self.about, self._defence = name, f"whole texts, {defence.version}", defence

    def edits(self, examples: Sequence[Example]) -> list[list[Edit]]:
        """Returns the corrections of each sentence."""
        return [self._defence.edits(example.text) for example in examples]


class OfWords(System):
    """A defence that is asked word by word."""

    def __init__(self, name: str, defence: Defence) -> None:
        self.name, self.about, self._defence = f"{name} by word", f"word by word, {defence.version}", defence

    def edits(self, examples: Sequence[Example]) -> list[list[Edit]]:
        """Returns the corrections of each sentence."""
        found = []
        for example in examples:
            words = example.read
            pairs = zip(example.spans, words, self._defence.corrected(words), strict=True)
            found.append([Edit(*span, new) for span, old, new in pairs if new != old])
        return found


class Model(System):
    """A speller of charlm.

    Args:
      path: the checkpoint.
      batch_size: sentences that are read at a time.
      words: further known words with counts; None: none.
      threshold: probability from which on it corrects.
    """

    def __init__(
        self, path: str, predictor: Predictor, batch_size: int, words: Mapping[str, float] | None, threshold: float
    ) -> None:
        self._predictor, self._batch_size, self._words = predictor, batch_size, words
        self.threshold = threshold
        self.name = f"{path} at {threshold:g}" + (" with words" if words else "")
        self.about = f"threshold {threshold:g}" + (f", {len(words):,} further words" if words else "")

    def edits(self, examples: Sequence[Example]) -> list[list[Edit]]:
        """Returns the corrections of each sentence."""
        texts = [example.text for example in examples]
        found = self._predictor.correct(texts, self._batch_size, threshold=self.threshold, words=self._words)
        return [[Edit(edit.start, edit.end, edit.correction) for edit in one.edits] for one in found]
