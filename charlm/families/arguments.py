"""Checks of what predictors are asked: texts, lists of known words, numbers of results and seeds.

Open it to change which arguments are refused, or what a message says of them. It needs no JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from charlm.core.sampling import check_seed

if TYPE_CHECKING:
    from charlm.core.cache import WordCache

L = TypeVar("L", bound="KnownWords")


class KnownWords(Protocol):
    """A list of words prepared for one model by `Predictor.known_words`.

    Its length is its number of words; `words` are those that the model can write, in any order.
    """

    @property
    def words(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...


def checked_texts(texts: Iterable[str], batch_size: int, what: str = "encode") -> list[str]:
    """Returns the texts as a list; ValueError for a single string, an item of another type, or a batch size below 1."""
    if isinstance(texts, str) or batch_size < 1:
        raise ValueError(f"{what} takes a list of texts and a positive batch_size; for one text write [text]")
    texts = list(texts)
    for n, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{what}: expected texts, but number {n} is a {type(text).__name__}")
    return texts


def check_top(top: int) -> None:
    """Raises ValueError unless at least one result is asked for."""
    if top < 1:
        raise ValueError(f"top={top}: expected at least 1")


def prepared(
    known: KnownWords | Iterable[str],
    kind: type[L],
    ours: Callable[[L], bool],
    prepare: Callable[[KnownWords | Iterable[str]], L],
) -> L:
    """Returns known words as the list that a model ranks.

    Args:
      kind: the class of such lists; other words are prepared.
      ours: whether the model made a list of that class.

    Raises:
      ValueError: another model made the list, or `prepare` refuses the words.
    """
    if not isinstance(known, kind):
        return prepare(known)
    if not ours(known):
        raise ValueError("known: a list that another model made; see known_words")
    return known


def checked_list(words: KnownWords | Iterable[str]) -> list[str]:
    """Returns distinct words in order; ValueError for a single string, or for the prepared list of another model."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise ValueError(f"known words: expected words, or a list that this model made, got {type(words).__name__}")
    listed = list(words)
    if odd := [word for word in listed if not isinstance(word, str)]:
        raise ValueError(f"known words: expected words, got {type(odd[0]).__name__} {str(odd[0])[:40]!r}")
    return list(dict.fromkeys(word for word in listed if word))


def list_to_cache(words: Iterable[str], cache: WordCache | None) -> tuple[list[str], WordCache]:
    """Returns the words that `precompute` adds, and the cache; ValueError without a cache, or for a single string."""
    if cache is None:
        raise ValueError("precompute: this predictor has no cache")
    if isinstance(words, str):
        raise ValueError("precompute takes a list of words, got one string")
    return checked_list(words), cache


def check_seeds(seed: int | Sequence[int]) -> None:
    """Raises ValueError naming a seed that is out of range."""
    several = isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes) and np.ndim(seed) > 0
    for one in np.ravel(seed) if several else [seed]:
        check_seed(one)
