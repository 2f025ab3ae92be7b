"""Reads, checks and stores the configs of every task.

The keys are declared in `charlm.config.pretraining`, by each family, and in `charlm.config.finetuning`, each once, with
its meaning and unit. `get_config()` returns the defaults. The files in `configs/` start from them and set only what
their experiment changes; the command line then sets single keys (`--config.optim.learning_rate=1e-4`). An unknown key
raises an error that names the nearest valid one. `validate()` checks what types alone cannot. Begin reading here for
how a config is loaded, checked and compared with that of a resumed run; go to the tables of keys to add or change a
key.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import ml_collections

from charlm.config import finetuning, pretraining
from charlm.config.pretraining import PRE_TRAINING, get_config
from charlm.core.local_paths import check_path
from charlm.core.nearest import did_you_mean
from charlm.core.types import Json, JsonObject
from charlm.families.family import UNNAMED, pretrainable

__all__ = ["PRE_TRAINING", "get_config"]

# Keys that may be addresses in object stores: of models and runs, and of corpora and data.
MODELS = ("init_from", "resume")
STORED = (*MODELS, "data.train", "data.heldout", "data.dev", "data.test")

LARGEST_SEED = 2**63 - 1  # largest seed that jax.random accepts

Variant = Callable[[ml_collections.ConfigDict], None]

_PACKAGE = Path(__file__).resolve().parents[1]
# The folder configs/: inside an installed package; beside the package in a checkout, editable or not.
CARRIED = _PACKAGE / "configs" if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent / "configs"


def family_of(config: ml_collections.ConfigDict) -> str:
    """Returns the family that a pre-training config names; raises ValueError when there is no such family."""
    family = config.get("family", UNNAMED)
    _check_choice("family", family, pretrainable())
    return family


def choices_of(config: ml_collections.ConfigDict) -> dict[str, tuple[str, ...]]:
    """Returns the allowed values of those keys of a config that have a fixed choice."""
    if is_fine_tuning(config):
        keys = finetuning.keys_of(config)
        choices = {key: told.choices for key, told in keys.items() if told.choices}
    else:
        choices = {"task": _tasks(), "family": pretrainable()} | pretraining.choices(family_of(config))
    return {key: tuple(values) for key, values in choices.items()}


def defaults_of(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Returns the defaults of all keys that the task of a config has."""
    if is_fine_tuning(config):
        found = finetuning.get_config(config.task)
        finetuning.add_family_keys(found, flatten(config))
        return found
    return get_config(family_of(config))


def is_fine_tuning(config: ml_collections.ConfigDict) -> bool:
    """Returns whether a config is one of `charlm.config.finetuning`."""
    return config.get("task", PRE_TRAINING) in finetuning.TASKS


def check_task(name: str) -> None:
    """Raises ValueError, naming the nearest task, when there is no task of that name."""
    _check_choice("task", name, _tasks())


def _tasks() -> tuple[str, ...]:
    return (PRE_TRAINING, *finetuning.TASKS)


def find_config_file(spec: str) -> str:
    """Returns path/to/file.py[:variant]; configs/x.py is charlm's own file when the current folder does not have it."""
    path, colon, variant = spec.partition(":")
    own = CARRIED / Path(path).name
    if Path(path).parts[:-1] != ("configs",) or Path(path).is_file() or not own.is_file():
        return spec
    return f"{own}{colon}{variant}"


def no_config_file(path: str) -> str:
    """Returns the end of the error message for a config file that does not exist."""
    own = sorted(file.name for file in CARRIED.glob("[a-z]*.py"))
    carried = f" and is none of the configs/ that charlm carries: {', '.join(own)}" if own else ""
    return f"no such file: {path} is not in {Path.cwd()}{carried}"


def load_config_file(spec: str) -> ml_collections.ConfigDict:
    """Returns the config that --config=path/to/file.py[:variant] names on the command line.

    Raises:
      ValueError: the file does not exist (see `find_config_file`), or it defines no get_config.
    """
    path, _, variant = find_config_file(spec).partition(":")
    module = _module_of(path)
    return module.get_config(variant) if variant else module.get_config()


def named_config(spec: str) -> ml_collections.ConfigDict:
    """Returns the config of a name that charlm carries, or of a path; with a variant behind a colon.

    Raises:
      ValueError: there is no such config, or it cannot be run.
    """
    path, colon, variant = spec.partition(":")
    file = path if path.endswith(".py") else f"configs/{path}.py"
    if not Path(find_config_file(file)).is_file():
        near = did_you_mean(path, [own.stem for own in CARRIED.glob("[a-z]*.py")])
        raise ValueError(f"{path!r} is neither a config of charlm (charlm models lists them) nor a file{near}")
    try:
        return load_config_file(f"{file}{colon}{variant}")
    except (ValueError, OSError):
        raise
    except Exception as error:  # whatever the file raises
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from error


def check_command(path: str) -> None:
    """Raises ValueError, naming the command, if a config file is for another command than training."""
    if command := getattr(_module_of(path), "COMMAND", ""):
        raise ValueError(f"{path} is a config of charlm {command} (charlm {command} --help)")


def carried_configs() -> dict[str, ConfigFile]:
    """Returns the config files of charlm by their names without ".py", such as "hlm_base", in alphabetical order."""
    found = {}
    for path in sorted(CARRIED.glob("[a-z]*.py")):
        module = _module_of(str(path))
        line = (module.__doc__ or "").partition("\n")[0].partition(": python -m")[0].removesuffix(".")
        variants, command = tuple(getattr(module, "VARIANTS", ())), getattr(module, "COMMAND", "")
        found[path.stem] = ConfigFile(line, variants, not command and is_fine_tuning(module.get_config()), command)
    return found


class ConfigFile(NamedTuple):
    """A config file of charlm.

    Attributes:
      line: a line about it.
      variants: the names of its variants.
      fine_tunes: whether it is for fine-tuning.
      command: the command that reads it, as its `COMMAND` says; "": training.
    """

    line: str
    variants: tuple[str, ...]
    fine_tunes: bool
    command: str = ""


def _module_of(path: str) -> ModuleType:
    """Returns the module of a config file; ValueError if the file does not exist, or defines no get_config."""
    spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ValueError(f"--config: {no_config_file(path)}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise ValueError(f"--config: {path} defines no get_config()")
    return module


def apply_variants(
    config: ml_collections.ConfigDict,
    names: str,
    variants: Mapping[str, Variant],
    file: str,
    one_of: Sequence[Iterable[str]] = (),
) -> ml_collections.ConfigDict:
    """Returns `config`, changed by the variants of its file that the command line names.

    Args:
      names: names of variants, joined by "+", in the order in which they are applied; "": none.
      file: the config file, as error messages name it.
      one_of: groups of variants of which only one may be chosen, because they would undo each other.

    Raises:
      ValueError: there is no such variant, or two of them belong to one group.
    """
    chosen = [name for name in names.split("+") if name]
    for name in chosen:
        if name not in variants:
            raise ValueError(f"{file} has no variant {name!r}; choose {', '.join(variants)}")
    for group in one_of:
        if len(both := [name for name in chosen if name in group]) > 1:
            raise ValueError(f"{file}: of {', '.join(group)} choose one, not {'+'.join(both)}")
    for name in chosen:
        variants[name](config)
    return config


def _check_choice(key: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        named = ", ".join(choice or "empty" for choice in choices)
        raise ValueError(f"{key}={value!r} is not one of {named}{did_you_mean(value, choices)}")


def flatten(config: ml_collections.ConfigDict) -> JsonObject:
    """Returns all keys by full name: {"model.hidden": 768, ...}."""

    def walk(node: ml_collections.ConfigDict, prefix: str) -> Iterator[tuple[str, Json]]:
        for key, value in node.items():
            if isinstance(value, ml_collections.ConfigDict):
                yield from walk(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value

    return dict(walk(config, ""))


def unknown_key(name: str, known: ml_collections.ConfigDict | None = None) -> str:
    """Returns the message for an unknown key, with the nearest of the known keys (default: those of pre-training)."""
    keys = dict(flatten(get_config() if known is None else known))
    if known is not None and is_fine_tuning(known):
        keys |= finetuning.added_keys()
    nearest = nearest_key(name, keys)
    return f"unknown config key {name}" + (f"; did you mean {nearest}?" if nearest else "")


LIKE_A_KEY = 0.5  # likeness from which a key may be meant


def nearest_key(name: str, keys: Iterable[str]) -> str:
    """Returns the key that a misspelled name most likely stands for; "" if none is like it.

    The same name in another section and keys that the name abbreviates ("lr", "bs", "warmup") count most, then keys
    that contain the name as a word; similar spelling decides the rest.
    """
    section, _, leaf = name.rpartition(".")

    def likeness(key: str) -> tuple[float, str]:
        of, _, own = key.rpartition(".")
        words = own.split("_")
        short = 1.0 if leaf == own or _is_short_for(leaf, words) else 0.5 * (leaf in words)
        alike = difflib.SequenceMatcher(None, key if section else own, name).ratio()
        return short + 0.1 * (section == of) * short + alike, key

    likeliest, nearest = max(map(likeness, keys))
    return nearest if likeliest >= LIKE_A_KEY else ""


def _is_short_for(short: str, words: Sequence[str]) -> bool:
    """Returns whether a name joins the beginnings of all words, in order; it may also end after whole first words."""
    short = short.replace("_", "")
    if not words or not short:
        return not short and not words
    first, rest = words[0], words[1:]
    if short == first and len(short) > 2:
        return True
    return any(first[:n] == short[:n] and _is_short_for(short[n:], rest) for n in range(1, len(first) + 1))


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of a config that types alone cannot.

    Raises:
      ValueError: a wrong value; names key, value and what is expected.
    """
    check_task(config.get("task", PRE_TRAINING))
    flat, defaults = flatten(config), defaults_of(config)
    known = flatten(defaults)
    for key in flat:
        if key not in known:
            raise ValueError(unknown_key(key, defaults))
    if missing := [key for key in known if key not in flat and is_fine_tuning(config)]:
        raise ValueError(f"{missing[0]} is missing: charlm.config.finetuning.get_config({config.task!r}) has it")
    for key, value in flat.items():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str):
                check_path(key, one, stored=key in STORED)
    for key, choices in choices_of(config).items():
        _check_choice(key, flat[key], choices)
    last = flat["seed"] + flat.get("seeds", 1) - 1
    if last > LARGEST_SEED:
        raise ValueError(f"seed={flat['seed']}: expected a whole number from 0 to {LARGEST_SEED}")
    if is_fine_tuning(config):
        finetuning.validate(flat)
    else:
        pretraining.validate(config, flat)


def split_lists(config: ml_collections.ConfigDict) -> None:
    """Splits entries such as "a.txt,b.txt" of `data.train`, `optim.freeze` and the like at their commas, in place."""
    check_task(config.get("task", PRE_TRAINING))
    for name in finetuning.LISTS if is_fine_tuning(config) else pretraining.LISTS:
        section, _, key = name.rpartition(".")
        node = config.get(section, {}) if section else config
        if key not in node:  # the file is of another task; `validate` reports it
            continue
        parts = (part.strip() for entry in node[key] for part in entry.split(","))
        node[key] = tuple(part for part in parts if part)
    if not is_fine_tuning(config) and not config.data.train:
        raise ValueError("data.train names no corpus")


def from_dict(values: JsonObject) -> ml_collections.ConfigDict:
    """Returns the config stored with a run or checkpoint; keys added since then get the values that it ran with.

    These are their defaults, or what the family's `UNSTATED` says.
    """
    given = ml_collections.ConfigDict(values)
    config = defaults_of(given)
    if not is_fine_tuning(config):
        config.update_from_flattened_dict(pretraining.unstated(config.family))
    known = flatten(config)
    for key, value in flatten(given).items():
        if key not in known:
            raise ValueError(unknown_key(key, config))
        *folders, leaf = key.split(".")
        node = config
        for folder in folders:
            node = node[folder]
        node[leaf] = tuple(value) if isinstance(node[leaf], tuple) else value
    return config


def to_json(config: ml_collections.ConfigDict) -> str:
    """Returns the config as JSON text."""
    return json.dumps(config.to_dict(), indent=2) + "\n"


def check_resumable(
    config: ml_collections.ConfigDict, saved: ml_collections.ConfigDict, where: str, among: tuple[str, ...] = ("",)
) -> None:
    """Copies measured values from the run found in `where` to `config`, and checks that nothing else differs.

    Args:
      config, saved: configs of pre-training or fine-tuning, `saved` of the run that was found.
      among: beginnings of the keys that are compared.

    Raises:
      ValueError: keys differ; lists them with both values.
    """
    if is_fine_tuning(config) != is_fine_tuning(saved):  # nearly all keys differ
        raise _another_config(where, [f"task is {config.task}, there {saved.task}"])
    if not is_fine_tuning(config) and config.family != saved.family:
        raise ValueError(f"{where} holds a run of the family {saved.family}, not {config.family}")
    differing = []
    old, rule = flatten(saved), _resuming(config)
    for key, value in flatten(config).items():
        if not key.startswith(among):
            continue
        if key in rule.measured and not value:
            config.update_from_flattened_dict({key: old[key]})
        elif value != old.get(key) and not key.startswith(rule.may_change):
            differing.append(f"{rule.set_by(key)} is {value}, there {old.get(key)}")
    if differing:
        raise _another_config(where, differing)


class _Resuming(NamedTuple):
    """How a run resumes.

    Attributes:
      measured: keys that are taken over if they are unset.
      may_change: beginnings of the keys that may differ.
      set_by: returns the key by which a person sets a key.
    """

    measured: tuple[str, ...]
    may_change: tuple[str, ...]
    set_by: Callable[[str], str]


def _resuming(config: ml_collections.ConfigDict) -> _Resuming:
    if is_fine_tuning(config):
        return _Resuming((), finetuning.RESUMABLE, str)
    set_by = functools.partial(pretraining.set_by, config)
    return _Resuming(pretraining.measured(config.family), pretraining.resumable(config.family), set_by)


def _another_config(where: str, differing: Sequence[str]) -> ValueError:
    return ValueError(f"{where} holds a run of another config: {'; '.join(differing)}; choose another --workdir")
