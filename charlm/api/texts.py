"""Checks the texts that users give to functions of charlm: one, or any iterable of several.

Open it when something that is no text is taken for one. It needs no JAX.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def checked_items(texts: Any, words: bool = False) -> list[Any]:  # whatever a caller gives
    """Returns several texts as a list.

    Args:
      words: whether each may also be a sequence of words.

    Raises:
      ValueError: they are no texts, such as a DataFrame, whose items would be the names of its columns.
    """
    if hasattr(texts, "iterrows"):
        raise ValueError(f"expected texts, got a DataFrame: give one of its columns {', '.join(map(str, texts))}")
    if isinstance(texts, Mapping | bytes) or not isinstance(texts, Iterable):
        raise ValueError(f"expected a text or several, got {type(texts).__name__} {str(texts)[:60]!r}")
    try:
        found = list(texts)
    except TypeError as error:  # such as an array without axes
        raise ValueError(f"expected a text or several, got {type(texts).__name__}: {error}") from None
    for number, one in enumerate(found):
        if isinstance(one, str) or (words and _is_words(one)):
            continue
        expected = "a text or a list of words" if words else "a text"
        raise ValueError(f"text {number}: expected {expected}, got {type(one).__name__} {str(one)[:60]!r}")
    return found


def _is_words(one: Any) -> bool:  # whatever a caller gives
    several = isinstance(one, Collection) and not isinstance(one, Mapping | bytes)  # a generator would be used up here
    return several and all(isinstance(word, str) for word in one)
