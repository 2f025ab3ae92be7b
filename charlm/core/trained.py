"""The trained models that charlm carries, each a folder of `charlm/trained` that holds a compact checkpoint and a card.

`charlm.core.checkpoint.find` takes their names wherever a path of a model may be given, so that nothing else needs to
know them. A file or folder of that name comes before the model, as a config file of one's own comes before that of
charlm. Open it to change where names are looked up. The module needs no JAX.
"""

from __future__ import annotations

import os
from pathlib import Path

from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.reading import read_object
from charlm.core.types import JsonObject

FOLDER = Path(__file__).resolve().parents[1] / "trained"
DTYPES = ("bfloat16", "float32")  # what weights may be rounded to in a file
PACKED = (*DTYPES, "int8")  # the same of compact checkpoints
CARD = "card.json"  # what is known of a model, as JSON
MODEL_CARD = "README.md"  # the same as a model card, as the Hugging Face hub names it


def names() -> list[str]:
    """Returns the names of the models in alphabetical order; [] if there are none."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def folder_of(path: str | os.PathLike[str]) -> Path | None:
    """Returns the folder of the model of that name; None if `path` is no name of one, or if a file has that name."""
    name = os.fspath(path)
    return FOLDER / name if name in names() and not os.path.exists(name) else None


def suggestion(path: str | os.PathLike[str]) -> str:
    """Returns the end of the message for a name that nothing has, "; charlm carries X"; "" if charlm carries nothing.

    It is "" also for a path of several parts, which is no name of a model.
    """
    name, known = os.fspath(path), names()
    if not known or os.sep in name:
        return ""
    return f"; charlm carries {', '.join(known)}{did_you_mean(name, known, ALIKE)}"


def card_of(name: str) -> JsonObject:
    """Returns what the card of a model says; ValueError if the file is damaged."""
    return read_object(FOLDER / name / CARD)


def size_of(name: str) -> int:
    """Returns the bytes of all files of a model."""
    return sum(path.stat().st_size for path in (FOLDER / name).rglob("*") if path.is_file())
