"""Searches for a text that a model answers otherwise, by the rules of a published attack.

As in TextAttack, the search is greedy: words are tried one after the other, or all at once, the edit with the largest
loss is kept if the loss grows, and the search ends at the first text with another answer. Open it to change the search;
`recipes` says what each attack may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.files import stable_hash
from charlm.robustness.adversarial import Attacked, Editable, Variant, WordEdit, losses_of
from charlm.robustness.batches import ModelRunner
from charlm.robustness.recipes import RECIPES, STOP_WORDS, UNKNOWN, AttackedWords, Recipe, distance
from charlm.tasks.base import AnyExample, AnyPrediction, AnyTask


class Tried(NamedTuple):
    """The result for one example.

    Attributes:
      attacked: the example, its edits, losses and predictions; of a failed search those of the worst text found.
      skipped: whether the model's class was wrong before, so that there was nothing to attack.
      succeeded: whether the answer changed.
      queries: about how many texts the model was asked, the original among them.
      words: number of words of the example, without punctuation.
    """

    attacked: Attacked
    skipped: bool
    succeeded: bool
    queries: int
    words: int


class _Search:
    """The search in one example."""

    def __init__(self, recipe: str, task: AnyTask, example: AnyExample, loss: float, prediction: AnyPrediction) -> None:
        self.recipe: Recipe = RECIPES[recipe]
        self.original = self.text = Editable.of(task, example, AttackedWords())
        self.first, self.edits = (loss, prediction), ()
        self.loss, self.prediction = self.first
        self.queries, self.spent = 1, 0
        self.skipped, self.succeeded = task.is_wrong(example, prediction), False
        self._seed = f"{recipe}/{example.id}"
        self._said = lambda prediction: task.scored_answer(example, prediction)
        self.open = [] if self.skipped else [n for n, word in enumerate(self.text.words) if self._may_change(word)]

    def _may_change(self, word: str) -> bool:
        return _is_lettered(word) and len(word) >= self.recipe.shortest and word not in STOP_WORDS

    def without(self, number: int) -> Iterator[Variant]:
        """Yields for each word that may change the text in which it is replaced or deleted."""
        held = [part.gaps is None for part in self.text.parts for _ in range(part.words)]  # such a word may not vanish
        for at in self.open:
            word = self.text.words[at]
            new = "" if self.recipe.order == "deleted" and not held[at] else UNKNOWN
            yield Variant(number, self.text.replaced(at, new), WordEdit(at, word, ""))

    def next(self, number: int) -> Iterator[Variant]:
        """Yields the texts of the next step: all edits of the next word, or of all words that may change."""
        most = self.recipe.most_words
        if self.succeeded or not self.open or (most and len(self.edits) >= most):
            return
        step = list(self.open) if self.recipe.order == "all" else [self.open.pop(0)]
        for at in step:
            word = self.original.words[at]
            draw = np.random.default_rng(int(stable_hash(self._seed, at)[:16], 16))
            for other in dict.fromkeys(self.recipe.variants(word, draw)):
                within = not self.recipe.most_edits or self.spent + distance(word, other) <= self.recipe.most_edits
                if other != word and within:
                    yield Variant(number, self.text.replaced(at, other), WordEdit(at, word, other))

    def keep(self, variant: Variant, loss: float, prediction: AnyPrediction) -> None:
        """Goes on from a text; its word is not tried again."""
        self.text, self.loss, self.prediction = variant.text, loss, prediction
        self.edits = (*self.edits, variant.edit)
        self.spent += distance(variant.edit.before, variant.edit.after)
        self.open = [at for at in self.open if at != variant.edit.word]
        self.succeeded = self._said(prediction) != self._said(self.first[1])

    def result(self) -> Tried:
        """Returns what was found."""
        loss, prediction = self.first
        found = Attacked(self.text.build(), self.edits, loss, self.loss, prediction, self.prediction)
        return Tried(found, self.skipped, self.succeeded, self.queries, sum(map(_is_lettered, self.original.words)))


def _is_lettered(word: str) -> bool:
    return any(char.isalnum() for char in word)


def search(task: AnyTask, batches: ModelRunner, examples: Sequence[AnyExample], recipe: str) -> list[Tried]:
    """Returns what an attack finds for each example; it is the same in every run.

    Args:
      examples: examples with known labels.
      recipe: the name of the attack, of `RECIPES`.
    """
    predictions, losses_E = batches.predict_with_loss(examples)
    searches = [_Search(recipe, task, *one) for one in zip(examples, losses_E.tolist(), predictions, strict=True)]
    if RECIPES[recipe].order != "all":
        found: list[list[tuple[float, int]]] = [[] for _ in searches]
        variants = (variant for number, one in enumerate(searches) for variant in one.without(number))
        for variant, loss, _ in losses_of(batches, variants):
            found[variant.example].append((-loss, variant.edit.word))
            searches[variant.example].queries += 1
        for one, ranked in zip(searches, found, strict=True):
            one.open = [at for _, at in sorted(ranked)]
    while _step(batches, searches):
        pass
    return [one.result() for one in searches]


def _step(batches: ModelRunner, searches: Sequence[_Search]) -> bool:
    """Tries the next edits in all examples and keeps the worst of each; returns whether there is more to try."""
    going = [one for one in searches if not one.succeeded and one.open]
    best: dict[int, tuple[Variant, float, AnyPrediction]] = {}
    variants = (variant for number, one in enumerate(searches) for variant in one.next(number))
    for variant, loss, prediction in losses_of(batches, variants):
        one = searches[variant.example]
        one.queries += 1
        if loss > (best[variant.example][1] if variant.example in best else one.loss):
            best[variant.example] = variant, loss, prediction
    for number, kept in best.items():
        searches[number].keep(*kept)
    for number, one in enumerate(searches):
        if one.recipe.order == "all" and (number not in best or len(one.edits) >= one.recipe.most_words > 0):
            one.open = []
    return bool(going)
