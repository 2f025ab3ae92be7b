"""Finds the gaps of a text, such as "[MASK]" or "[MASK:5]", for the predictors of all families.

Open it to change how a gap is written, or how the length of its word is checked. It needs no JAX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

Length: TypeAlias = int | Literal["auto"]  # number of characters of the word in a gap; "auto": any

MASK = "[MASK]"  # the gap that every family knows
LENGTH_DIGITS = 18  # most digits of a word's length: more cannot be a length, and int() would refuse very many


def check_positive(length: int) -> None:
    """Raises ValueError for a length that no word has."""
    if length < 1:
        raise ValueError(f"length={length}: expected a positive number of characters")


def around_gaps(
    text: str, length: Length, mask: str = MASK, check: Callable[[int], None] = check_positive
) -> tuple[list[str], list[Length]]:
    """Returns the text before, between and after its gaps, and the number of characters of the word in each gap.

    A gap is "[MASK]", "[MASK:5]" for a word of five characters, or the mask token of a vocabulary.

    Args:
      length: the length for gaps that do not state one.
      mask: the mask token of the vocabulary.
      check: raises ValueError for a length that no word of the model has.

    Raises:
      ValueError: there is no gap, or a length that no word has.
    """
    matches = list(re.finditer(rf"\[MASK(?::(\d+))?\]|{re.escape(mask)}", text))
    if not matches:
        also = "" if mask == MASK else f' and no "{mask}"'
        raise ValueError(f'no "[MASK]"{also} in the text {text!r}')
    lengths: list[Length] = [_length(match[1], length) for match in matches]
    for wanted in lengths:
        if wanted != "auto":
            check(wanted)
    edges = [0, *(edge for match in matches for edge in match.span()), len(text)]
    return [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)], lengths


def _length(written: str | None, length: Length) -> Length:
    """Returns the number of characters of the word in a gap: the digits in "[MASK:5]", or `length` for "[MASK]"."""
    if written is not None and len(written) > LENGTH_DIGITS:
        raise ValueError(f"[MASK:{written[:LENGTH_DIGITS]}...]: expected a length of at most {LENGTH_DIGITS} digits")
    return length if written is None else int(written)
