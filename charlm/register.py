"""Registers your own families, tasks, kinds of noise and fusions with charlm. Import it where you define them.

    from charlm import register

    @register.noise("vowels", share_of="vowels of words", rate=0.1, line="deletes a vowel")
    def vowels(characters, how, rng): ...

Registered entries can be used like charlm's own, in configs and on command lines, and appear in help texts and
messages. For charlm's command lines to find them, an installed package must name them by entry points, in the group
`charlm.noises`, `charlm.tasks`, `charlm.fusions` or `charlm.families`:

    [project.entry-points."charlm.noises"]
    vowels = "mypackage.noises:vowels"

The package is imported when one of its entries is first used. A name that is taken, or an object that lacks a part,
raises ValueError with a one-line message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from charlm.config import finetuning
from charlm.core.keys import Key
from charlm.families.family import FAMILIES, Family
from charlm.families.fusions import FUSIONS, FusionEntry
from charlm.families.options import ExportForm, ImportOption, ModelOption, PredictOption
from charlm.tasks.rows import RowFormat, Written
from charlm.tasks.table import TASKS, TaskEntry, entry_of
from charlm.text.noise import KINDS, Kind

__all__ = [
    "ExportForm",
    "Family",
    "FusionEntry",
    "ImportOption",
    "Key",
    "Kind",
    "ModelOption",
    "PredictOption",
    "RowFormat",
    "TaskEntry",
    "Written",
    "family",
    "fusion",
    "noise",
    "task",
]

C = TypeVar("C", bound=type)
Operation = TypeVar("Operation", bound=Callable[..., Any])  # on characters or words, see `Kind`


def family(added: Family) -> Family:
    """Adds a family and returns it.

    Raises:
      ValueError: its name is taken, a part is missing or of a wrong type, a part is not where the family says, or an
        option has the name of another one. What a part is, is checked when it is first used: nothing is imported here.
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
    """Returns a decorator that adds a kind of noise, given its operation.

    See `charlm.text.noise.operations` for operations and, for words, `per_word`. The arguments are the fields of
    `charlm.text.noise.Kind`.

    Raises:
      ValueError: the name is taken, or a field has a wrong value.
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
    rows: RowFormat | None = None,
    config: str | None = None,
) -> Callable[[C], C]:
    """Returns a decorator that adds a task, a subclass of `charlm.tasks.base.Task` or of one of charlm's tasks.

    Args:
      line: says what is predicted; None: the first line of the class's docstring.
      reads, unlabelled, rows, config: see `charlm.tasks.table.TaskEntry`; None: those of the charlm task that it is a
        subclass of.
      keys: config keys of the task's own.

    Raises:
      ValueError: the name or a key is taken, or the class lacks a part.
    """

    def add(cls: C) -> C:
        entry = entry_of(cls, line=line, reads=reads, keys=keys, unlabelled=unlabelled, rows=rows, config=config)
        finetuning.check_keys_are_free(name, entry)
        TASKS.add(name, entry, cls)
        return cls

    return add


def fusion(name: str, *, line: str = "", shared: bool = False, one_window: bool = False) -> Callable[[C], C]:
    """Returns a decorator that adds a fusion, a subclass of `charlm.nn.fusions.Fusion`, for `model.fusion` of CharBERT.

    Args:
      line: says what it does; "": the first line of the class's docstring.
      shared, one_window: see `charlm.families.fusions.FusionEntry`.

    Raises:
      ValueError: the name is taken, or the class lacks a part.
    """

    def add(cls: C) -> C:
        said = line or (cls.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        FUSIONS.add(name, FusionEntry(said, cls, shared, one_window), cls)
        return cls

    return add
