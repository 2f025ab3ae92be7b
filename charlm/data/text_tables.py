"""Reads labelled texts from tables (classes, pairs, numbers, ranked passages) and writes tables of predictions.

The tasks of classification and ranking read and write their files here. Open it to see which rows are skipped, or to
change the columns of the predictions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from charlm.core.durable import replacing
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.types import Json
from charlm.data.examples import Skipped, TextExample
from charlm.data.labels import MULTI_LABEL, LabelRule, plain, shown, text_cell
from charlm.data.rows import JSON_EXTENSIONS, Column, read_rows


def read_texts(
    path: str,
    *,
    text: Column,
    pair: Column | None = None,
    label: Column | None = None,
    group: Column | None = None,
    id: Column | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    quoting: bool | None = None,
    labels: Sequence[str] | None = None,
    labels_are_numbers: bool = False,
    multi_label: str = "error",
    separator: str = "",
    skip_labels: Sequence[str] = (),
    skipped: Skipped | None = None,
) -> list[TextExample]:
    """Reads the texts of one table unchanged; rows with an empty text are skipped and counted.

    Args:
      path: file or prepared TFDS data set; this, header, delimiter and quoting are those of `rows.read_rows`. Class
        numbers of TFDS become class names.
      text: column of the text: a name, or a number from 0 (TSV and CSV only). So are pair, label, group and id.
      pair, label, group, id: None: the examples have none; the id is then file name and line.
      labels: the allowed classes; None: any.
      labels_are_numbers: whether labels are finite numbers (regression, relevance) instead of classes.
      multi_label: what to do with several labels in one cell: "error", "first" (takes the first; counted) or "skip"
        (counted). A cell holds several when it is a list, or text that contains `separator`.
      separator: what separates labels, such as "," in GoEmotions' "2,27"; empty: a cell of text is one label.
      skip_labels: rows with these labels are skipped and counted, such as SNLI's "-".
      skipped: counts the skipped rows.

    Raises:
      ValueError: unreadable file, missing column, short row, unknown label, a label that is not a number, or no row
        at all; one line that says where, what, expected and got.
    """
    if multi_label not in MULTI_LABEL:
        near = did_you_mean(multi_label, MULTI_LABEL, ALIKE)
        raise ValueError(f"multi_label={multi_label!r}: expected one of {', '.join(MULTI_LABEL)}{near}")
    skipped = skipped or Skipped()
    rule = None
    if label is not None:
        known = None if labels is None else tuple(labels)
        rule = LabelRule(label, known, labels_are_numbers, multi_label, separator, tuple(skip_labels))
    asked = {"text": text, "pair": pair, "label": label, "group": group, "id": id}
    columns = {part: column for part, column in asked.items() if column is not None}
    rows = read_rows(path, [*columns.values()], header=header, delimiter=delimiter, quoting=quoting, skipped=skipped)
    examples, count = [], 0
    for count, row in enumerate(rows, 1):  # noqa: B007
        cells = dict(zip(columns, row.cells, strict=True))
        example = _example(row.place, row.name, cells, columns, rule, skipped)
        if example is not None:
            examples.append(example)
    if not count:
        raise ValueError(f"{path}: no rows")
    return examples


def _example(
    place: str,
    name: str,
    cells: Mapping[str, Json],
    columns: Mapping[str, Column],
    rule: LabelRule | None,
    skipped: Skipped,
) -> TextExample | None:
    """Returns the example of a row, or None when the row is skipped."""
    texts = {part: text_cell(cells[part], place, columns[part]) for part in ("text", "pair") if part in cells}
    for part, value in texts.items():
        if not value.strip():
            skipped.skip("empty text" if part == "text" else "empty second text", place)
            return None
    label = None
    if rule is not None:
        label = rule.read(cells["label"], place, skipped)
        if label is None:
            return None
    names = {part: plain(cells[part], place, columns[part]) or "" for part in ("id", "group") if part in cells}
    return TextExample(names.get("id") or name, place, texts["text"], texts.get("pair"), label, names.get("group", ""))


def read_passages(
    path: str,
    *,
    query_id: Column = "query_id",
    query: Column = "query",
    passage: Column = "passage_text",
    relevance: Column = "is_selected",
    passages: str = "passages",
    passage_id: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    skipped: Skipped | None = None,
) -> list[TextExample]:
    """Reads queries with their candidate passages: text=query, pair=passage, label=relevance, group=the query's id.

    The extension decides between two layouts. JSON and JSON lines hold a query with all of its candidates, as a list
    of objects or an object of lists (MS MARCO, both versions). All other files hold a query and one candidate per row.

    Args:
      path: as in `read_texts`.
      header, delimiter: of TSV, as in `read_texts`.
      query_id, query, passage, relevance: columns, or keys of the query and of a candidate.
      passages: key of the candidates (JSON).
      passage_id: key or column of the candidate's id; None: JSON candidates are numbered, and a TSV candidate has file
        name and line.
      skipped: counts queries without candidates and candidates without text.

    Raises:
      ValueError: as in `read_texts`; also a negative relevance.
    """
    skipped = skipped or Skipped()
    if os.path.splitext(path.removesuffix(".gz"))[1].lower() not in JSON_EXTENSIONS:
        found = read_texts(
            path, text=query, pair=passage, label=relevance, group=query_id, id=passage_id, header=header,
            delimiter=delimiter, labels_are_numbers=True, skipped=skipped,
        )  # fmt: skip
        for example in found:
            _check_ranked(example, relevance, query_id)
        return found
    return _read_lists(path, query_id, query, passages, passage, relevance, passage_id, skipped)


def _read_lists(
    path: str,
    query_id: Column,
    query: Column,
    passages: str,
    passage: Column,
    relevance: Column,
    passage_id: str | None,
    skipped: Skipped,
) -> list[TextExample]:
    """Reads queries that have all of their candidates with them; see `read_passages`."""
    rule = LabelRule(relevance, None, True, "error", "", ())
    columns = {"text": query, "pair": passage, "group": query_id}
    examples = []
    count = 0
    for count, row in enumerate(read_rows(path, [query_id, query, passages], skipped=skipped), 1):  # noqa: B007
        identifier, asked, candidates = row.cells
        listed = _candidates(candidates, row.place, passages)
        if not listed:
            skipped.skip("query without candidates", row.place)
        for i, candidate in enumerate(listed):
            place = f"{row.place}: {passages}[{i}]"
            wanted = [passage, relevance, *([passage_id] if passage_id else [])]
            values = [_value(candidate, str(key), place) for key in wanted]
            name = f"{identifier}/{values[2] if passage_id else i}"
            cells = {"text": asked, "pair": values[0], "label": values[1], "group": identifier}
            if (example := _example(place, name, cells, columns, rule, skipped)) is not None:
                _check_ranked(example, relevance, query_id)
                examples.append(example)
    if not count:
        raise ValueError(f"{path}: no rows")
    return examples


def _candidates(value: Json, place: str, key: str) -> list[Json]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        if len({len(column) for column in value.values()}) > 1:
            raise ValueError(f"{place}: lists of {key!r} differ in length")
        return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
    raise ValueError(f"{place}: {key!r} holds {shown(value)}; expected a list of candidates")


def _value(candidate: Json, key: str, place: str) -> Json:
    if not isinstance(candidate, dict):
        raise ValueError(f"{place}: candidate is {shown(candidate)}; expected an object")
    if key not in candidate:
        raise ValueError(
            f"{place}: no key {key!r}; keys: {', '.join(candidate)}{did_you_mean(key, [*candidate], ALIKE)}"
        )
    return candidate[key]


def _check_ranked(example: TextExample, relevance: Column, query_id: Column) -> None:
    if not example.group:
        raise ValueError(f"{example.place}: column {query_id!r} is empty; expected the id of the query")
    if float(example.label or 0) < 0:
        raise ValueError(f"{example.place}: column {relevance!r} is {example.label}; expected at least 0")


def write_tsv_predictions(
    path: str,
    examples: Sequence[TextExample],
    predicted: Sequence[str | float],
    scores: Sequence[Sequence[float]] | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Writes a table with a header: id, label, and a column for each score; the file appears when it is complete.

    Args:
      path: file to write.
      examples: the examples that were predicted; tabs and line ends in an id become spaces.
      predicted: a label or number for each example.
      scores: numbers for each example, such as the probability of every class.
      names: names of the score columns; None: score_0 and so on.

    Raises:
      ValueError: the lengths differ.
    """
    if len(predicted) != len(examples) or (scores is not None and len(scores) != len(examples)):
        got = len(predicted) if len(predicted) != len(examples) else len(scores or ())
        raise ValueError(f"{path}: expected {len(examples)} predictions, one for each example, got {got}")
    width = len(scores[0]) if scores else 0
    header = list(names) if names is not None else [f"score_{i}" for i in range(width)]
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n", errors="replace") as file:
        file.writelines(_table(path, header if scores else [], examples, predicted, scores))


def write_table(path: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Writes a table with a header; tabs and line ends in cells become spaces, the file appears when it is complete."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n", errors="replace") as file:
        file.writelines(_line(cells) for cells in (header, *rows))


def _table(
    path: str,
    header: list[str],
    examples: Sequence[TextExample],
    predicted: Sequence[str | float],
    scores: Sequence[Sequence[float]] | None,
) -> Iterator[str]:
    yield _line(["id", "label", *header])
    for i, (example, label) in enumerate(zip(examples, predicted, strict=True)):
        row = scores[i] if scores is not None else ()
        if len(row) != len(header):
            raise ValueError(f"{path}: example {example.id!r}: expected {len(header)} scores, got {len(row)}")
        yield _line([example.id, label, *(float(score) for score in row)])


def _line(cells: Sequence[object]) -> str:
    return "\t".join(" ".join(str(cell).replace("\r", "\n").replace("\t", "\n").split("\n")) for cell in cells) + "\n"
