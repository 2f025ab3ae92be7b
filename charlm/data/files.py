"""Finds, checks, splits into parts and reads text files: plain lines and JSON lines, also gzipped, and Parquet.

Open it to support another kind of file, or when a file is rejected as damaged or as not text.
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from charlm.core import extras, stores
from charlm.core.local_paths import is_address
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.reading import FREE, TooLarge, loads, scaled
from charlm.data.parquet_pages import largest_page
from charlm.data.parts import (
    BAD_UTF8,
    MAX_DOCUMENT_CHARS,
    TOO_LONG,
    Part,
    clear_read_errors,
    column_texts,
    decode,
)
from charlm.data.wet import WET, check_wet

PART_BYTES = 32 << 20  # a big plain file is read in ranges of this size; encoding one takes about half a minute

_LINE_BYTES = {
    "lines": 4 * MAX_DOCUMENT_CHARS,
    "jsonl": 16 * MAX_DOCUMENT_CHARS,
}  # a character takes up to 4 bytes in UTF-8, and up to two \uXXXX in JSON
_PARQUET_ROWS = 1024  # most rows of a batch
_HEAD_BYTES = 8192  # bytes at a file's beginning that tell text from binary
_HEAD_INVALID = 0.3  # a file counts as binary when more of its first lines are invalid
BOM = b"\xef\xbb\xbf"


def matching_files(spec: str, key: str, corpora: bool = False) -> list[str]:
    """Returns the sorted files that match a path or glob (copies of objects in a store); ValueError if none does.

    Args:
      corpora: whether the key may also name corpora that are no files, for the message.
    """
    if is_address(spec):
        return stores.matching(spec, key)
    here = f"(current directory: {os.getcwd()})"
    path = os.path.expanduser(spec)
    if os.path.isdir(path):
        raise ValueError(
            f"{key}: {spec!r} is a directory; give its files, such as {os.path.join(spec, '*.txt')!r} {here}"
        )
    found = [path] if os.path.exists(path) else sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
    if found:
        return found
    if glob.has_magic(path):
        raise ValueError(f"{key}: no file matches {spec!r} {here}")
    folder, base = os.path.split(path)
    near = did_you_mean(base, os.listdir(folder or ".") if os.path.isdir(folder or ".") else [], ALIKE)
    expected = "expected an existing file or glob"
    if corpora:
        near = near or did_you_mean(re.split("(?<=:)", spec)[0], ["builtin", "tfds:"], ALIKE)
        expected = 'expected "builtin", an existing file or glob, or "tfds:NAME[/CONFIG][:SPLIT]"'
    raise ValueError(f"{key}: {spec!r} does not exist {here}; {expected}{near}")


def file_parts(path: str, text_key: str) -> list[Part]:
    """Cuts a file into parts; raises ValueError when its content is not what its extension says."""
    name = os.path.basename(path)
    kind = "jsonl" if name.removesuffix(".gz").endswith((".jsonl", ".json")) else "lines"
    with clear_read_errors(path):
        if name.endswith(".parquet"):
            return _parquet_parts(path, name, text_key)
        if name.endswith(WET):
            check_wet(path)
            return [Part(name, "wet", path)]
        check_is_text(path)
        size = os.path.getsize(path)
    if name.endswith(".gz") or size <= PART_BYTES:  # gzip cannot be read from the middle
        return [Part(name, kind, path)]
    starts = range(0, size, PART_BYTES)
    return [Part(f"{name}@{start}", kind, path, start, min(start + PART_BYTES, size)) for start in starts]


def open_binary(path: str) -> io.BufferedIOBase:
    """Opens a file for reading bytes, unpacked when its name ends in .gz."""
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")


@contextlib.contextmanager
def gzip_errors(path: str) -> Iterator[None]:
    """Turns the errors of a damaged gzip file into a one-line ValueError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: truncated or damaged gzip file ({error})") from error


def check_is_text(path: str) -> None:
    """Raises ValueError when the beginning of the file is not UTF-8 text."""
    with gzip_errors(path), open_binary(path) as stream:
        head = stream.read(_HEAD_BYTES)
    if b"\0" in head:
        raise ValueError(f"{path}: file looks binary (NUL byte in its first {_HEAD_BYTES} bytes); expected UTF-8 text")
    lines = [line for line in head.splitlines(keepends=True) if line.strip()]
    invalid = sum(not _decodes(line) for line in lines[:-1])
    invalid += sum(not _decodes(line, cut=len(head) == _HEAD_BYTES) for line in lines[-1:])
    if invalid > _HEAD_INVALID * len(lines):
        counts = f"{invalid} of its first {len(lines)} lines are invalid UTF-8"
        raise ValueError(f"{path}: file looks binary or is not UTF-8 ({counts}); expected UTF-8 text")


def _decodes(data: bytes, cut: bool = False) -> bool:
    """Returns whether `data` is UTF-8; with `cut`, it may end inside a character."""
    try:
        codecs.utf_8_decode(data, "strict", not cut)
    except UnicodeDecodeError:
        return False
    return True


def _raw_lines(part: Part) -> Iterator[bytes | None]:
    """Yields the lines that begin inside the part, one bounded line in memory at a time; None for a line too long."""
    limit = _LINE_BYTES[part.kind]
    with gzip_errors(part.path), open_binary(part.path) as stream:
        position = part.start
        if part.start:  # a line that began earlier belongs to the part before
            stream.seek(part.start - 1)
            position += _drain(stream) - 1
        while part.stop is None or position < part.stop:
            line = stream.readline(limit)
            if not line:
                return
            first, size = position == 0, len(line)
            if size == limit and not line.endswith(b"\n"):
                size += _drain(stream)
                yield None
            else:
                yield line.removeprefix(BOM) if first else line
            position += size


def _drain(stream: io.BufferedIOBase) -> int:
    """Reads to the end of the line in small pieces; returns the number of bytes read."""
    total = 0
    while piece := stream.readline(1 << 20):
        total += len(piece)
        if piece.endswith(b"\n"):
            break
    return total


def read_lines(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields each line that is not blank; `text_key` is not used, all readers take it."""
    del text_key
    for line in _raw_lines(part):
        text = None if line is None else decode(line)
        if text is None:
            skipped[TOO_LONG if line is None else BAD_UTF8] += 1
        elif text := text.strip():
            yield text


def read_jsonl(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text of each JSON line; raises ValueError when no line has one."""
    good, first_reason = False, ""
    for number, line in enumerate(_raw_lines(part), 1):
        if line is not None and not line.strip():
            continue
        text, reason = (None, TOO_LONG) if line is None else _json_text(line, text_key)
        if text is None:
            skipped[reason] += 1
            first_reason = first_reason or f"{part.path}:{number}: {reason}"
            continue
        good = True
        if text := text.strip():
            yield text
    if first_reason and not good and part.start == 0:  # a later part without text may be part of a good file
        raise ValueError(f"{first_reason} (and no other line can be read; expected one JSON object per line)")


def _json_text(line: bytes, text_key: str) -> tuple[str | None, str]:
    """Returns (text, ""), or (None, reason) when the line has no text."""
    if (decoded := decode(line)) is None:
        return None, BAD_UTF8
    try:
        item = loads(decoded)
    except ValueError:
        return None, "invalid JSON"
    if not isinstance(item, dict):
        return None, "not a JSON object"
    if text_key not in item:
        return None, f"no key {text_key!r}"
    return (item[text_key], "") if isinstance(item[text_key], str) else (None, f"value of {text_key!r} is not a string")


def open_parquet(path: str) -> Any:  # a `ParquetFile` of pyarrow, which is optional and has no types
    """Opens a Parquet file; raises ValueError when it is not one, or pyarrow is missing."""
    pyarrow, parquet = (extras.load(f"{path} is Parquet", name) for name in ("pyarrow", "pyarrow.parquet"))
    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error


def _parquet_parts(path: str, name: str, text_key: str) -> list[Part]:
    """Groups row groups into parts of about `PART_BYTES`; raises ValueError when the column is missing or not text."""
    with open_parquet(path) as file:
        types = {field.name: str(field.type) for field in file.schema_arrow}
        if text_key not in types:
            known = ", ".join(types)
            raise ValueError(
                f"{path}: no column {text_key!r} (data.text_key); columns: {known}"
                f"{did_you_mean(text_key, [*types], ALIKE)}"
            )
        if types[text_key] not in ("string", "large_string", "string_view", "binary", "large_binary"):
            raise ValueError(f"{path}: column {text_key!r} (data.text_key) holds {types[text_key]}; expected strings")
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    parts, start, filled = [], 0, 0
    for i, size in enumerate(sizes):
        filled += size
        if filled >= PART_BYTES or i == len(sizes) - 1:
            parts.append(Part(f"{name}@{start}", "parquet", path, start, i + 1))
            start, filled = i + 1, 0
    return parts or [Part(name, "parquet", path, 0, 0)]


def parquet_batches(
    file: Any,  # a `ParquetFile` of pyarrow, which has no types
    path: str,
    columns: Sequence[str],
    groups: Sequence[int],
) -> Iterator[Any]:  # record batches of pyarrow
    """Yields some columns of some row groups in batches with so few rows that a batch takes little memory.

    With a dictionary, or a prefix that values share, each value of a batch may be as long as a whole page.

    Raises:
      TooLarge: a page is too large.
      pyarrow's errors: the file is damaged.
    """
    for group in groups:
        largest = largest_page(path, file, group, columns)
        rows = max(1, min(_PARQUET_ROWS, scaled(FREE) // max(1, largest)))
        yield from file.iter_batches(batch_size=rows, row_groups=[group], columns=[*columns])


def expanded_bytes(array: Any) -> int:  # an array of pyarrow, which has no types
    """Returns how many bytes the values of an array take once each stands for itself, not as a dictionary's entry."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.DictionaryArray):
        entries = array.dictionary
        if pa.types.is_dictionary(entries.type) or pa.types.is_nested(entries.type):
            return len(array) * expanded_bytes(entries)  # at most
        if isinstance(entries, pa.StringArray | pa.BinaryArray | pa.LargeStringArray | pa.LargeBinaryArray):
            lengths = pc.call_function("binary_length", [entries]).cast("int64").take(array.indices)
            return array.indices.nbytes + (pc.call_function("sum", [lengths]).as_py() or 0)
        return array.indices.nbytes + len(array) * (entries.type.bit_width // 8)
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return 8 * len(array) + expanded_bytes(array.flatten())
    if isinstance(array, pa.StructArray):
        return sum(expanded_bytes(field) for field in array.flatten())
    return array.nbytes


def read_parquet(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text column of the part's row groups."""
    groups = list(range(part.start, part.stop or 0))
    with open_parquet(part.path) as file:
        try:
            for batch in parquet_batches(file, part.path, [text_key], groups):
                column = batch.column(0).cast("large_binary")  # as bytes, so that invalid UTF-8 can be skipped
                yield from column_texts(column.to_pylist(), skipped)
        except TooLarge:
            raise
        except (OSError, ArithmeticError, ValueError) as error:  # pyarrow's errors derive from these
            raise ValueError(f"{part.path}: damaged Parquet file ({error})") from error
