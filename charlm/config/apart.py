"""Reads and checks the configs of training that has no family of its own: word recognisers, and aligned students.

Such a config has one table of keys, all of them set by `--set KEY=VALUE`; `charlm.wordrec.config` and
`charlm.align.config` hold these tables. Open it to change how such a config is read, checked or compared with that of a
resumed run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import ml_collections

from charlm.config import LARGEST_SEED, flatten, named_config
from charlm.config.pretraining import RESUMABLE
from charlm.core.keys import Key, defaults, put, set_typed
from charlm.core.local_paths import check_path
from charlm.core.nearest import did_you_mean
from charlm.core.types import JsonObject

_LISTS_OF_NUMBERS = ("data.weights",)


class Apart(NamedTuple):
    """A kind of training.

    Attributes:
      task: the task of its configs.
      name: what is trained, with its article, such as "a word recogniser".
      home: the module whose `get_config` has the defaults.
      keys: its keys by full name.
      fixed: values that shared modules read of every config, and for which this kind has no key.
      check: checks what the rules of single keys cannot; ValueError for a wrong value.
      may_change: beginnings of further keys that may change when a run is resumed.
    """

    task: str
    name: str
    home: str
    keys: Mapping[str, Key]
    fixed: JsonObject
    check: Callable[[ml_collections.ConfigDict], object]
    may_change: tuple[str, ...] = ()


def default_config(kind: Apart) -> ml_collections.ConfigDict:
    """Returns the default config of a kind."""
    config = ml_collections.ConfigDict()
    put(config, defaults(kind.keys) | kind.fixed)
    return config


def load(kind: Apart, spec: str, settings: Sequence[str] = ()) -> ml_collections.ConfigDict:
    """Returns the checked config of a kind.

    Args:
      spec: a name of a config that charlm carries, or a path; with a variant behind a colon.
      settings: "key=value" each.

    Raises:
      ValueError: there is no such config, it is of something else, or a value is wrong.
    """
    config = named_config(spec)
    if config.get("task") != kind.task:
        raise ValueError(f"{spec}: expected the config of {kind.name}, got task={config.get('task')!r}")
    for setting in settings:
        set_key(kind, config, setting)
    validate(kind, config)
    return config


def set_key(kind: Apart, config: ml_collections.ConfigDict, setting: str) -> None:
    """Sets a key of a config; see `charlm.core.keys.set_typed`."""
    keys = {name: key for name, key in kind.keys.items() if name != "task"}  # what a config is of, nobody changes
    set_typed(config, setting, keys, kind.name, floats=_LISTS_OF_NUMBERS)


def validate(kind: Apart, config: ml_collections.ConfigDict) -> None:
    """Checks the values of a config.

    Raises:
      ValueError: an unknown key, or a wrong value; names key, value and what is expected.
    """
    flat = flatten(config)
    for key in flat:
        if key not in kind.keys and key not in kind.fixed:
            raise ValueError(f"unknown config key {key}{did_you_mean(key, kind.keys)}")
    for key, told in kind.keys.items():
        if key not in flat:
            raise ValueError(f"{key} is missing: {kind.home}.get_config() has it")
        told.check(key, flat[key])
        for one in flat[key] if isinstance(flat[key], tuple) else (flat[key],):
            if isinstance(one, str):
                check_path(key, one)
    if not 0 <= config.seed <= LARGEST_SEED:
        raise ValueError(f"seed={config.seed}: expected a whole number from 0 to {LARGEST_SEED}")
    weights = config.data.weights
    usable = all(isinstance(one, int | float) and 0 < one < math.inf for one in weights)
    if weights and not (usable and len(weights) == len(config.data.train)):
        expected = f"expected a positive number for each of data.train={config.data.train}"
        raise ValueError(f"data.weights={weights}: {expected}")
    kind.check(config)


def check_resumable(kind: Apart, config: ml_collections.ConfigDict, path: Path, where: str) -> None:
    """Checks that the run whose config is stored at `path` goes on with `config`; takes its measured values over.

    Raises:
      ValueError: the file is damaged, or other keys differ; names them with both values.
    """
    try:
        saved = flatten(ml_collections.ConfigDict(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error}") from error
    if saved.get("task") != kind.task:
        raise ValueError(f"{where} holds a run of the task {saved.get('task')}; choose another --workdir")
    if not config.data.table_shards:
        config.data.table_shards = saved["data.table_shards"]
    listed = lambda value: list(value) if isinstance(value, tuple) else value
    differing = [
        f"{key} is {value}, there {saved.get(key)}"
        for key, value in flatten(config).items()
        if listed(value) != listed(saved.get(key)) and not key.startswith(RESUMABLE + kind.may_change)
    ]
    if differing:
        raise ValueError(f"{where} holds a run of another config: {'; '.join(differing)}; choose another --workdir")
