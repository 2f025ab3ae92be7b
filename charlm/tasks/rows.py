"""Rows of Python as files that tasks read: what `charlm.finetune` takes, for each kind of row one `RowFormat`.

A task names its format in the table (`charlm.tasks.table`). Open it to add a kind of row, or to change what a row may
hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from charlm.core.types import Json, JsonObject

Row = Mapping[str, Any] | Sequence[Any]  # its parts are those of the task
_OPTIONAL = " (pair may be left out)"


class Written(NamedTuple):
    """Rows as a file.

    Attributes:
      text: the content.
      columns: the config keys of the section `data` that name the columns, and their values.
    """

    text: str
    columns: Mapping[str, str]


class RowFormat(NamedTuple):
    """How rows of one kind are written.

    Attributes:
      parts: the names of a row's parts, in the order that a tuple has them; "pair" may be left out.
      ending: the ending of the file's name.
      write: takes rows by the names of their parts, each with its place ("train, row 3") under "where", the name of the
        file's part ("train"), and names that columns shall have, by their keys, as far as they matter; ValueError for a
        row that cannot be written, with its place.
    """

    parts: tuple[str, ...]
    ending: str
    write: Callable[[Sequence[JsonObject], str, Mapping[str, str]], Written]

    def file_of(self, rows: Iterable[Row], part: str, names: Mapping[str, str] | None = None) -> Written:
        """Returns rows as a file.

        Args:
          rows: tuples, dicts, a pandas.DataFrame, or a Dataset of Hugging Face.
          part: what the file is for, such as "train".
          names: names that columns shall have, by their config keys ("text"), such as those that a model has read; ""
            and None: any.

        Raises:
          ValueError: there are no rows, or one lacks a part or has a wrong one.
        """
        if hasattr(rows, "iterrows"):  # a DataFrame of pandas, which charlm does not need; others are iterables of rows
            rows = rows.to_dict("records")  # pyright: ignore[reportAttributeAccessIssue]  # as `hasattr` has found
        found = [self._parts_of(row, f"{part}, row {number}") for number, row in enumerate(rows)]
        if not found:
            raise ValueError(f"{part}: expected rows, found none")
        return self.write(found, part, {key: name for key, name in (names or {}).items() if name})

    def _parts_of(self, row: Row, where: str) -> JsonObject:
        """Returns the parts of a row by name, with `where` it stands; a pair may be missing."""
        names = self.parts
        if isinstance(row, Mapping):
            found = {name: row[name] for name in names if name in row}
        else:
            values = [] if isinstance(row, str) else list(row)
            given = [name for name in names if name != "pair" or len(values) == len(names)]
            if len(values) != len(given):
                got = repr(row)[:80] if isinstance(row, str) else f"{len(values)} parts: {repr(row)[:80]}"
                raise ValueError(f"{where}: expected {', '.join(names)}{_OPTIONAL * ('pair' in names)}, got {got}")
            found = dict(zip(given, values, strict=True))
        if missing := [name for name in names if name not in found and name != "pair"]:
            has = f"the keys {', '.join(map(repr, row))}"
            raise ValueError(f"{where}: it lacks {', '.join(missing)}: expected {', '.join(names)}, got {has}")
        return found | {"where": where}


def _conll(rows: Sequence[JsonObject], part: str, names: Mapping[str, str]) -> Written:
    """Returns rows of words and tags as columns, in the order that files without names of columns have."""
    del part
    if named := [name for key, name in names.items() if key in ("word", "tag") and name != "auto"]:
        raise ValueError(f"{rows[0]['where']}: the model reads the column {named[0]!r} of its files: give a file")
    sentences = []
    for row in rows:
        words, tags = row["words"], row["tags"]
        if isinstance(words, str) or isinstance(tags, str) or len(words) != len(tags):
            raise ValueError(f"{row['where']}: expected a list of words and a list of as many tags")
        cells = [*words, *tags]
        if wrong := [cell for cell in cells if not isinstance(cell, str) or not cell or len(cell.split()) != 1]:
            raise ValueError(f"{row['where']}: expected words and tags without spaces, got {wrong[0]!r}")
        sentences.append("\n".join(f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)))
    return Written("\n\n".join(sentences) + "\n", {})


def _texts(rows: Sequence[JsonObject], part: str, names: Mapping[str, str]) -> Written:
    """Returns rows of texts with labels as JSON lines."""
    del part
    if uneven := [row["where"] for row in rows if ("pair" in row) != ("pair" in rows[0])]:
        raise ValueError(f"{uneven[0]}: expected a pair in all rows or in none")
    if names and ("pair" in rows[0]) != ("pair" in names):
        reads, has = ("two texts", "one") if "pair" in names else ("one text", "a pair")
        raise ValueError(f"{rows[0]['where']}: the model reads {reads}, and this row has {has}")
    for row in rows:
        _check_texts(row, *(("text", "pair") if "pair" in row else ("text",)))
        label = row["label"]
        if label is None or label == "" or label != label:  # NaN, as pandas has it for what is missing
            raise ValueError(f"{row['where']}: expected a label, got {label!r}")
    called = {key: _called(names, key, key) for key in ("text", "pair", "label")}
    lines = ({called[key]: _plain(row[key]) for key in called if key in row} for row in rows)
    return Written(_json_lines(lines), called | ({} if "pair" in rows[0] else {"pair": ""}))


def _passages(rows: Sequence[JsonObject], part: str, names: Mapping[str, str]) -> Written:
    """Returns rows of queries and passages as JSON lines, each query with all of its passages."""
    usual = {"group": "query_id", "text": "query", "pair": "passage_text", "label": "is_selected"}
    called = {key: _called(names, key, name) for key, name in usual.items()}
    queries: dict[str, list[JsonObject]] = {}
    for row in rows:
        _check_texts(row, "query", "passage")
        if row["relevance"] not in (0, 1):
            raise ValueError(f"{row['where']}: expected a relevance of 0 or 1, got {row['relevance']!r}")
        passage = {called["pair"]: row["passage"], called["label"]: int(row["relevance"])}
        queries.setdefault(row["query"], []).append(passage)
    lines = (
        {called["group"]: f"{part}-{n}", called["text"]: query, "passages": passages}
        for n, (query, passages) in enumerate(queries.items())
    )
    return Written(_json_lines(lines), called)


def _questions(rows: Sequence[JsonObject], part: str, names: Mapping[str, str]) -> Written:
    """Returns rows of questions as SQuAD's JSON, whose names are fixed."""
    del names
    paragraphs = []
    for number, row in enumerate(rows):
        _check_texts(row, "question", "context")
        context, answer = row["context"], row["answer"]
        start = context.find(answer) if answer else -1
        if answer and start < 0:
            raise ValueError(f"{row['where']}: the answer {answer!r} is not in the context")
        answers = [{"text": answer, "answer_start": start}] if answer else []
        question = {"id": f"{part}-{number}", "question": row["question"], "answers": answers}
        paragraphs.append({"context": context, "qas": [question | {"is_impossible": not answers}]})
    file = {"version": "2.0", "data": [{"title": part, "paragraphs": paragraphs}]}
    return Written(json.dumps(file, ensure_ascii=False), {})


def _called(names: Mapping[str, str], key: str, usual: str) -> str:
    """Returns the name of a part in JSON, which has no numbered columns as the files of a model may have."""
    name = names.get(key, usual)
    return usual if name.removeprefix("-").isdecimal() else name


def _check_texts(row: JsonObject, *parts: str) -> None:
    """Raises ValueError if a part of a row is no text, or blank: it would be left out, or taken for the word "None"."""
    for part in parts:
        if not isinstance(row[part], str) or not row[part].strip():
            raise ValueError(f"{row['where']}: {part}: expected a text, got {str(row[part])[:80]!r}")
        if any("\ud800" <= char <= "\udfff" for char in row[part]):
            raise ValueError(f"{row['where']}: {part}: expected a text in UTF-8, got {row[part][:80]!r}")


def _json_lines(rows: Iterable[JsonObject]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _plain(value: Json) -> Json:
    """Returns a number of NumPy, as a DataFrame holds them, as one of Python."""
    return value.item() if hasattr(value, "item") else value


WORDS = RowFormat(("words", "tags"), "conll", _conll)
TEXTS = RowFormat(("text", "pair", "label"), "jsonl", _texts)
QUESTIONS = RowFormat(("question", "context", "answer"), "json", _questions)
PASSAGES = RowFormat(("query", "passage", "relevance"), "jsonl", _passages)
