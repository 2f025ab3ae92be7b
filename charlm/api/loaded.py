"""What all methods of `charlm.load(...)` share: the model with its task, and how one text or several are answered.

`charlm.api.fine_tuned` and `charlm.api.model` add the methods. Open it to change what a loaded model holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from charlm.api.texts import checked_items
from charlm.convert.heads import FINE_TUNED
from charlm.families.family import family
from charlm.families.predictor import Predictor
from charlm.families.pretrained import Pretrained
from charlm.finetune.predictor import FineTuned

Found = TypeVar("Found")


class Loaded:
    """A model with what it can do; see `charlm.api.model.Model`."""

    def __init__(self, pretrained: Pretrained, batch_size: int = 32, path: str = "") -> None:
        self.pretrained, self.batch_size, self.path = pretrained, batch_size, path or str(pretrained.folder)

    def __reduce__(self) -> tuple[type[Self], tuple[Pretrained, int, str]]:
        """Without what is computed on the way, which cannot be sent to another process."""
        return type(self), (self.pretrained, self.batch_size, self.path)

    def sized(self, batch_size: int) -> Self:
        """Returns the same model for batches of another size; it shares the vectors of words that are kept."""
        other = type(self)(self.pretrained, batch_size, self.path)
        other.predictor = self.predictor
        return other

    @functools.cached_property
    def _fine_tuned(self) -> FineTuned | None:
        """The model with its task; None if it was fine-tuned for none."""
        made = "task" in self.pretrained.metadata or self.pretrained.head in FINE_TUNED
        return FineTuned(self.pretrained, self.batch_size, words=self.predictor) if made else None

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The predictor of the model's family, without a head for labels."""
        return family(self.pretrained.family).get_predictor().from_pretrained(self.pretrained)

    @property
    def task(self) -> str:
        """The name of the task that the model was fine-tuned for; "" for none."""
        return "" if self._fine_tuned is None else self._fine_tuned.task.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that a fine-tuned model predicts; () if it predicts none."""
        return () if self._fine_tuned is None else tuple(self._fine_tuned.task.labels)

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model supports, first that which calling it stands for."""
        return (*(() if self._fine_tuned is None else (self._fine_tuned.ability,)), *self.predictor.abilities)

    def _each(
        self,
        texts: Any,  # whatever a caller gives
        work: Callable[[list[Any]], list[Found]],  # texts, or lists of words
        words: bool = False,
    ) -> Any:  # as the method's overloads say
        """Returns the result for one text, or the list of results for several; see `checked_items` for `words`."""
        if isinstance(texts, str):
            return work([texts])[0]
        several = checked_items(texts, words)
        return work(several) if several else []


# The values are labels or numbers.
def rows_of(words: Iterable[str], offsets: Iterable[tuple[int, int]], *values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns (word, start, end, value, ...) for each word; arrays of numbers give Python's own."""
    plain = [getattr(column, "tolist", lambda column=column: column)() for column in values]
    return [(word, start, end, *rest) for word, (start, end), *rest in zip(words, offsets, *plain, strict=True)]
