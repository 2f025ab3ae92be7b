"""Makes noisy versions of examples, the same for every model, and records which words noise changed.

Open it to change how noise is drawn for a report, or what counts as a changed word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.tasks.base import AnyExample, AnyTask, Trace
from charlm.text.noise import Noise, NoisedText, NoisedWords, Noiser
from charlm.text.noise.misspellings import Misspellings
from charlm.text.words import RulesSplitter

STREAM = "robustness"  # makes the draws differ from those of training
WORD_SPLITTER = RulesSplitter()


class Version(NamedTuple):
    """Examples with noise.

    Attributes:
      examples: the examples with noise.
      traces: the traces of the noise, from `Task.noised`.
      changed: bool [W]: whether noise changed each word, for all words of the texts it was applied to, in order.
    """

    examples: list[AnyExample]
    traces: list[Trace]
    changed: np.ndarray


class _Watched(Noiser):
    """A noiser that records which words it changes."""

    def __init__(self, noise: Noise, seed: int, misspellings: Misspellings | None) -> None:
        super().__init__(noise, seed, misspellings)
        self.changed: list[bool] = []

    def text(self, text: str, key: str | int, protected: Sequence[tuple[int, int]] = ()) -> NoisedText:
        noised = super().text(text, key, protected)
        self.changed += changed_in_text(noised)
        return noised

    def words(self, words: Sequence[str], key: str | int, spaces: Sequence[bool] | bool = True) -> NoisedWords:
        noised = super().words(words, key, spaces)
        self.changed += changed_words(words, noised)
        return noised


def changed_in_text(noised: NoisedText) -> list[bool]:
    """Returns, for each word, whether it changed: the splitter no longer finds the same word at its place."""
    if not noised.edits:
        return [False] * len(WORD_SPLITTER.spans(noised.original))
    there = set(WORD_SPLITTER.spans(noised.text))
    found = []
    for start, end in WORD_SPLITTER.spans(noised.original):
        moved = noised.move(start, end)
        found.append(moved not in there or noised.text[moved[0] : moved[1]] != noised.original[start:end])
    return found


def changed_words(words: Sequence[str], noised: NoisedWords) -> list[bool]:
    """Returns, for each word, whether it differs from the noised word in which it begins; merged words all differ."""
    return [noised.words[at] != word for word, at in zip(words, noised.first, strict=True)]


def version_of(
    task: AnyTask, examples: Sequence[AnyExample], noise: Noise, seed: int, misspellings: Misspellings | None
) -> Version:
    """Returns examples with noise; equal examples, noise and seed give equal results, whatever the model."""
    noiser = _Watched(noise, seed, misspellings)
    pairs = [task.noised(example, noiser, STREAM) for example in examples]
    return Version([e for e, _ in pairs], [t for _, t in pairs], np.array(noiser.changed, bool))


def split(text: str) -> list[str]:
    """Returns the words of a text."""
    return [text[start:end] for start, end in WORD_SPLITTER.spans(text)]


def words_of(texts: Mapping[str, str | tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns the words of each text of `Task.texts`; texts that are tuples of words stay as they are."""
    return [tuple(split(text)) if isinstance(text, str) else text for text in texts.values()]


def sentences_of(task: AnyTask, examples: Sequence[AnyExample]) -> list[tuple[str, ...]]:
    """Returns the words of every text of the examples: sentences that are given as words, texts, pairs, questions."""
    return [words for example in examples for words in words_of(task.texts(example))]


Versions = Callable[[Noise, int], Version]


def versions_of(task: AnyTask, examples: Sequence[AnyExample], misspellings: Misspellings | None) -> Versions:
    """Returns a function that makes versions and caches the last one, since all models read it one after another."""
    last: dict[tuple[str, int], Version] = {}

    def version(noise: Noise, seed: int) -> Version:
        key = (str(noise), seed)
        if key not in last:
            last.clear()
            last[key] = version_of(task, examples, noise, seed, misspellings)
        return last[key]

    return version
