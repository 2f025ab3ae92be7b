"""Runs commands that read a config: the --config flag, a --help that lists every key, one line for each user error.

`charlm.main` and `charlm.data.corpus` call its `run`. Open it to change how `--config` and single keys are parsed, or
how the help text is laid out; the keys themselves are in `charlm.config`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from charlm.config import (
    CARRIED,
    MODELS,
    check_command,
    check_task,
    defaults_of,
    find_config_file,
    finetuning,
    flatten,
    get_config,
    is_fine_tuning,
    load_config_file,
    no_config_file,
    pretraining,
    split_lists,
    unknown_key,
    validate,
)
from charlm.core import interrupts
from charlm.core.help_text import columns, entry, wrapped
from charlm.core.keys import Key
from charlm.core.local_paths import check_options
from charlm.core.logs import print_error, start_logging
from charlm.core.programs import keep_programs
from charlm.core.stores import here
from charlm.families.family import FAMILIES, pretrainable
from charlm.families.fusions import FUSIONS
from charlm.tasks.table import TASKS
from charlm.text.noise import KINDS

CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "File that defines get_config(), with its variant if it has some, e.g. configs/hlm_base.py:tiny. A configs/NAME.py "
    "that the current folder does not have is the one that charlm carries.",
)


class _WithAddedKeys(flags.ArgumentParser):
    """Parses the --config flag: loads the file, and adds keys of the task and of families that the command line sets.

    Attributes:
      task: the task that the command line sets, or "".
      keys: the full names of the keys that the command line sets.
    """

    def __init__(self, reader: flags.ArgumentParser) -> None:
        self._reader, self.task = reader, ""
        self.keys: list[str] = []

    def parse(self, argument: str) -> object:
        """Returns the config."""
        return with_added_keys(self._reader.parse(argument), self.task, self.keys)

    def flag_type(self) -> str:
        """Returns absl's name for the type of the flag."""
        return self._reader.flag_type()


def with_added_keys(config: T, task: str, keys: Collection[str]) -> T:
    """Adds to a fine-tuning config the task's own keys and those of `keys` that added families have; returns it.

    So --config.task=NAME can set a task with keys of its own, and --config.model.KEY=VALUE a family's own key.
    """
    if isinstance(config, ml_collections.ConfigDict) and is_fine_tuning(config):
        if task in TASKS:
            finetuning.add_task_keys(config, task)
        finetuning.add_family_keys(config, keys)
    return config


_READER = _WithAddedKeys(flags.FLAGS["config"].parser)
flags.FLAGS["config"].parser = _READER

# Lists of corpora and names as people type them; absl's parser of tuples would reject "/a.txt,/b.txt" without quotes.
_LISTED = "|".join(map(re.escape, dict.fromkeys(pretraining.LISTS + finetuning.LISTS)))
_LISTS = re.compile(rf"(--?config\.(?:{_LISTED})=)([^(\['\"].*)")
log = logging.getLogger("charlm")

T = TypeVar("T")

_HELP = ("h", "?", "help", "helpshort", "helpfull")


def run(program: Callable[[ml_collections.ConfigDict], None], advice: str = "") -> None:
    """Runs a program with the config of the command line; an error of the user ends in one line on standard error.

    Args:
      advice: added to the message when Ctrl-C ends the program.
    """

    def main(argv: list[str]) -> None:
        start_logging()
        file = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")[0]
        if Path(file).parent == CARRIED:  # the user may have expected a file of another folder
            log.info("config %s", file)
        try:
            keep_programs()
            config = CONFIG.value
            own = flags.FLAGS.get_flags_for_module("__main__")
            check_options({flag.name: flag.value for flag in own}, needed=("workdir",), stored=("workdir",))
            check_command(file)
            split_lists(config)
            validate(config)
            with interrupts.ending_clearly(advice):
                _bring_models(config)
                program(config)
        except (ValueError, OSError) as error:
            _fail(_one_line(error))

    app.run(main, flags_parser=_parse)


def _bring_models(config: ml_collections.ConfigDict) -> None:
    """Replaces addresses of models and runs in object stores by the paths of local copies."""
    for key in MODELS:
        if config.get(key):
            config[key] = here(config[key])


def _parse(argv: list[str]) -> list[str]:
    """Parses flags and loads the config."""
    if any(argument.startswith("-") and argument.lstrip("-") in _HELP for argument in argv[1:]):
        try:
            print(_help_text(), flush=True)
        except BrokenPipeError:  # the reader of a pipe stopped, as in --help | head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    try:
        argv = _with_carried(argv)
        _READER.task, _READER.keys = _task_of(argv), _keys_of(argv)
        if _READER.task:
            check_task(_READER.task)  # first, since the task decides which keys there are
            TASKS.get(_READER.task)  # so that a broken package is reported by its own error, not by absl's
        rest = flags.FLAGS([_LISTS.sub(lambda found: found[1] + repr(found[2]), argument) for argument in argv])
        if CONFIG.value is not None:
            flatten(CONFIG.value)  # an error in loading the file is raised only when its config is read
    except (AttributeError, KeyError) as error:  # raised by ml_collections for an unknown key or section
        _fail(_unknown_override(argv, error))
    except (flags.Error, IndexError, ValueError, TypeError, OSError, ImportError, SyntaxError) as error:
        _fail(_flag_error(error))
    if CONFIG.value is None:
        _fail("--config is missing; for example --config=configs/hlm_base.py:tiny")
    if len(rest) > 1:
        _fail(f"unexpected argument {rest[1]!r}; flags are written --name=value")
    return rest


def _with_carried(argv: list[str]) -> list[str]:
    """Returns the arguments with the file of --config=FILE, or --config FILE, replaced as in `find_config_file`."""
    found = list(argv)
    for i, argument in enumerate(argv):
        name, equals, spec = argument.partition("=")
        if name in ("--config", "-config") and equals:
            found[i] = f"{name}={find_config_file(spec)}"
        elif name in ("--config", "-config") and i + 1 < len(argv):
            found[i + 1] = find_config_file(argv[i + 1])
    return found


def _task_of(argv: list[str]) -> str:
    """Returns the task that the command line sets, or ""."""
    return _value_of("config.task", argv)


def _keys_of(argv: list[str]) -> list[str]:
    """Returns the full names of the config keys that the command line sets."""
    names = (argument.lstrip("-").partition("=")[0] for argument in argv[1:] if argument.startswith("-"))
    return [name.removeprefix("config.") for name in names if name.startswith("config.")]


def _value_of(flag: str, argv: list[str]) -> str:
    """Returns the last value that the command line sets for a flag, as --flag=VALUE or --flag VALUE, or ""."""
    found = ""
    for i, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        if name in (f"--{flag}", f"-{flag}"):
            found = value if equals else "".join(argv[i + 1 : i + 2])
    return found


def _unknown_override(argv: list[str], error: AttributeError | KeyError) -> str:
    # The file is loaded here, because the flag has no value when a key does not exist.
    try:
        config = load_config_file(_value_of("config", argv))
        if task := _task_of(argv):
            config.task = task
        defaults = defaults_of(config)
    except (ValueError, OSError):
        defaults = get_config()
    for argument in argv:
        name = argument.lstrip("-").partition("=")[0]
        if name.startswith("config.") and name.removeprefix("config.") not in flatten(defaults):
            return unknown_key(name.removeprefix("config."), defaults)
    return f"--config: {_one_line(error)}"


def _flag_error(error: BaseException) -> str:
    if missing := re.search(r"No such file or directory: '([^']*)'", _one_line(error)):
        return f"--config: {no_config_file(missing[1])}"
    if "Traceback" not in str(error):
        return _one_line(error)
    reason = re.sub(r"^\w*Error: ", "", str(error).strip().splitlines()[-1].strip())  # raised by the config file
    return "--config: this file has no variants" if "takes 0 positional" in reason else f"--config: {reason}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fail(message: str) -> NoReturn:
    print_error(message)
    sys.exit(1)


def _help_text() -> str:
    """Returns the help text: the program's docstring, its flags, and every config key with its default and meaning."""
    own = [*flags.FLAGS.get_flags_for_module(__name__), *flags.FLAGS.get_flags_for_module("__main__")]
    lines = [wrapped(sys.modules["__main__"].__doc__ or "", columns()), "", "flags:"]
    lines += [_entry(f"--{flag.name}", flag.help) for flag in own]
    for what, keys in key_tables():
        lines += ["", f"config keys of {what} with their defaults, each set by --config.KEY=VALUE:"]
        lines += [_entry(f"{name} = {key.default!r}", key.meaning) for name, key in keys.items()]
    for what, names in name_tables():
        lines += ["", f"{what}:"]
        lines += [_entry(name, meaning) for name, meaning in names]
    return "\n".join(lines)


def name_tables() -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns each table of names that a key may have, including registered ones: a title, then names and meanings."""
    kinds = [(name, f"{kind.line}; rate: share of {kind.share_of}") for name, kind in KINDS.usable()]
    trained = [(name, one.title) for name, one in FAMILIES.usable() if one.objectives]
    return [
        ("families, --config.family=NAME in pre-training", trained),
        ("tasks, --config.task=NAME in fine-tuning", [(name, entry.line) for name, entry in TASKS.usable()]),
        ("kinds of noise, --config.data.noise=NAME:RATE in fine-tuning", kinds),
        ("fusions, --config.model.fusion=NAME of a CharBERT", [(name, one.line) for name, one in FUSIONS.usable()]),
    ]


def key_tables() -> list[tuple[str, Mapping[str, Key]]]:
    """Returns each table of config keys: a title, then the keys."""
    tables: list[tuple[str, Mapping[str, Key]]] = [("pre-training", pretraining.KEYS)]
    tables += [(f"pre-training {name}", pretraining.own_keys(name)) for name in pretrainable()]
    tables.append(("fine-tuning", finetuning.KEYS))
    for name, one in FAMILIES.usable():
        if keys := finetuning.added_keys([one]):
            tables.append((f"fine-tuning a model of the family {name}", keys))
    return tables + [(f"fine-tuning on {name}", entry.keys) for name, entry in TASKS.usable() if entry.keys]


def _entry(name: str, meaning: str) -> str:
    return entry(name, meaning, 37, columns())
