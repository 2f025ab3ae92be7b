"""Adversarial search: finds a few typos in each example that raise the model's loss most.

The search is greedy, after DeepWordBug (Gao et al., 2018). The words of an example are ranked by how much the loss
grows if the word is replaced by an unknown word. Then, for the top words in turn, every single edit is tried, and the
edit with the largest loss is kept if its loss exceeds the largest loss so far. Open it to change the search itself;
`attacks` runs it for the report.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from charlm.robustness.batches import ModelRunner
from charlm.robustness.versions import WORD_SPLITTER
from charlm.tasks.base import AnyExample, AnyPrediction, AnyTask
from charlm.text.noise import single_edits
from charlm.text.words import Splitter, SplitText, split

FILLER = "x"  # a word that consists of this letter only stands for an unknown word
CHUNK = 1024  # number of variants in memory at a time


class WordEdit(NamedTuple):
    """An edit of a word: its index among the words that may be edited, and the word before and after."""

    word: int
    before: str
    after: str


class Attacked(NamedTuple):
    """The result of the search for one example.

    Attributes:
      example: the example with the edits.
      edits: the edits in the order they were made; at most one for each word.
      loss, attacked_loss: the loss before and after the edits.
      prediction, attacked_prediction: the prediction before and after the edits.
    """

    example: AnyExample
    edits: tuple[WordEdit, ...]
    loss: float
    attacked_loss: float
    prediction: AnyPrediction
    attacked_prediction: AnyPrediction


class Field(NamedTuple):
    """A field of an example: its number of words, and the gaps around them; None for a field that holds words."""

    field: str
    words: int
    gaps: tuple[str, ...] | None


class Editable(NamedTuple):
    """An example whose words can be edited; the words of all its texts form one sequence.

    Attributes:
      example: the original example.
      parts: its texts in order.
      words: the current words.
    """

    example: AnyExample
    parts: tuple[Field, ...]
    words: tuple[str, ...]

    @classmethod
    def of(cls, task: AnyTask, example: AnyExample, splitter: Splitter = WORD_SPLITTER) -> Editable:
        """Makes it from the texts of an example that the task lets an adversary edit (`Task.attacked`)."""
        parts: list[Field] = []
        words: list[str] = []
        for field, text in task.attacked(example).items():
            found = split(text, splitter) if isinstance(text, str) else None
            own = text if found is None else found.words
            parts.append(Field(field, len(own), None if found is None else found.gaps))
            words += own
        return cls(example, tuple(parts), tuple(words))

    def replaced(self, number: int, word: str) -> Editable:
        """Returns a copy in which word `number` is replaced by `word`."""
        return self._replace(words=(*self.words[:number], word, *self.words[number + 1 :]))

    def build(self) -> AnyExample:
        """Returns the example with the current words."""
        words, fields = iter(self.words), {}
        for field, count, gaps in self.parts:
            own = tuple(itertools.islice(words, count))
            fields[field] = own if gaps is None else SplitText(own, (), gaps).restore()
        return self.example._replace(**fields)


class _Best(NamedTuple):
    """The variant of an example with the largest loss so far."""

    text: Editable
    edits: tuple[WordEdit, ...]
    loss: float
    prediction: AnyPrediction


class Variant(NamedTuple):
    """An edited text: the index of its example, the text, and its last edit."""

    example: int
    text: Editable
    edit: WordEdit


def attack(
    task: AnyTask, batches: ModelRunner, examples: Sequence[AnyExample], edits: int, language: str = "auto"
) -> list[Attacked]:
    """Returns the result of the search for each example; it is the same in every run.

    Args:
      examples: examples with known labels.
      edits: how many words may be edited at most, each with one typo; 0: the examples stay as they are.
      language: language of the keyboard.
    """
    predictions, losses_E = batches.predict_with_loss(examples)
    texts = [Editable.of(task, example) for example in examples]
    best = [_Best(t, (), float(x), p) for t, x, p in zip(texts, losses_E, predictions, strict=True)]
    variants_of = functools.cache(lambda word: _edits_of(word, language))
    targets = _ranked(batches, texts, edits, variants_of) if edits else [[] for _ in texts]
    for step in range(max(map(len, targets), default=0)):
        tried = (
            Variant(n, best[n].text.replaced(at, other), WordEdit(at, texts[n].words[at], other))
            for n, places in enumerate(targets)
            for at in places[step : step + 1]
            for other in variants_of(texts[n].words[at])
        )
        before = list(best)
        for variant, loss, prediction in losses_of(batches, tried):
            if loss > best[variant.example].loss:
                made = (*before[variant.example].edits, variant.edit)
                best[variant.example] = _Best(variant.text, made, loss, prediction)
    return [
        Attacked(b.text.build(), b.edits, float(loss), b.loss, prediction, b.prediction)
        for b, loss, prediction in zip(best, losses_E, predictions, strict=True)
    ]


def _edits_of(word: str, language: str) -> list[str]:
    """Returns all single edits of a word; none for punctuation."""
    return single_edits(word, language) if any(char.isalnum() for char in word) else []


def _ranked(
    batches: ModelRunner, texts: Sequence[Editable], count: int, variants_of: Callable[[str], list[str]]
) -> list[list[int]]:
    """Returns, for each text, the `count` words that matter most to the loss, among those that can be edited."""
    unknown = (
        Variant(n, text.replaced(at, FILLER * len(word)), WordEdit(at, word, ""))
        for n, text in enumerate(texts)
        for at, word in enumerate(text.words)
        if variants_of(word)
    )
    found: list[list[tuple[float, int]]] = [[] for _ in texts]
    for variant, loss, _ in losses_of(batches, unknown):
        found[variant.example].append((-loss, variant.edit.word))
    return [[at for _, at in sorted(pairs)[:count]] for pairs in found]


def losses_of(batches: ModelRunner, variants: Iterable[Variant]) -> Iterator[tuple[Variant, float, AnyPrediction]]:
    """Yields each variant with its loss and prediction; at most `CHUNK` variants are in memory."""
    waiting = iter(variants)
    while chunk := list(itertools.islice(waiting, CHUNK)):
        predictions, losses_E = batches.predict_with_loss([variant.text.build() for variant in chunk])
        yield from zip(chunk, losses_E.tolist(), predictions, strict=True)
