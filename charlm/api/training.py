"""Fine-tuning on rows that are at hand in Python: `charlm.finetune(model, train=rows, task="classify")`.

The rows are written to files of the usual formats (`charlm.tasks.rows`), and the run is the one of
`charlm.finetune.run`. Open it to change how a config comes from what is given.
"""

from __future__ import annotations

import logging
import os
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
from charlm.finetune.run import fine_tune
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
    config = config_of(task)
    if not workdir:
        workdir = tempfile.mkdtemp(prefix="charlm-")
        log.warning("no workdir given: the run is in %s", workdir)
    folder = Path(workdir) / "rows"
    config.init_from = here(model.path if isinstance(model, Model) else os.fspath(model))
    for part, rows in (("train", train), ("dev", dev)):
        if rows is not None:
            config.data[part] = (_file_of(rows, folder, part, config),)
    _set(config, settings)
    split_lists(config)
    validate(config)
    if not fine_tune(config, os.fspath(workdir)):
        raise KeyboardInterrupt(f"stopped; the same call with workdir={os.fspath(workdir)!r} goes on")
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


def _file_of(rows: Rows, folder: Path, part: str, config: ml_collections.ConfigDict) -> str:
    """Returns the path of a file with the rows, which is written here, and names its columns in the config."""
    if isinstance(rows, str | os.PathLike):
        return here(os.fspath(rows))
    form = TASKS[config.task].rows
    if form is None:
        raise ValueError(f"{part}: the task {config.task} takes no rows, only files: give the path of one")
    written = form.file_of(rows, part)
    path = folder / f"{part}.{form.ending}"
    try:
        folder.mkdir(parents=True, exist_ok=True)  # only once rows are found to be good
        write_text(path, written.text)
    except OSError as error:
        raise ValueError(f"workdir={folder.parent} cannot be written: {error.strerror}") from error
    config.data.update(written.columns)
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
