"""Tells what differs between the league of a workdir and the one that is asked for, and what of that is allowed.

Open it to let something change in a league that has begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from charlm.core.keys import Key
from charlm.core.types import Json, JsonObject
from charlm.league.config import KEYS, SECTIONS

_MAY_CHANGE = (
    "title",
    "claims",
    "pretraining.runs",
    "pretraining.baseline",
    "robustness.samples",
    "robustness.batch_size",
)
_TITLE = re.compile(r"(systems|tasks)\.[^.]+\.title")
_MAY_GROW = ("tuning.seeds", "robustness.noise")
_TASKS_OF_SYSTEM = re.compile(r"systems\.[^.]+\.tasks")


def changes(old: JsonObject, new: JsonObject, begun: Callable[[str, str], bool] = lambda *_: True) -> list[str]:
    """Returns what differs between the config of a workdir and another one, but for what may be added or changed.

    Args:
      old, new: configs as dicts, `old` read from JSON, where tuples are lists.
      begun: says of "systems" or "tasks" and a name there whether anything is kept of it. If nothing is, of what starts
        from it neither, it may change.
    """
    fresh = [f"tasks.{name}." for name in old["tasks"] if not begun("tasks", name)]
    fresh += [
        f"systems.{name}."
        for name in old["systems"]
        if not any(begun("systems", one) for one in (name, *_starting_from(name, old["systems"])))
    ]
    before = dict(_leaves(old))
    after = dict(_leaves(new))
    found = []
    for name, value in before.items():
        if name in _MAY_CHANGE or name.startswith(tuple(fresh)) or (name in after and _TITLE.fullmatch(name)):
            continue
        now = after.get(name)
        if name not in after:
            found.append(f"{name} is gone")
        elif now != value and not _has_grown(name, value, now):
            found.append(f"{name} is {now!r}, there {value!r}")
    entries = {".".join(name.split(".")[:2]) for name in before}
    for name, value in after.items():
        if name not in before and (key := _key_of(name)) is not None and value == _stored(key.default):
            continue  # the workdir is from before there was such a key
        if name not in before and (name.split(".")[0] not in SECTIONS or ".".join(name.split(".")[:2]) in entries):
            found.append(f"{name} is {value!r}, there it is not set")
    return _without_parts(found)


def _has_grown(name: str, old: Json, new: Json) -> bool:
    """Whether the new value of a key asks for more than the old one, and for all that the old one asked for."""
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    if _TASKS_OF_SYSTEM.fullmatch(name):
        return bool(old) and (not new or set(old) <= set(new))  # none named: all of them
    return name in _MAY_GROW and set(old) <= set(new)


def _without_parts(found: Sequence[str]) -> list[str]:
    """Returns the lines, with one for a system or task that is gone instead of one for each of its keys."""
    kept: dict[str, None] = {}
    for line in found:
        name = line.partition(" ")[0]
        whole = name.split(".")[0] in SECTIONS and line.endswith(" is gone")
        kept[f"{'.'.join(name.split('.')[:2])} is gone" if whole else line] = None
    return list(kept)


def _starting_from(name: str, systems: Mapping[str, JsonObject]) -> Iterator[str]:
    """Yields the systems whose models come of that of another one."""
    for one, entry in systems.items():
        if name in (entry.get("start"), entry.get("same")):
            yield one
            yield from _starting_from(one, systems)


def _key_of(name: str) -> Key | None:
    """Returns the key of a full name, such as "budget.words" or "systems.bert.share"."""
    section, _, rest = name.partition(".")
    return SECTIONS[section].get(rest.rpartition(".")[2]) if section in SECTIONS else KEYS.get(name)


def _stored(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _leaves(values: JsonObject, prefix: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple | list) else value
