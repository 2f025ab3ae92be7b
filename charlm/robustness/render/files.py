"""Writes the files of a report; open it to change their names, or how its numbers are written."""

from __future__ import annotations

import json
from pathlib import Path

from charlm.core.durable import write_text
from charlm.core.types import JsonObject


def write_files(folder: Path, results: JsonObject, markdown: str, html: str) -> list[Path]:
    """Writes a report's numbers and its two forms into a folder, which is made if needed; returns the files.

    They are report.json, report.md and report.html, in this order. Equal results give equal bytes.

    Raises:
      ValueError: the folder cannot be written.
    """
    texts = {
        "report.json": json.dumps(results, indent=1, sort_keys=True, allow_nan=False) + "\n",
        "report.md": markdown,
        "report.html": html,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise ValueError(f"cannot write the report to {folder}: {error}") from error
    return [folder / name for name in texts]
