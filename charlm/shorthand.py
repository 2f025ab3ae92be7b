"""The short form of `charlm train`, `finetune` and `plan`, turned into the flags of the modules that do the work.

    charlm train hlm_base:tiny --set lr=1e-4 --workdir runs/hlm
    python -m charlm.main --config=configs/hlm_base.py:tiny --config.optim.learning_rate=1e-4 --workdir runs/hlm

are the same command. `charlm.__main__` calls it. Open it to add a short name for an option or a key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import ml_collections

from charlm.config import carried_configs, find_config_file, flatten, is_fine_tuning, load_config_file
from charlm.core.help_text import columns, entry, wrapped
from charlm.core.nearest import did_you_mean

# Options that stand for config keys.
OPTIONS = {
    "model": ("init_from", "model to start from: a workdir, a checkpoint, or a folder of PyTorch weights"),
    "train": ("data.train", "files to learn from, with commas between"),
    "heldout": ("data.heldout", "files of text to evaluate on"),
    "dev": ("data.dev", "files to choose the best epoch by"),
    "test": ("data.test", "files to predict at the end"),
}
ALIASES = {"lr": "learning_rate", "bs": "batch_size", "wd": "weight_decay"}  # usual short names of keys

_TOLD = {  # for each command: what it does, its options, and what else may be said of it
    "train": ("pre-trains a model", ("model", "train", "heldout"), "hlm_base:tiny"),
    "finetune": ("fine-tunes a model on a task", ("model", "train", "dev", "test"), "tag:tiny"),
    "plan": ("tells what a run needs on a machine that is not here", ("model", "train"), "hlm_base"),
}
_COLUMN = 25  # where the meanings of options begin
_SETTINGS = (
    "config keys; a section may be left out where only one key has that name (--set epochs=3), and lr is "
    "learning_rate, bs batch_size, wd weight_decay"
)
_PLAN = (("--topology MACHINE", "such as v5e:4x4 or h100:8"),)
_RUN = (
    ("--workdir FOLDER", "folder of the run; the same command continues a stopped run"),
    ("--plain", "no progress bar"),
    ("--jsonl", "metrics as JSON lines on standard output, for programs"),
)
_VALUED = {"workdir": "the folder of the run", "topology": "a machine, such as v5e:4x4"}  # flags that need a value


def usage(command: str, module: str) -> str:
    """Returns the help text of a command, which is short: that of its module lists every flag and key."""
    what, options, example = _TOLD[command]
    config = f"{', '.join(_names(command))}, or a file of yours, path/to/config.py; `charlm models` lists variants"
    told = [("CONFIG", config), ("--set KEY=VALUE ...", _SETTINGS), *(_PLAN if command == "plan" else _RUN)]
    told += [(f"--{name} VALUE", f"{OPTIONS[name][1]} ({OPTIONS[name][0]})") for name in options]
    width = columns()
    last = f"python -m {module} --help lists every flag and every config key; all of them work here."
    return "\n".join(
        [
            wrapped(f"charlm {command} CONFIG[:VARIANT] [OPTION ...]: {what}", width),
            "",
            *(entry(name, meaning, _COLUMN, width) for name, meaning in told),
            "",
            f"  charlm {command} {example} ...",
            "",
            wrapped(last, width),
        ]
    )


def flags_of(command: str, arguments: Sequence[str]) -> list[str]:
    """Returns the flags of the command's module for what follows the command.

    Args:
      command: "train", "finetune" or "plan".
      arguments: a config, `--set` with settings, the options of `OPTIONS`, and flags of the module, which stay as they
        are.

    Raises:
      ValueError: there is no such config, it is one for another command, or a setting is not KEY=VALUE or names
        several keys.
    """
    rest, settings = _settings(arguments)
    if rest and not rest[0].startswith("-"):
        rest[0] = f"--config={_spec(rest[0], command)}"
    if "--config" in rest[:-1]:  # as absl reads it
        at = rest.index("--config")
        rest[at : at + 2] = [f"--config={rest[at + 1]}"]
    spec = next((flag.partition("=")[2] for flag in rest if flag.startswith("--config=")), "")
    if not spec:
        raise ValueError(f"no config: charlm {command} {_TOLD[command][2]} ...; charlm models lists them")
    config = _load(spec)
    if config is not None and command != "plan" and is_fine_tuning(config) != (command == "finetune"):
        what, other = ("fine-tunes", "finetune") if command == "train" else ("pre-trains", "train")
        name = Path(spec.partition(":")[0]).stem
        raise ValueError(f"the config {name} {what} a model: charlm {other} {name} ...")
    keys = () if config is None else flatten(config)
    return rest + [f"--config.{full_name(name, keys)}={value}" for name, value in settings]


def _settings(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the arguments without settings, and the settings: key and value of each."""
    rest: list[str] = []
    found: list[tuple[str, str]] = []
    todo = list(arguments)
    while todo:
        flag, equals, value = (argument := todo.pop(0)).partition("=")
        name = flag.removeprefix("--")
        if flag == "--set":
            values = [value] if equals else []
            while not equals and todo and not todo[0].startswith("-"):
                values.append(todo.pop(0))
            found += [_setting(one) for one in values or [""]]
        elif flag.startswith("--") and name in OPTIONS:
            if not equals and (not todo or todo[0].startswith("-")):
                raise ValueError(f"{flag} needs a value: {OPTIONS[name][1]}")
            found.append((OPTIONS[name][0], value if equals else todo.pop(0)))
        elif flag.startswith("--") and name in _VALUED:
            if not (value if equals else todo and not todo[0].startswith("-")):
                raise ValueError(f"{flag} needs a value: {_VALUED[name]}")
            rest.append(argument if equals else f"{flag}={todo.pop(0)}")
        elif flag.startswith("--") and (meant := did_you_mean(name, (*OPTIONS, *_VALUED), 0.75)):
            raise ValueError(f"unknown option {flag}{meant.replace('mean ', 'mean --')}")
        else:
            rest.append(argument)
    return rest, found


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--set {text}: expected KEY=VALUE, such as optim.learning_rate=1e-4")
    return name, value


def _names(command: str) -> list[str]:
    """Returns the names of the configs that charlm carries for a command."""
    kinds = {name: file.fine_tunes for name, file in carried_configs().items() if not file.command}
    return [name for name, fine_tunes in kinds.items() if command == "plan" or fine_tunes == (command == "finetune")]


def _spec(given: str, command: str) -> str:
    """Returns path/to/file.py[:variant] for a name of a config, or a path."""
    path, colon, variant = given.partition(":")
    if path.endswith(".py"):
        return given
    spec = f"configs/{path}.py"
    if "/" in path or not Path(find_config_file(spec)).is_file():
        names = _names(command)
        raise ValueError(f"there is no config {path!r}{did_you_mean(path, names)}; charlm models lists them")
    if (carried := carried_configs().get(path)) and carried.command:
        raise ValueError(f"{path} is a config of charlm {carried.command}, not of charlm {command}")
    return f"{spec}{colon}{variant}"


def _load(spec: str) -> ml_collections.ConfigDict | None:
    """Returns the config; None if it cannot be loaded, which the module reports."""
    try:
        return load_config_file(spec)
    except Exception:  # whatever the file raises
        return None


def full_name(name: str, keys: Collection[str]) -> str:
    """Returns the full name of a config key, such as that of "lr"; a name that no key has stays as it is.

    Raises:
      ValueError: several of `keys` have the name.
    """
    if name in keys:
        return name
    section, _, leaf = name.rpartition(".")
    leaf = ALIASES.get(leaf, leaf)
    if section:
        return f"{section}.{leaf}" if f"{section}.{leaf}" in keys else name
    found = [key for key in keys if key.rpartition(".")[2] == leaf]
    if len(found) > 1:
        raise ValueError(f"{name}: which of {', '.join(found)}?")
    return found[0] if found else name
