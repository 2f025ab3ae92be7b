"""Adds families, tasks, kinds of noise and fusions of your own to charlm. Import it where you define them.

    from charlm import register

    @register.noise("vowels", share_of="vowels of words", rate=0.1, line="deletes a vowel")
    def vowels(characters, how, rng): ...

What is added stands beside charlm's own: in configs, on command lines, in help texts and in messages. A command line
knows what code of yours adds when an installed package names it by an entry point, of the group `charlm.noises`,
`charlm.tasks`, `charlm.fusions` or `charlm.families`:

    [project.entry-points."charlm.noises"]
    vowels = "mypackage.noises:vowels"

A package is imported when what it brings is first asked for. A name that is taken, and a thing that lacks a part, are
refused in one line (ValueError).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from charlm.config import finetuning
from charlm.core.keys import Key
from charlm.families.family import FAMILIES, Family
from charlm.families.fusions import FUSIONS, FusionEntry
from charlm.tasks.table import TASKS, TaskEntry, entry_of
from charlm.text.noise import KINDS, Kind

__all__ = ["Family", "FusionEntry", "Key", "Kind", "TaskEntry", "family", "fusion", "noise", "task"]

C = TypeVar("C", bound=type)
Operation = TypeVar("Operation", bound=Callable[..., Any])


def family(added: Family) -> Family:
    """Adds a family and returns it.

    Raises:
      ValueError: its name is taken, a part is missing, or the module of a part is not there.
    """
    name = getattr(added, "name", "")
    return FAMILIES.add(name if isinstance(name, str) else "", added)


def noise(
    name: str,
    *,
    share_of: str,
    rate: float,
    line: str,
    unit: Literal["character", "word"] = "character",
    min_length: int = 1,
    highest: float = 1.0,
    resizes: bool = False,
    listed: bool = False,
) -> Callable[[Operation], Operation]:
    """Adds a kind of noise: decorates its operation, see `charlm.text.noise.operations` and, for words, `per_word`.

    The arguments are the fields of `charlm.text.noise.Kind`.

    Raises:
      ValueError: the name is taken, or a field cannot have its value.
    """

    def add(operation: Operation) -> Operation:
        kind = Kind(operation, unit, share_of, rate, line, min_length, highest, resizes, listed)
        KINDS.add(name, kind, operation)
        return operation

    return add


def task(
    name: str,
    *,
    line: str | None = None,
    reads: tuple[str, ...] | None = None,
    keys: Mapping[str, Key] | None = None,
    unlabelled: bool | None = None,
) -> Callable[[C], C]:
    """Adds a task: decorates a subclass of `charlm.tasks.base.Task`, or of one of charlm's.

    Args:
      line: what is predicted; None: the first line of its docstring. reads, unlabelled: see
        `charlm.tasks.table.TaskEntry`; None: as the task of charlm's that it is a subclass of. keys: of its own.

    Raises:
      ValueError: the name or a key is taken, or the class lacks a part.
    """

    def add(cls: C) -> C:
        entry = entry_of(cls, line=line, reads=reads, keys=keys, unlabelled=unlabelled)
        finetuning.check_keys_are_free(name, entry)
        TASKS.add(name, entry, cls)
        return cls

    return add


def fusion(name: str, *, line: str = "", shared: bool = False, one_window: bool = False) -> Callable[[C], C]:
    """Adds a fusion: decorates a subclass of `charlm.nn.fusions.Fusion`; `model.fusion` of a CharBERT may name it.

    Args:
      line: what it does; "": the first line of its docstring. shared, one_window: see
        `charlm.families.fusions.FusionEntry`.

    Raises:
      ValueError: the name is taken, or the class lacks a part.
    """

    def add(cls: C) -> C:
        said = line or (cls.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        FUSIONS.add(name, FusionEntry(said, cls, shared, one_window), cls)
        return cls

    return add
