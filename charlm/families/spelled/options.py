"""Checks the fields `splitter` and `language` of a model's config, which say how text is cut into words."""

from __future__ import annotations

from typing import Any

from charlm.text.words import SPLITTERS


def check_splitter(value: Any) -> None:
    """Raises ValueError unless the value names a way to cut text into words."""
    if not isinstance(value, str) or value not in SPLITTERS:
        raise ValueError(f"splitter={value!r}: expected {', '.join(SPLITTERS)}")


def check_language(value: Any) -> None:
    """Raises ValueError unless the value can be the code of a language."""
    if not isinstance(value, str):
        raise ValueError(f"language={value!r}: expected its code")
