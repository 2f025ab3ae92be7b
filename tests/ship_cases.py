"""A shipped model for tests: the small run, packed into a folder where charlm looks for trained models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from charlm.ship.__main__ import main

CORPUS = {"name": "Sentences of a test", "license": "cc0-1.0", "url": "https://example.org/sentences"}


def write_about(path: Path, *corpora: str, **more: Any) -> Path:
    """Writes what the maker of a model says about it, and about files of these names."""
    about = {
        "title": "A small model of English",
        "license": "apache-2.0",
        "language": ["en"],
        "limits": ["It has read a few hundred sentences.", "It knows English alone."],
        "corpora": dict.fromkeys(corpora, CORPUS),
    }
    path.write_text(json.dumps(about | more), encoding="utf-8")
    return path


def ship(checkpoint: Path | str, output: Path, about: Path, *more: str) -> int:
    """Packs a model; returns the exit status of the command."""
    return main([f"--checkpoint={checkpoint}", f"--output={output}", f"--about={about}", *more])
