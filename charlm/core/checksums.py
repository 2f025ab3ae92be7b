"""Checksums of a checkpoint: written before the checkpoint counts as complete, compared before it is used.

They cover the bytes on disk, so they do not depend on how many devices or processes write or read a checkpoint. The
file `FILE` holds the checksums of all other files. The checkpoint's description (config, vocabulary) carries a checksum
of its own, because orbax rewrites its file after all others. Open it when a checkpoint is reported as damaged and you
want to know what was compared.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from charlm.core.durable import write_text
from charlm.core.reading import read_json
from charlm.core.types import Json, JsonObject

log = logging.getLogger("charlm")

FILE = "checksums.json"
KEY = "crc32"  # the key of the checksums in FILE and in the description
ABOUT = "_CHECKPOINT_METADATA"  # orbax's file with the description of a checkpoint
_WRITTEN_LAST = (ABOUT, "commit_success.txt")  # orbax writes these into the checkpoint's folder after the checksums
_OTHER = "its config, vocabulary or other description is not what was saved"
_BLOCK = 1 << 20  # bytes read at a time


def write(folder: Path) -> None:
    """Writes the checksums of all files in a folder to its `FILE`; raises OSError if that fails."""
    sums = _sums(folder, [name for name in _files(folder) if name not in (FILE, *_WRITTEN_LAST)])
    write_text(str(folder / FILE), json.dumps({KEY: sums}, indent=0) + "\n")


def check(folder: Path) -> None:
    """Compares the files of a checkpoint with its checksums; a checkpoint without checksums passes, with a log line.

    Files whose size and time are unchanged since this process last compared them are not read again.

    Raises:
      ValueError: files are missing or hold other bytes than were saved; names the first.
    """
    description = of_itself(folder).description
    undescribed(description)
    if not (folder / FILE).is_file():
        if KEY in description:
            raise ValueError(f"{FILE} is missing")
        _say_once(folder)
        return
    if KEY not in description:
        raise ValueError(_OTHER)
    stamps = []
    for name in _files(folder):
        stat = (folder / name).stat()
        stamps.append((name, stat.st_size, stat.st_mtime_ns))
    _compare(folder, tuple(stamps))


@functools.lru_cache(maxsize=64)
def _compare(folder: Path, stamps: tuple[tuple[str, int, int], ...]) -> None:
    try:
        saved = read_json(folder / FILE)[KEY]
    except (ValueError, KeyError, TypeError):
        saved = None
    if not isinstance(saved, dict):
        raise ValueError(f"{FILE} is not what was saved")
    present = {name for name, _, _ in stamps}
    now = _sums(folder, [name for name in saved if name in present])
    wrong = [name for name, value in saved.items() if now.get(name) != value]
    if wrong:
        more = f" and {len(wrong) - 1} more files are" if wrong[1:] else " is"
        raise ValueError(f"{wrong[0]}{more} {'missing' if wrong[0] not in present else 'not what was saved'}")


@functools.cache
def _say_once(folder: Path) -> None:
    log.info("%s was saved without checksums: damage to its arrays would not be noticed", folder)


class OfItself(NamedTuple):
    """A checkpoint's description, including its checksum, and the time the checkpoint was saved, in ns."""

    description: JsonObject
    saved: int


def of_itself(folder: Path) -> OfItself:
    """Returns a checkpoint's description and the time it was saved.

    Reads the file without orbax, which would also open the arrays and fill the log if they are damaged.

    Raises:
      ValueError: the description is damaged.
      OSError: it cannot be read.
    """
    stored = read_json(folder / ABOUT)
    if not isinstance(stored, dict):
        raise ValueError(_OTHER)
    description, saved = stored.get("custom_metadata") or {}, stored.get("commit_timestamp_nsecs")
    if not isinstance(description, dict) or not isinstance(saved, int):
        raise ValueError(_OTHER)
    return OfItself(description, saved)


def described(description: Mapping[str, Json]) -> JsonObject:
    """Returns the description of a checkpoint with its checksum added; `undescribed` is the inverse."""
    plain = {name: value for name, value in description.items() if name != KEY}
    return plain | {KEY: _sum_of_json(plain)}


def undescribed(stored: Mapping[str, Json]) -> JsonObject:
    """Returns a stored description without its checksum (old ones have none); ValueError if the checksum is wrong."""
    plain = {name: value for name, value in stored.items() if name != KEY}
    if KEY in stored and stored[KEY] != _sum_of_json(plain):
        raise ValueError(_OTHER)
    return plain


def _sum_of_json(value: Json) -> str:
    read_back = json.loads(json.dumps(value))  # turns numeric keys into text before they are sorted
    return f"{zlib.crc32(json.dumps(read_back, sort_keys=True).encode()):08x}"


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _sums(folder: Path, names: list[str]) -> dict[str, str]:
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(lambda name: _sum(folder / name), names), strict=True))


def _sum(path: Path) -> str:
    value = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return f"{value:08x}"
