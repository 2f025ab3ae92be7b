"""Describes and checks the fields `splitter` and `language` of a model's config, which say how text is cut into words.

A family whose models cut text into words themselves names these checks in its `Family`. Open it when a splitter or
language is wrongly accepted or refused.
"""

from __future__ import annotations

from charlm.core.keys import Key
from charlm.families.options import ModelOption
from charlm.text.words import SPLITTERS

SPLITTER = ModelOption(
    f"{__name__}:check_splitter",
    Key(
        "", "models of whole words: how text is cut, as in `text.splitter`; empty: as the model says", ("", *SPLITTERS)
    ),
)
LANGUAGE = ModelOption(f"{__name__}:check_language")
SPLITTING = ("splitter", "language")  # names of the two fields


def check_splitter(value: object) -> None:
    """Raises ValueError unless the value names a way to cut text into words."""
    if not isinstance(value, str) or value not in SPLITTERS:
        raise ValueError(f"splitter={value!r}: expected {', '.join(SPLITTERS)}")


def check_language(value: object) -> None:
    """Raises ValueError unless the value can be the code of a language."""
    if not isinstance(value, str):
        raise ValueError(f"language={value!r}: expected its code")
