"""Fine-tuning on rows that are at hand in Python: `charlm.finetune(model, train=rows, task="classify")`.

The rows are written to files of the usual formats (`charlm.tasks.rows`), and the run is the one of
`charlm.finetune.run`. Open it to change how a config comes from what is given.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import ml_collections

from charlm.api.model import Model, load
from charlm.config import finetuning, flatten, load_config_file, split_lists, validate
from charlm.core.durable import write_text
from charlm.core.nearest import did_you_mean
from charlm.core.stores import here
from charlm.core.types import Option
from charlm.finetune.run import DATA_FILE, fine_tune
from charlm.shorthand import full_name
from charlm.tasks.rows import Row
from charlm.tasks.table import TASKS

log = logging.getLogger("charlm")

Rows = Iterable[Row] | str | os.PathLike[str]  # or a file that the task reads


def finetune(
    model: Model | str | os.PathLike[str],
    train: Rows,
    dev: Rows | None = None,
    task: str = "",
    workdir: str | os.PathLike[str] = "",
    **settings: Option,
) -> Model:
    """Fine-tunes a model on rows and returns the fine-tuned one, which is kept in a workdir.

    Rows are tuples, dicts, a pandas.DataFrame or a Dataset of Hugging Face, with these parts in this order:

    - "tag": words, tags (two lists of equal length)
    - "classify": text, label; or text, pair, label
    - "regress": text, label (a number); or text, pair, label
    - "answer": question, context, answer (a part of the context; None if there is none)
    - "rank": query, passage, relevance (0 or 1)

    A task of a package takes the rows of its `charlm.tasks.table.TaskEntry`, or files alone if that names none.

    Args:
      model: the model to start from, or what `charlm.load` takes; the files that it was read from must still exist.
      train: rows to learn from, or the path of a file that the task reads.
      dev: rows by which the best epoch is chosen; None: a tenth of `train`, set aside.
      task: one of the names above, the config files of charlm, with variants if need be: "tag:tiny"; or the name of a
        task: "tagging", or that of a package.
      workdir: folder of the run; the same call continues a run that was stopped. "": a new folder for temporary files,
        which a line of the log names.
      settings: keys of the config, by their names without the section where only one key has that name: `epochs=3`,
        `lr=1e-4`, `batch_size=8`, `noise=("keyboard:0.1",)`; write `**{"data.dev_share": 0.2}` for whole names.

    Raises:
      ValueError: a row lacks a part, there is no such task or key, or a value is wrong; rows are named by their number.
      KeyboardInterrupt: Ctrl-C stopped the run, after it had saved.
    """
    if not isinstance(model, Model | str | os.PathLike):
        raise ValueError(f"model={model!r}: expected a model or the path of one")
    if not isinstance(task, str):
        raise ValueError(f"task={task!r}: expected a name")
    config = config_of(task)
    config.init_from = here(model.path if isinstance(model, Model) else os.fspath(model))
    parts = {part: _rows_of(rows, part, config) for part, rows in (("train", train), ("dev", dev)) if rows is not None}
    kept = Path(workdir or tempfile.mkdtemp(prefix="charlm-"))
    try:
        for part, rows in parts.items():
            config.data[part] = (rows if isinstance(rows, str) else _write(rows, kept / "rows" / part, kept),)
        _set(config, settings)
        split_lists(config)
        validate(config)
        if not workdir:
            log.warning("no workdir given: the run is in %s", kept)
        if not fine_tune(config, os.fspath(kept)):
            raise KeyboardInterrupt(f"stopped; the same call with workdir={os.fspath(kept)!r} goes on")
    except ValueError:
        if not workdir and not (kept / DATA_FILE).exists():  # no run began, so nothing is lost
            shutil.rmtree(kept, ignore_errors=True)
        raise
    workdir = kept
    runs = sorted(Path(workdir).glob("seed_*"))  # one folder for each of several seeds
    return load(runs[0] if runs else workdir, batch_size=config.data.eval_batch_size)


def config_of(task: str) -> ml_collections.ConfigDict:
    """Returns the config of a task.

    Args:
      task: the name of a config file of charlm or of a task, with variants of the file: "tag:tiny", "tagging:tiny".

    Raises:
      ValueError: there is neither; the message names the nearest name.
    """
    name, _, variant = task.partition(":")
    files = {TASKS[own].config for own in TASKS.own}
    if name not in files and name not in TASKS:
        known = sorted(files | dict(TASKS.usable()).keys())
        raise ValueError(f"task={task!r}: expected one of {', '.join(known)}{did_you_mean(name, known)}")
    file = name if name in files else TASKS[name].config
    config = load_config_file(f"configs/{file}.py{f':{variant}' if variant else ''}")
    if name not in files and config.task != name:
        config.task = name
        finetuning.add_task_keys(config, name)
    return config


def _rows_of(rows: Rows, part: str, config: ml_collections.ConfigDict) -> str | tuple[str, str]:
    """Returns the path of a file, or rows as the content of one and its ending; names their columns in the config."""
    if isinstance(rows, str | os.PathLike):
        return os.fspath(rows)  # an address, too: it is read as the config's files are
    form = TASKS[config.task].rows
    if form is None:
        raise ValueError(f"{part}: the task {config.task} takes no rows, only files: give the path of one")
    if not (isinstance(rows, Iterable) or hasattr(rows, "iterrows")):
        raise ValueError(f"{part}: expected rows or the path of a file, got {type(rows).__name__} {rows!r}")
    written = form.file_of(rows, part)
    config.data.update(written.columns)
    return written.text, form.ending


def _write(rows: tuple[str, str], place: Path, workdir: Path) -> str:
    """Writes rows into a file of the workdir and returns its path; those that a run has read are not replaced."""
    text, ending = rows
    path = place.with_name(f"{place.name}.{ending}")
    try:
        if path.exists() and (workdir / DATA_FILE).exists() and path.read_text(encoding="utf-8") != text:
            raise ValueError(f"workdir={workdir} holds a run on other rows ({place.name}); choose another workdir")
        path.parent.mkdir(parents=True, exist_ok=True)  # only once rows are found to be good
        write_text(path, text)
    except OSError as error:
        raise ValueError(f"workdir={workdir} cannot be written: {error.strerror}") from error
    return str(path)


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
