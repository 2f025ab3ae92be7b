"""Helpers that damage checkpoints for tests: flip single bits, or remove the checksums as in old checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

from charlm.core import checksums


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(bytes(data))


def array_files(checkpoint: Path) -> list[Path]:
    """Returns the files of the arrays; the last one is the largest."""
    return sorted((p for p in checkpoint.glob("state/**/d/*") if p.is_file()), key=lambda p: p.stat().st_size)


def without_checksums(checkpoint: Path) -> Path:
    """Makes a checkpoint one of those that were saved before there were checksums."""
    (checkpoint / checksums.FILE).unlink()
    path = checkpoint / "_CHECKPOINT_METADATA"
    stored = json.loads(path.read_text())
    del stored["custom_metadata"][checksums.KEY]
    path.write_text(json.dumps(stored))
    return checkpoint
