"""Fine-tuning on rows that are at hand in Python: `charlm.finetune(model, train=rows, task="classify")`.

The rows are written to files of the usual formats, and the run is the one of `charlm.finetune.run`. Open it to read
another kind of row.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections

from charlm.api.model import Model, load
from charlm.config import flatten, is_fine_tuning, load_config_file, split_lists, validate
from charlm.core.durable import write_text
from charlm.core.nearest import did_you_mean
from charlm.core.stores import here
from charlm.core.types import Json, JsonObject, Option
from charlm.finetune.run import fine_tune
from charlm.shorthand import full_name

log = logging.getLogger("charlm")

Row = Mapping[str, Any] | Sequence[Any]  # its parts are those of the task


def finetune(
    model: Model | str | os.PathLike[str],
    train: Iterable[Row],
    dev: Iterable[Row] | None = None,
    task: str = "",
    workdir: str | os.PathLike[str] = "",
    **settings: Option,
) -> Model:
    """Fine-tunes a model on rows and returns the fine-tuned one, which is kept in a workdir.

    Rows are tuples, dicts or a pandas.DataFrame, with these parts in this order:

    - "tag": words, tags (two lists of equal length)
    - "classify": text, label; or text, pair, label
    - "regress": text, label (a number); or text, pair, label
    - "answer": question, context, answer (a part of the context; None if there is none)
    - "rank": query, passage, relevance (0 or 1)

    Args:
      model: the model to start from, or what `charlm.load` takes; the files that it was read from must still exist.
      train: rows to learn from.
      dev: rows by which the best epoch is chosen; None: a tenth of `train`, set aside.
      task: one of the names above, the config files of charlm, with variants if need be: "tag:tiny".
      workdir: folder of the run; the same call continues a run that was stopped. "": a new folder for temporary files,
        which a line of the log names.
      settings: keys of the config, by their names without the section where only one key has that name: `epochs=3`,
        `lr=1e-4`, `batch_size=8`, `noise=("keyboard:0.1",)`; write `**{"data.dev_share": 0.2}` for whole names.

    Raises:
      ValueError: a row lacks a part, there is no such task or key, or a value is wrong; rows are named by their number.
      KeyboardInterrupt: Ctrl-C stopped the run, after it had saved.
    """
    name, _, variant = task.partition(":")
    if name not in _WRITERS:
        raise ValueError(f"task={task!r}: expected one of {', '.join(_WRITERS)}{did_you_mean(name, _WRITERS)}")
    config = load_config_file(f"configs/{name}.py{f':{variant}' if variant else ''}")
    assert is_fine_tuning(config)
    if not workdir:
        workdir = tempfile.mkdtemp(prefix="charlm-")
        log.warning("no workdir given: the run is in %s", workdir)
    folder = Path(workdir) / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    config.init_from = here(model.path if isinstance(model, Model) else os.fspath(model))
    for part, rows in (("train", train), ("dev", dev)):
        if rows is not None:
            config.data[part] = (_write(name, rows, folder, part, config),)
    _set(config, settings)
    split_lists(config)
    validate(config)
    if not fine_tune(config, os.fspath(workdir)):
        raise KeyboardInterrupt(f"stopped; the same call with workdir={os.fspath(workdir)!r} goes on")
    runs = sorted(Path(workdir).glob("seed_*"))  # one folder for each of several seeds
    return load(runs[0] if runs else workdir, batch_size=config.data.eval_batch_size)


def _set(config: ml_collections.ConfigDict, settings: Mapping[str, Option]) -> None:
    """Sets keys of a config; ValueError for an unknown key or a value of another type."""
    keys = flatten(config)
    for name, value in settings.items():
        key = full_name(name, keys)
        if key not in keys:
            raise ValueError(f"there is no setting {name!r}{did_you_mean(name, {k.rpartition('.')[2] for k in keys})}")
        if isinstance(keys[key], tuple):
            value = (value,) if isinstance(value, str) else tuple(value)
        try:
            config.update_from_flattened_dict({key: value})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}={value!r}: {' '.join(str(error).split())}") from None


def _write(task: str, rows: Iterable[Row], folder: Path, part: str, config: ml_collections.ConfigDict) -> str:
    """Writes rows to a file that the task reads; returns its path, and names the columns in the config."""
    if hasattr(rows, "to_dict"):  # a DataFrame of pandas, which charlm does not need
        rows = rows.to_dict("records")  # pyright: ignore[reportAttributeAccessIssue]  # as `hasattr` has found
    names, write, ending = _WRITERS[task]
    found = []
    for number, row in enumerate(rows):
        found.append(_parts(row, names, f"{part}, row {number}"))
    if not found:
        raise ValueError(f"{part}: expected rows, found none")
    path = folder / f"{part}.{ending}"
    write_text(path, write(found, part, config))
    return str(path)


def _parts(row: Row, names: Sequence[str], where: str) -> JsonObject:
    """Returns the parts of a row by name, with `where` it stands; a pair may be missing."""
    if isinstance(row, Mapping):
        found = {name: row[name] for name in names if name in row}
    else:
        values = list(row)
        given = [name for name in names if name != "pair" or len(values) == len(names)]
        found = dict(zip(given, values, strict=False)) if len(values) == len(given) and not isinstance(row, str) else {}
    if missing := [name for name in names if name not in found and name != "pair"]:
        has = f"the keys {', '.join(map(repr, row))}" if isinstance(row, Mapping) else repr(row)[:80]
        raise ValueError(f"{where}: it lacks {', '.join(missing)}: expected {', '.join(names)}, got {has}")
    return found | {"where": where}


def _conll(rows: Sequence[JsonObject], part: str, config: ml_collections.ConfigDict) -> str:
    """Returns rows of words and tags as columns."""
    del part, config
    sentences = []
    for row in rows:
        words, tags = row["words"], row["tags"]
        if isinstance(words, str) or isinstance(tags, str) or len(words) != len(tags):
            raise ValueError(f"{row['where']}: expected a list of words and a list of as many tags")
        cells = [*words, *tags]
        if wrong := [cell for cell in cells if not isinstance(cell, str) or not cell or len(cell.split()) != 1]:
            raise ValueError(f"{row['where']}: expected words and tags without spaces, got {wrong[0]!r}")
        sentences.append("\n".join(f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)))
    return "\n\n".join(sentences) + "\n"


def _texts(rows: Sequence[JsonObject], part: str, config: ml_collections.ConfigDict) -> str:
    """Returns rows of texts with labels as JSON lines."""
    config.data.text, config.data.label = "text", "label"
    config.data.pair = "pair" if "pair" in rows[0] else ""
    if uneven := [row["where"] for row in rows if ("pair" in row) != ("pair" in rows[0])]:
        raise ValueError(f"{uneven[0]}: expected a pair in all rows or in none")
    return _json_lines({name: _plain(row[name]) for name in ("text", "pair", "label") if name in row} for row in rows)


def _passages(rows: Sequence[JsonObject], part: str, config: ml_collections.ConfigDict) -> str:
    """Returns rows of queries and passages as JSON lines, each query with all of its passages."""
    data = config.data
    data.group, data.text, data.pair, data.label = "query_id", "query", "passage_text", "is_selected"
    queries: dict[str, list[JsonObject]] = {}
    for row in rows:
        passage = {"passage_text": row["passage"], "is_selected": int(row["relevance"])}
        queries.setdefault(row["query"], []).append(passage)
    return _json_lines(
        {"query_id": f"{part}-{n}", "query": query, "passages": passages}
        for n, (query, passages) in enumerate(queries.items())
    )


def _questions(rows: Sequence[JsonObject], part: str, config: ml_collections.ConfigDict) -> str:
    """Returns rows of questions as SQuAD's JSON."""
    del config
    paragraphs = []
    for number, row in enumerate(rows):
        context, answer = row["context"], row["answer"]
        start = context.find(answer) if answer else -1
        if answer and start < 0:
            raise ValueError(f"{row['where']}: the answer {answer!r} is not in the context")
        answers = [{"text": answer, "answer_start": start}] if answer else []
        question = {"id": f"{part}-{number}", "question": row["question"], "answers": answers}
        paragraphs.append({"context": context, "qas": [question | {"is_impossible": not answers}]})
    return json.dumps({"version": "2.0", "data": [{"title": part, "paragraphs": paragraphs}]}, ensure_ascii=False)


def _json_lines(rows: Iterable[JsonObject]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _plain(value: Json) -> Json:
    """Returns a number of NumPy, as a DataFrame holds them, as one of Python."""
    return value.item() if hasattr(value, "item") else value


_Writer = Callable[[Sequence[JsonObject], str, ml_collections.ConfigDict], str]
# For each task: the parts of a row, what writes them, and the ending of the file.
_WRITERS: dict[str, tuple[tuple[str, ...], _Writer, str]] = {
    "tag": (("words", "tags"), _conll, "conll"),
    "classify": (("text", "pair", "label"), _texts, "jsonl"),
    "regress": (("text", "pair", "label"), _texts, "jsonl"),
    "answer": (("question", "context", "answer"), _questions, "json"),
    "rank": (("query", "passage", "relevance"), _passages, "jsonl"),
}
