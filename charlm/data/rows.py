"""Reads rows of labelled data, with their places: TSV, CSV, JSON, JSON lines, Parquet and prepared TFDS data sets.

`charlm.data.text_tables` builds examples from these rows; open this module to support another format.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.reading import LINE, Held, TooLarge, loads, scaled, shown, too_large
from charlm.core.types import Json
from charlm.data.conll_lines import SENTENCE_NUMBER, settle, split_sentences
from charlm.data.examples import Skipped, joined
from charlm.data.files import expanded_bytes, open_parquet, parquet_batches
from charlm.data.lines import decoded, numbered_lines, parsed_json, whole_text
from charlm.data.parts import clear_read_errors
from charlm.data.tfds_source import open_prepared, tfds_parts

Column = str | int

SENTENCE_COLUMNS = ("sentence", "label", "id")  # of files whose sentences begin with "# sent_enum = 1"
JSON_EXTENSIONS = (".jsonl", ".ndjson", ".json")
_TFDS_BATCH = 256


class NoColumn(ValueError):
    """A file lacks a column.

    Args:
      place: where it was looked for.
      kind: what the format calls it, such as "key".
      column: its name.
      names: those of the file.
      key: the config key that names the column; "" where readers do not know it.
      where: what follows the name, such as " in the header".
    """

    def __init__(
        self, place: str, kind: str, column: str, names: Iterable[str], key: str = "", where: str = ""
    ) -> None:
        self.place, self.kind, self.column, self.names, self.where = place, kind, column, [*names], where
        known = f"{kind}s: {', '.join(map(repr, self.names))}{did_you_mean(column, self.names, ALIKE)}"
        super().__init__(f"{place}: no {kind} {column!r}{f' ({key})' if key else ''}{where}; {known}")

    def named(self, key: str) -> NoColumn:
        """Returns the same for a column that a config key names."""
        return NoColumn(self.place, self.kind, self.column, self.names, key, self.where)


class FileRow(NamedTuple):
    """A row.

    Attributes:
      place: file and line (file and item, when JSON is in one piece), for messages.
      name: the same without folders: an id that does not depend on where the data lie.
      cells: the requested columns, in the requested order: `str` from TSV and CSV, any value otherwise.
    """

    place: str
    name: str
    cells: tuple[Json, ...]


def read_rows(
    path: str,
    columns: Sequence[Column],
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    quoting: bool | None = None,
    skipped: Skipped | None = None,
) -> Iterator[FileRow]:
    """Yields the requested columns of every row; blank lines are skipped and counted.

    Args:
      path: a file, or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]" of a prepared data set. The extension (also followed by
        .gz) decides the format: .csv; .jsonl, .ndjson and .json (one object per line, an array, or an object of
        objects); .parquet; all other files are TSV, except columns of words whose first line is "# sent_enum = 1"
        (LinCE): their rows are sentences with the columns `SENTENCE_COLUMNS`.
      columns: name of each column, or its number from 0 (negative: from the end; TSV and CSV only).
      header: whether the first line holds names; None: yes when a column is requested by name.
      delimiter: the delimiter of TSV and CSV; None: a comma in .csv, else a tab.
      quoting: whether double quotes enclose cells; None: in .csv only, since GLUE's files hold unbalanced quotes.
      skipped: counts blank lines.

    Raises:
      ValueError: unreadable file, missing column, row with too few columns; says where, expected and got.
    """
    skipped = skipped or Skipped()
    if path.startswith("tfds:"):
        return _tfds_rows(path, columns)
    extension = os.path.splitext(path.removesuffix(".gz"))[1].lower()
    if extension == ".parquet":
        return _parquet_rows(path, columns)
    if extension in JSON_EXTENSIONS:
        return _json_rows(path, columns, skipped)
    is_csv = extension == ".csv"
    if not is_csv and _has_numbered_sentences(path):
        return _sentence_rows(path, columns)
    delimiter = delimiter or ("," if is_csv else "\t")
    if len(delimiter) != 1:
        raise ValueError(f"{path}: delimiter={delimiter!r}: expected one character")
    quoting = is_csv if quoting is None else quoting
    records = _quoted(path, delimiter, skipped) if quoting else _unquoted(path, delimiter, skipped)
    if header is None:
        header = any(_as_number(column) is None for column in columns)
    return _delimited_rows(path, records, columns, header)


def _has_numbered_sentences(path: str) -> bool:
    first = next((line for _, line in numbered_lines(path) if line.strip()), "")
    return bool(SENTENCE_NUMBER.fullmatch(first))


def _sentence_rows(path: str, columns: Sequence[Column]) -> Iterator[FileRow]:
    """Yields the sentences of a file of LinCE's: words with spaces between, and the class beside the number."""
    names, lines = _names_only(path, columns), list(numbered_lines(path))
    if unknown := [column for column in names if column not in SENTENCE_COLUMNS]:
        raise NoColumn(path, "column", unknown[0], SENTENCE_COLUMNS, where=" in numbered sentences")
    for sentence in split_sentences(path, lines, settle(path, lines, "columns", None, None, None)):
        number = sentence.numbers[0]
        if "label" in names and not sentence.label:
            raise ValueError(
                f"{path}:{number}: no class beside the number of the sentence, as in '# sent_enum = 1\\tgood'"
            )
        cells = {"sentence": joined(sentence.words)[0], "label": sentence.label, "id": sentence.id}
        yield FileRow(f"{path}:{number}", f"{os.path.basename(path)}:{number}", tuple(cells[name] for name in names))


def _unquoted(path: str, delimiter: str, skipped: Skipped) -> Iterator[tuple[int, list[str]]]:
    for number, line in numbered_lines(path):
        if line.strip(" "):  # a line of tabs is a row of empty cells, not a blank line
            yield number, line.split(delimiter)
        else:
            skipped.skip("blank line", f"{path}:{number}")


def _quoted(path: str, delimiter: str, skipped: Skipped) -> Iterator[tuple[int, list[str]]]:
    """Yields each CSV row with the number of its first line; a cell may hold line ends."""
    lines = (f"{line}\n" for _, line in numbered_lines(path))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)  # strict: an open quote must not swallow the file
    start = 1
    most = scaled(LINE)
    limit = csv.field_size_limit(most)  # 131,072 by default, less than a long document
    try:
        rows = []
        for cells in reader:
            rows.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        if "field limit" in str(error):
            raise too_large(f"{path}:{start}", f"a cell of more than {shown(most)}") from error
        raise ValueError(f"{path}:{start}: not a CSV row ({error}); expected balanced quotes") from error
    finally:
        csv.field_size_limit(limit)
    for number, cells in rows:
        if cells:
            yield number, cells
        else:
            skipped.skip("blank line", f"{path}:{number}")


def _as_number(column: Column) -> int | None:
    """Returns the number of a column, or None when it is a name; "2" is a number, as command lines pass text only."""
    if isinstance(column, int):
        return column
    return int(column) if column.removeprefix("-").isdecimal() else None


def _delimited_rows(
    path: str, records: Iterator[tuple[int, list[str]]], columns: Sequence[Column], header: bool
) -> Iterator[FileRow]:
    name, names = os.path.basename(path), None
    numbers = [_as_number(column) for column in columns]
    if header:
        number, cells = next(records, (0, None))
        if cells is None:
            raise ValueError(f"{path}: file is empty; expected a header with {_listed(columns)}")
        names = [cell.strip() for cell in cells]
        numbers = [_named_number(f"{path}:{number}", column, names) for column in columns]
    elif None in numbers:
        column = columns[numbers.index(None)]
        raise ValueError(f"{path}: column {column!r} goes by name, but the file has no header; expected its number")
    for number, cells in records:
        place = f"{path}:{number}"
        if names is not None and len(cells) > len(names) and any(cells[len(names) :]):
            raise ValueError(f"{place}: row has {len(cells)} columns; expected {len(names)} as in the header")
        picked = tuple(_cell(place, cells, i, column) for i, column in zip(numbers, columns, strict=True))
        yield FileRow(place, f"{name}:{number}", picked)


def _cell(place: str, cells: list[str], index: int | None, column: Column) -> str:
    assert index is not None
    if -len(cells) <= index < len(cells):
        return cells[index]
    needed = index + 1 if index >= 0 else -index
    raise ValueError(f"{place}: row has {len(cells)} columns; expected at least {needed} (column {column!r})")


def _named_number(place: str, column: Column, names: list[str]) -> int:
    if isinstance(column, str) and names.count(column) > 1:
        raise ValueError(f"{place}: column {column!r} occurs {names.count(column)} times in the header")
    if column in names:
        return names.index(str(column))
    if (number := _as_number(column)) is None:
        raise NoColumn(place, "column", str(column), names, where=" in the header")
    return number


def _listed(names: Iterable[object]) -> str:
    return ", ".join(repr(name) for name in names)


def _names_only(path: str, columns: Sequence[Column]) -> list[str]:
    for column in columns:
        if isinstance(column, int):
            raise ValueError(f"{path}: column {column} is a number; expected a name (numbers are for TSV and CSV)")
    return [str(column) for column in columns]


def _json_rows(path: str, columns: Sequence[Column], skipped: Skipped) -> Iterator[FileRow]:
    keys, name = _names_only(path, columns), os.path.basename(path)
    for where, item in _json_items(path, skipped):
        place = f"{path}{where}"
        if not isinstance(item, dict):
            raise ValueError(f"{place}: not a JSON object; expected one with {_listed(keys)}, got {_kind(item)}")
        for key in keys:
            if key not in item:
                raise NoColumn(place, "key", key, item)
        yield FileRow(place, f"{name}{where}", tuple(item[key] for key in keys))


def _kind(value: Json) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")


def _json_items(path: str, skipped: Skipped) -> Iterator[tuple[str, Json]]:
    """Yields each JSON value and its place: ":LINE" in JSON lines, "[3]" or "['key']" when JSON is in one piece."""
    lines = []
    for number, line in numbered_lines(path):
        if line.strip():
            lines.append((number, line))
        else:
            skipped.skip("blank line", f"{path}:{number}")
    if not lines:
        return
    first = lines[0][1]
    if len(lines) > 1 and not first.lstrip().startswith("[") and _is_json(first):
        for number, line in lines:
            yield f":{number}", parsed_json(line, f"{path}:{number}")
        return
    value = parsed_json(whole_text(path), path)
    if isinstance(value, list):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    else:  # JSON lines with a single line
        yield f":{lines[0][0]}", value


def _is_json(text: str) -> bool:
    try:
        loads(text)
    except ValueError:
        return False
    return True


def _parquet_rows(path: str, columns: Sequence[Column]) -> Iterator[FileRow]:
    keys, name = _names_only(path, columns), os.path.basename(path)
    with clear_read_errors(path), open_parquet(path) as file:
        names = file.schema_arrow.names
        for key in keys:
            if key not in names:
                raise NoColumn(path, "column", key, names)
        start, held = 0, Held(path)
        try:
            for batch in parquet_batches(file, path, sorted(set(keys)), range(file.num_row_groups)):
                held.add(sum(map(expanded_bytes, batch.columns)), batch.num_rows)
                picked = [batch.column(key).to_pylist() for key in keys]
                for i, cells in enumerate(zip(*picked, strict=True), start):
                    yield FileRow(f"{path}[{i}]", f"{name}[{i}]", cells)
                start += batch.num_rows
        except TooLarge:
            raise
        except (ArithmeticError, ValueError) as error:  # pyarrow's own errors derive from these and from OSError
            raise ValueError(f"{path}: damaged Parquet file ({error})") from error


def _tfds_rows(spec: str, columns: Sequence[Column]) -> Iterator[FileRow]:
    keys = _names_only(spec, columns)
    parts, _ = tfds_parts(spec, keys[0], "data")  # also checks the name, the split and the format
    builder = open_prepared(parts[0].path)
    features = builder.info.features
    for key in keys:
        if key not in features:
            raise NoColumn(spec, "feature", key, [*features])
    examples, stop = builder.as_data_source(split=parts[0].detail), parts[-1].stop or 0
    for start in range(0, stop, _TFDS_BATCH):
        batch = examples.__getitems__(list(range(start, min(start + _TFDS_BATCH, stop))))
        for i, example in enumerate(batch, start):
            cells = tuple(_tfds_value(example[key], features[key], f"{spec}[{i}]") for key in keys)
            yield FileRow(f"{spec}[{i}]", f"{spec}[{i}]", cells)


def _tfds_value(value: Any, feature: Any, place: str) -> Json:  # TFDS gives both without types
    """Returns a value as JSON would hold it; TFDS gives text as bytes, numbers as NumPy's and classes as numbers."""
    if isinstance(value, list) or getattr(value, "ndim", 0):
        inner = getattr(feature, "feature", feature)
        return [_tfds_value(item, inner, place) for item in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bytes):
        return decoded(value, place)
    if getattr(feature, "names", None):
        return None if value < 0 else feature.int2str(value)  # -1: a test set's label that is not published
    return value
