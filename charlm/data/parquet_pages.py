"""Reads the headers of Parquet pages, to know how large a page becomes before it is unpacked.

`charlm.data.files` calls it before it lets pyarrow read. Open it when a Parquet file is refused because of its pages.

pyarrow unpacks as much as a page's header asks for and does not expose the headers, so a file of some hundred bytes may
ask for gigabytes. Headers are structs in Thrift's compact protocol (`PageHeader` in Parquet's parquet.thrift).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from charlm.core.reading import OBJECT, check_unpacked

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_UNPACKED, _PACKED = 2, 3  # fields of PageHeader with sizes in bytes
_DATA, _DATA_V2, _VALUES = 5, 8, 1  # fields with a data page's header; in it, the number of values
_FIRST_READ, _LONGEST_HEADER = 1 << 9, 1 << 24  # pyarrow accepts no longer headers either


Fields: TypeAlias = dict[int, Any]  # of a struct: the number of a field says whether it is an integer or a struct


class Page(NamedTuple):
    """Size of a page in the file and unpacked, in bytes, and the number of values that its header states."""

    packed: int
    unpacked: int
    values: int


def largest_page(path: str, file: Any, group: int, columns: Sequence[str]) -> int:  # pyarrow has no types
    """Returns the size in bytes of the largest unpacked page of some columns in a row group.

    Args:
      path: the path of the file; also used in messages.
      file: pyarrow's ParquetFile of the same file.
      columns: names of the columns.

    Raises:
      TooLarge: a page, or the lists of a column, would unpack to more than is allowed.
      ValueError: a header is damaged.
    """
    largest, about = 0, file.metadata.row_group(group)
    with open(path, "rb") as stream:
        for index in range(about.num_columns):
            chunk = about.column(index)
            name = next((name for name in columns if f"{chunk.path_in_schema}.".startswith(f"{name}.")), "")
            if not name or not chunk.total_compressed_size:
                continue
            starts = [chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset]
            where, values = f"row group {group}, column {name!r}", 0
            for page in _pages(stream, min(starts), min(starts) + chunk.total_compressed_size):
                check_unpacked(path, f"{where}: a page", page.packed, page.unpacked)
                largest, values = max(largest, page.unpacked), values + page.values
            if file.schema.column(index).max_repetition_level:  # a single row may hold all values
                check_unpacked(path, f"{where}: its lists", chunk.total_compressed_size, values * OBJECT)
    return largest


def _pages(stream: BinaryIO, start: int, stop: int) -> Iterator[Page]:
    """Yields the pages between two offsets of the file, going from header to header."""
    while start < stop:
        header, size = _read_header(stream, start, stop)
        unpacked, packed = header.get(_UNPACKED), header.get(_PACKED)
        if packed is None or unpacked is None or unpacked < 0 or not 0 <= packed <= stop - start - size:
            raise ValueError(f"page header at byte {start} says no sizes, or wrong ones")
        about = header.get(_DATA) or header.get(_DATA_V2) or {}
        yield Page(packed, unpacked, about.get(_VALUES, 0))
        start += size + packed


def _read_header(stream: BinaryIO, start: int, stop: int) -> tuple[Fields, int]:
    """Returns the fields of a header and its length; raises ValueError when the bytes are not a header."""
    size = _FIRST_READ
    while True:
        stream.seek(start)
        data = stream.read(min(size, stop - start))
        try:
            return _struct(data, 0, 0)
        except IndexError:
            if size >= min(_LONGEST_HEADER, stop - start) or len(data) < min(size, stop - start):
                raise ValueError(f"page header at byte {start} is cut short or damaged") from None
        size *= 32


def _struct(data: bytes, at: int, depth: int) -> tuple[Fields, int]:
    """Returns the 32-bit integers and structs of a struct by field, and its end; IndexError when the data end first."""
    fields: Fields = {}
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _whole(data, at)
        value, at = _value(data, at, kind, depth)
        if kind in (_I32, _STRUCT):
            fields[number] = value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[int | Fields | None, int]:
    if kind in (_TRUE, _FALSE):
        return None, at
    if kind in (_I16, _I32, _I64):
        return _whole(data, at)
    if kind == _STRUCT and depth < 4:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        size, at = _varint(data, at)
        at += size
    elif kind in (_BYTE, _DOUBLE):
        at += 1 if kind == _BYTE else 8
    else:  # page headers have no lists, sets or maps
        raise ValueError("page header is damaged")
    if at > len(data):
        raise IndexError
    return None, at


def _whole(data: bytes, at: int) -> tuple[int, int]:
    """Returns a signed integer, stored in zigzag encoding, and the offset of its end."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("page header is damaged")
