"""Checks the settings of a league's systems and tasks before anything is trained, so that no typo shows up hours later.

Open it to refuse another setting early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import has_magic

import ml_collections

from charlm.config import finetuning, load_config_file, pretraining, unknown_key
from charlm.convert.heads import READ_BY, check_label_head
from charlm.core.keys import Key
from charlm.data.files import matching_files
from charlm.families.family import Family, families, family, model_options
from charlm.tasks.table import TASKS, class_of

# Keys that the league sets itself: with others, a system would not be what the report says.
_PRE_TRAINING = ("init_from", "data.train", "data.heldout", "data.heldout_fraction")
_COLUMNS = ("text", "pair", "label", "group", "id", "target", "fold_column")
_TUNING = ("init_from", "seed", "seeds", "data.train", "data.dev", "data.test", "data.folds")


def check_settings(systems: ml_collections.ConfigDict, tasks: ml_collections.ConfigDict) -> None:
    """Checks that every setting is a key of the config that it is for, and that its system's family has that key.

    Args:
      systems, tasks: sections of a league's config in which paths of config files are found.

    Raises:
      ValueError: a key is unknown, the league's own, or another family's, a value is not among the key's choices, or
        a family has no such head for the labels of a task.
    """
    of_task = {name: load_config_file(entry.config) for name, entry in tasks.items()}
    for name, entry in tasks.items():
        _check_tuning(f"tasks.{name}.set", entry["set"], of_task[name], None)
    for name, entry in systems.items():
        if entry.behind:
            continue
        config = load_config_file(systems[entry.same or name].config)
        found = pretraining.keys_of(config.family)
        for setting in entry["set"]:
            _check(f"systems.{name}.set", setting, found, _PRE_TRAINING, config)
        for task_name, task in of_task.items():
            if not entry.tasks or task_name in entry.tasks:
                _check_tuning(f"systems.{name}.tune", entry.tune, task, family(config.family))
                together = (*tasks[task_name]["set"], *entry.tune)
                _check_label_head(f"systems.{name} on {task_name}", together, task, family(config.family))


def check_files(config: ml_collections.ConfigDict) -> None:
    """Checks that the files that a league reads exist, or of those of a glob at least one.

    Args:
      config: the resolved config of the league.

    Raises:
      ValueError: a file does not exist; names the key.
    """
    for key in ("train", "heldout"):
        for spec in config.corpora[key]:
            if spec != "builtin" and not spec.startswith("tfds:"):
                matching_files(spec, f"corpora.{key}", corpora=True)
    for name, task in config.tasks.items():
        for key in ("train", "dev", "measure"):
            for file in task[key]:
                matching_files(file, f"tasks.{name}.{key}")
        if not task.measure and (globs := [file for file in task.train if has_magic(file)]):
            what = "a task without `measure` is measured on a part of its files; name each"
            raise ValueError(f"tasks.{name}.train: {globs[0]!r}: {what}")
    if config.robustness.misspellings:
        matching_files(config.robustness.misspellings, "robustness.misspellings")


def table_of(task: ml_collections.ConfigDict) -> tuple[bool, bool]:
    """Returns whether a task's files are tables, and whether their first line names the columns, as its reader has it.

    Args:
      task: an entry of `tasks` of a resolved config.
    """
    config = load_config_file(task.config)
    chosen = dict(setting.split("=", 1) for setting in task["set"])
    value = lambda key: str(chosen.get(f"data.{key}", config.data.get(key, "")))
    reads = TASKS[config.task].reads
    in_columns = "data.word" in reads and not value("target")  # a word a line, unless a row has one in its sentence
    if in_columns or "data.header" not in reads:
        return False, False
    named = any(name and not name.removeprefix("-").isdecimal() for name in map(value, _COLUMNS))
    return True, {"yes": True, "no": False}.get(value("header"), named)


def _check_tuning(
    where: str, settings: Sequence[str], config: ml_collections.ConfigDict, reader: Family | None
) -> None:
    """Checks settings of fine-tuning; `reader` is the family that is fine-tuned, None: any."""
    keys = finetuning.keys_of(config) | dict(finetuning.task_keys(config.task))
    every, own = model_options(families()), reader.options if reader else {}
    for setting in settings:
        name = _check(where, setting, keys, _TUNING, config)
        option = name.removeprefix("model.")
        if reader and option != name and option in every and option not in own:
            raise ValueError(f"{where}: {setting!r}: {reader.title} has no {name}")


def _check_label_head(where: str, settings: Sequence[str], config: ml_collections.ConfigDict, reader: Family) -> None:
    """Checks that a family has the head for labels that is asked for, and that it is one for the task."""
    heads = [setting.partition("=")[2] for setting in settings if setting.startswith(f"{finetuning.LABEL_HEAD}=")]
    label_head = heads[-1] if heads else config.model.label_head
    if not label_head:
        return
    if label_head not in reader.label_heads:
        has = f"the heads {', '.join(reader.label_heads)}" if reader.label_heads else "one head alone, leave it empty"
        raise ValueError(f"{where}: {finetuning.LABEL_HEAD}={label_head}: {reader.title} has {has}")
    if label_head in READ_BY:  # asked only then, since a task's class needs JAX
        check_label_head(label_head, class_of(config.task).head, f"{where}: model.", reader.label_heads)


def _check(
    where: str, setting: str, keys: Mapping[str, Key], owned: Sequence[str], config: ml_collections.ConfigDict
) -> str:
    """Returns the name of the key of a setting."""
    name, equals, value = setting.partition("=")
    if not equals:
        raise ValueError(f"{where}: {setting!r}: expected key=value")
    if name in owned:
        raise ValueError(f"{where}: {setting!r}: the league sets {name} itself")
    if name not in keys:
        raise ValueError(f"{where}: {setting!r}: {unknown_key(name, config)}")
    choices = keys[name].choices
    if choices and value not in map(str, choices):
        raise ValueError(f"{where}: {setting!r}: expected one of {', '.join(map(str, choices))}")
    return name
