"""Files as they are read, within limits: no small file takes a large memory, whatever it unpacks to or holds.

One rule for all readers: what is held at once is bounded, a stream of it is not.

- A line, or a cell of a table, has at most `LINE` bytes.
- A file that is read in one piece (a vocabulary, a tokenizer, a config, JSON) has at most `WHOLE` bytes.
- What is packed (gzip, a page of Parquet, PyTorch's zip) may unpack to `FREE` bytes, and beyond them to `RATIO` times
  its packed size: text packs to a tenth, repeated zeros to a thousandth.
- JSON is nested at most `DEPTH` deep.

CHARLM_LIMITS in the environment is a factor of all limits in bytes, for large files that are trusted. This module
imports nothing of charlm, so that all others can use it.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
LINE = 64 * MIB
WHOLE = 1024 * MIB
FREE = 64 * MIB
RATIO = 50
OBJECT = 32  # bytes that count for a line or value beside its own: objects take memory, too
DEPTH = 100
VARIABLE = "CHARLM_LIMITS"


class TooLarge(ValueError):
    """A file, or a part of one, that is not read because of its size."""


def scaled(limit: int) -> int:
    """Returns a limit in bytes, times CHARLM_LIMITS.

    Raises:
      ValueError: CHARLM_LIMITS is no positive number.
    """
    text = os.environ.get(VARIABLE) or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ValueError(f"{VARIABLE}={text}: expected a number above 0, the factor of all limits")
    return math.ceil(limit * factor)


def too_large(place: str, what: str) -> TooLarge:
    """Returns the error for what is too large: where it is, what it is, and what to do."""
    return TooLarge(f"{place}: {what}; for a file that you trust, {VARIABLE}=4 makes every limit four times as large")


def shown(size: int) -> str:
    """Returns a number of bytes as people read it, such as "64 MiB"."""
    power = min(3, max(0, size.bit_length() - 1) // 10)
    return f"{size / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def most_unpacked(packed: int) -> int:
    """Returns how many bytes something of so many packed ones may unpack to."""
    return max(scaled(FREE), math.ceil(scaled(RATIO) * packed))


def check_unpacked(place: str, what: str, packed: int, unpacked: int) -> None:
    """Raises TooLarge when `packed` bytes unpack to more than they may.

    Args:
      place: file. what: its part that unpacks, the beginning of a sentence. packed, unpacked: bytes.
    """
    if unpacked > (most := most_unpacked(packed)):
        sizes = f"unpacks from {shown(packed)} to {shown(unpacked)} or more, over the limit of {shown(most)}"
        raise too_large(place, f"{what} {sizes}")


class Held:
    """Counts what a reader keeps of a packed file; raises TooLarge as soon as it is more than may be.

    Args:
      path: the file, whose size on disk is that of what is packed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._held, self._packed = str(path), 0, os.path.getsize(path)
        self._most = most_unpacked(self._packed)

    def add(self, size: int, values: int = 1) -> None:
        """Adds `size` bytes in so many values."""
        self._held += size + values * OBJECT
        if self._held > self._most:
            check_unpacked(self._path, "its content", self._packed, self._held)


def lines_of(stream: io.BufferedIOBase, path: str) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a file with their numbers from 1; TooLarge when one is too long."""
    most = scaled(LINE)
    for number in itertools.count(1):
        line = stream.readline(most + 1)
        if not line:
            return
        if len(line) > most:
            raise too_large(f"{path}:{number}", f"a line of more than {shown(most)}")
        yield number, line


def read_bytes(path: str | os.PathLike[str], unpack: bool = False) -> bytes:
    """Returns the content of a file that is read in one piece.

    Args:
      unpack: it is packed by gzip.

    Raises:
      TooLarge: it is too large. OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and not unpack:
            _check_whole(str(path), status.st_size)
        if not unpack:
            return _read_whole(file, str(path))
        with gzip.GzipFile(fileobj=file) as unpacked:
            return _read_whole(unpacked, str(path), status.st_size)


def unpacked_bytes(data: bytes, place: str) -> bytes:
    """Returns what gzip packed; errors of gzip as they are, TooLarge when it is too large."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
        return _read_whole(unpacked, place, len(data))


def _read_whole(file: Any, place: str, packed: int | None = None) -> bytes:
    pieces, size = [], 0
    while piece := file.read(MIB):  # never more than is there: a large `read` would ask for its memory at once
        pieces.append(piece)
        size += len(piece)
        if packed is not None:
            check_unpacked(place, "the file", packed, size)
        _check_whole(place, size)
    return b"".join(pieces)


def _check_whole(place: str, size: int) -> None:
    if size > (most := scaled(WHOLE)):
        raise too_large(place, f"more than {shown(most)} in one piece")


def check_zip(path: str | os.PathLike[str]) -> None:
    """Raises TooLarge when the members of a zip say that they unpack to more than they may.

    Raises:
      BadZipFile: it is damaged. OSError: it cannot be read.
    """
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    check_unpacked(str(path), "the zip", os.path.getsize(path), unpacked)


def read_text(path: str | os.PathLike[str]) -> str:
    """Returns the UTF-8 text of a file as `Path.read_text` does, every line end as a newline.

    Raises:
      TooLarge: it is too large. UnicodeDecodeError: it is not UTF-8. OSError: it cannot be read.
    """
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def loads(text: str | bytes, hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Returns the value of a JSON text, the one way in which charlm reads JSON.

    Args:
      text: the text, or its UTF-8. hook: makes the value of an object from its (key, value) pairs; None: a dict.

    Raises:
      ValueError: it is not UTF-8, damaged, or nested too deep.
    """
    decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value = json.loads(decoded, object_pairs_hook=hook)
    except RecursionError:
        value = None
        deep = True
    else:
        deep = _deeper_than(value, DEPTH)
    if deep:
        raise ValueError(f"nested more than {DEPTH} deep")
    return value


def read_json(path: str | os.PathLike[str]) -> Any:
    """Returns the value of a JSON file; ValueError that names the file when it is too large, or none.

    Raises:
      OSError: it cannot be read.
    """
    data = read_bytes(Path(path))
    try:
        return loads(data)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON in UTF-8: {error}") from error


def _deeper_than(value: Any, depth: int) -> bool:
    """Whether arrays and objects are nested more than `depth` deep; goes level by level, so no depth is too much."""
    level = [value] if isinstance(value, (dict, list)) else []
    while level and depth:
        items = itertools.chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level)
        level = [item for item in items if isinstance(item, (dict, list, tuple))]
        depth -= 1
    return bool(level)
