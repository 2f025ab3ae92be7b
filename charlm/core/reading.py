"""Reads files within limits on memory, so that no small file, compressed or malformed, can exhaust it.

All readers of charlm use these limits; open this module when a file is refused as too large. The limits bound what is
held in memory at once, not the length of a stream.

- A line, or a cell of a table, has at most `LINE` bytes.
- A file that is read in one piece (a vocabulary, a tokenizer, a config, JSON) has at most `MOST_BYTES` bytes.
- Compressed data (gzip, a page of Parquet, PyTorch's zip) may always unpack to `FREE` bytes, and to more only up to
  `RATIO` times its packed size. Text packs to about a tenth, repeated zeros to a thousandth.
- JSON is nested at most `DEPTH` deep.

The environment variable CHARLM_LIMITS multiplies all limits in bytes, for large files that are trusted. This module
imports nothing of charlm but names of types, so that all others can use it.
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
from typing import BinaryIO

from charlm.core.types import Json, JsonObject

MIB = 1 << 20
LINE = 64 * MIB
MOST_BYTES = 1024 * MIB
FREE = 64 * MIB
RATIO = 50
OBJECT = 32  # bytes counted per line or value in addition to its content: the overhead of its Python object
DEPTH = 100
VARIABLE = "CHARLM_LIMITS"


class TooLarge(ValueError):
    """Raised for a file, or a part of one, that is too large to be read."""


def scaled(limit: int) -> int:
    """Returns a limit in bytes multiplied by CHARLM_LIMITS.

    Raises:
      ValueError: CHARLM_LIMITS is not a positive number.
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
    """Returns the error for too large data: `place` is where it is, `what` says what is too large."""
    return TooLarge(f"{place}: {what}; for a file that you trust, {VARIABLE}=4 makes every limit four times as large")


def shown(size: int) -> str:
    """Returns a number of bytes in readable form, such as "64 MiB"."""
    power = min(3, max(0, size.bit_length() - 1) // 10)
    return f"{size / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def most_unpacked(packed: int) -> int:
    """Returns the number of bytes that `packed` bytes may unpack to."""
    return max(scaled(FREE), math.ceil(scaled(RATIO) * packed))


def check_unpacked(place: str, what: str, packed: int, unpacked: int) -> None:
    """Raises TooLarge if `packed` bytes unpack to more than `most_unpacked` allows.

    Args:
      place: the file.
      what: the part of it that unpacks, as the subject of the message.
      packed, unpacked: bytes.
    """
    if unpacked > (most := most_unpacked(packed)):
        sizes = f"unpacks from {shown(packed)} to {shown(unpacked)} or more, over the limit of {shown(most)}"
        raise too_large(place, f"{what} {sizes}")


class Held:
    """Counts the bytes that a reader keeps of a compressed file; raises TooLarge as soon as they exceed the limit.

    Args:
      path: the file; its size on disk is taken as the packed size.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._held, self._packed = str(path), 0, os.path.getsize(path)
        self._most = most_unpacked(self._packed)

    def add(self, size: int, values: int = 1) -> None:
        """Adds `size` bytes in `values` Python objects."""
        self._held += size + values * OBJECT
        if self._held > self._most:
            check_unpacked(self._path, "its content", self._packed, self._held)


def lines_of(stream: io.BufferedIOBase, path: str) -> Iterator[tuple[int, bytes]]:
    """Yields (line number from 1, line) of a file; raises TooLarge if a line is too long."""
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
      unpack: whether the file is compressed by gzip.

    Raises:
      TooLarge: it is too large.
      OSError: it cannot be read.
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
    """Returns data decompressed by gzip; raises gzip's own errors, and TooLarge if the result is too large."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
        return _read_whole(unpacked, place, len(data))


def _read_whole(file: BinaryIO | gzip.GzipFile, place: str, packed: int | None = None) -> bytes:
    pieces, size = [], 0
    while piece := file.read(MIB):  # in small pieces: a large `read` would allocate all its memory at once
        pieces.append(piece)
        size += len(piece)
        if packed is not None:
            check_unpacked(place, "the file", packed, size)
        _check_whole(place, size)
    return b"".join(pieces)


def _check_whole(place: str, size: int) -> None:
    if size > (most := scaled(MOST_BYTES)):
        raise too_large(place, f"more than {shown(most)} in one piece")


def check_zip(path: str | os.PathLike[str]) -> None:
    """Checks the unpacked size that a zip declares for its members.

    Raises:
      TooLarge: it is too large.
      BadZipFile: the zip is damaged.
      OSError: it cannot be read.
    """
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    check_unpacked(str(path), "the zip", os.path.getsize(path), unpacked)


def read_text(path: str | os.PathLike[str]) -> str:
    """Returns the UTF-8 text of a file with every line end as a newline, as `Path.read_text` does.

    Raises:
      TooLarge: it is too large.
      UnicodeDecodeError: it is not UTF-8.
      OSError: it cannot be read.
    """
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def loads(text: str | bytes, hook: Callable[[list[tuple[str, Json]]], Json] | None = None) -> Json:
    """Returns the value of a JSON text; charlm parses all JSON with this function.

    Args:
      text: the text, or its UTF-8 bytes.
      hook: makes the value of an object from its (key, value) pairs; None: a dict.

    Raises:
      ValueError: the text is not UTF-8, not JSON, or nested too deep.
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


def read_json(path: str | os.PathLike[str]) -> Json:
    """Returns the value of a JSON file.

    Raises:
      ValueError: the file is too large or not JSON; names the file.
      OSError: it cannot be read.
    """
    data = read_bytes(Path(path))
    try:
        return loads(data)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON in UTF-8: {error}") from error


def read_object(path: str | os.PathLike[str]) -> JsonObject:
    """Returns the object of a JSON file.

    Raises:
      ValueError: the file is missing, truncated, too large, not a JSON object, or has a key twice; names the file.
      OSError: it cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: expected this file, found none")
    data = read_bytes(path)
    try:
        content = loads(data, unique)
    except ValueError as error:
        raise ValueError(f"{path}: expected a UTF-8 JSON object: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def unique(pairs: list[tuple[str, Json]]) -> JsonObject:
    """Returns the dict of pairs, as the `hook` of `loads`; raises ValueError if a key occurs twice."""
    result = dict(pairs)
    if len(result) != len(pairs):
        first = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"key {first!r} is there twice")
    return result


def _deeper_than(value: Json, depth: int) -> bool:
    """Returns whether arrays and objects are nested more than `depth` deep, without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    while level and depth:
        items = itertools.chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level)
        level = [item for item in items if isinstance(item, (dict, list, tuple))]
        depth -= 1
    return bool(level)
