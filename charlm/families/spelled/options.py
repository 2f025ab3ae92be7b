"""Fields of a config that models of words have, and which values they may have: how text is cut into words."""

from __future__ import annotations

from typing import Any

from charlm.text.words import SPLITTERS


def check_splitter(value: Any) -> None:
    """Raises ValueError unless text can be cut into words in this way."""
    if not isinstance(value, str) or value not in SPLITTERS:
        raise ValueError(f"splitter={value!r}: expected {', '.join(SPLITTERS)}")


def check_language(value: Any) -> None:
    """Raises ValueError unless this can be the code of a language."""
    if not isinstance(value, str):
        raise ValueError(f"language={value!r}: expected its code")
