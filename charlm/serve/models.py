"""The models of the server: their names and abilities, how each computes a batch, and how programs are compiled first.

Open it to change the sizes of batches that are compiled, or which words warm a model up. It needs no JAX itself.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from charlm.serve.abilities import ABILITIES, MODEL, Ability, Item, Result
from charlm.serve.fields import read
from charlm.serve.limits import Limits

if TYPE_CHECKING:
    from charlm.api.model import Model
    from charlm.core.cache import CacheStats

log = logging.getLogger("charlm")

NAMED = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)
WARM_WORDS = (6, 18, 28, 44)  # words of the texts that a model is warmed up with: HLM pads to 16, 24, 32, 48 words
WARM_ALONE = 2  # of these lengths, for an ability that computes one text at a time, and takes long to compile
LETTERS = "etaoinshrdlu"


class Key(NamedTuple):
    """What requests must share to be computed together: the model, the ability, and the options of the method."""

    model: str
    ability: str
    options: tuple[tuple[str, Hashable], ...] = ()


def named(models: list[str]) -> dict[str, str]:
    """Returns the paths of models by their names, from the values of --model: NAME=PATH, or a path alone.

    A path alone is called after its last folder.

    Raises:
      ValueError: two have one name.
    """
    found: dict[str, str] = {}
    for one in models:
        match = NAMED.fullmatch(one)
        name, path = match.groups() if match else (PurePath(one).name or one, one)
        if name in found:
            raise ValueError(f"--model={one}: {found[name]} is called {name!r}, too; write NAME={path}")
        found[name] = path
    return found


class Served:
    """A model of the server.

    Args:
      name: what requests call it.
      model: the model, for batches of `limits.max_batch` texts.
      limits: how many texts a batch has. What a model was fine-tuned for fills every batch up to one number of rows,
        so few texts get the same model for few.

    Attributes:
      name, model: as above.
      abilities: by name, those of the model that the server knows.
    """

    def __init__(self, name: str, model: Model, limits: Limits) -> None:
        self.name, self.model, self._limits = name, model, limits
        self.abilities: dict[str, Ability] = {one: ABILITIES[one] for one in model.abilities if one in ABILITIES}
        self._sized = functools.cache(lambda size: model if size == limits.max_batch else model.sized(size))

    def compute(self, key: Key, items: list[Item]) -> list[Result]:
        """Returns the results of items; raises ValueError if the model refuses one of them."""
        ability, options = self.abilities[key.ability], dict(key.options)
        size = next((size for size in self._sizes(ability) if size >= len(items)), self._limits.max_batch)
        fills = self._fills(ability) and ability.together
        return ability.run(self._sized(size) if fills else self.model, items, options)

    def _fills(self, ability: Ability) -> bool:
        """Whether the model fills batches up: it does what it was fine-tuned for."""
        return bool(self.model.task) and ability.name == self.model.abilities[0]

    def _sizes(self, ability: Ability) -> list[int]:
        """Returns the numbers of texts that programs are compiled for, ascending; predictors have powers of two."""
        if not ability.together:
            return [1]
        most = self._limits.max_batch
        step = 2 if self._fills(ability) else 1
        return [*(2**n for n in range(0, (most - 1).bit_length(), step)), most]

    def cache_stats(self) -> CacheStats | None:
        """Returns the counts of the model's word cache; None if it has none."""
        cache = self.model.predictor.cache
        return None if cache is None else cache.stats

    def warm_up(self, stopped: Callable[[], bool], lengths: Sequence[int] = WARM_WORDS) -> None:
        """Compiles what batches of usual texts need.

        Args:
          stopped: whether to end at once.
          lengths: words of the texts.
        """
        words = _words()
        for ability in self.abilities.values():
            values = read(ability.example, (MODEL, *ability.fields), self._limits)
            key = Key(self.name, ability.name, ability.ask(values).options)
            some = lengths if ability.together else lengths[:WARM_ALONE]
            for length, size in itertools.product(some, self._sizes(ability)):
                if stopped():
                    return
                items = [ability.warm(" ".join(itertools.islice(words, length))) for _ in range(size)]
                try:
                    self.compute(key, items)
                except ValueError as error:  # requests will get this answer, too
                    log.info("%s: no warm-up of %s: %s", self.name, ability.name, " ".join(str(error).split()))
                    break


def _words() -> Iterator[str]:
    """Yields words of 1 to 12 letters, hardly any of them twice."""
    for n in itertools.count():
        yield "".join(LETTERS[(n * (place + 7) + place * place) % len(LETTERS)] for place in range(1 + n % 12))
