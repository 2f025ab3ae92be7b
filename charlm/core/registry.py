"""The extensible tables of charlm: families, tasks, kinds of noise and fusions, each entry under a name.

Open it to see how charlm finds the entries that installed packages provide, and which names it refuses.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from charlm.core.entries import reason
from charlm.core.nearest import did_you_mean

T = TypeVar("T")

NAME_RULE = re.compile(r"[a-z][a-z0-9_]*")  # names of added entries; specs and lists use : @ and , as separators
# Words that mean something else where names are typed and reported, such as "--noise all" and "clean" text.
RESERVED = ("all", "any", "auto", "clean", "none")
log = logging.getLogger("charlm")


def load(reference: str) -> Any:  # the caller knows what stands there
    """Returns the object at "module:name", or the module if no name is given; ValueError if the name is missing."""
    module, _, name = reference.partition(":")
    loaded = importlib.import_module(module)
    if name and not hasattr(loaded, name):
        raise ValueError(f"{reference}: the module {module} has no {name}")
    return getattr(loaded, name) if name else loaded


class Registry(Mapping[str, T], Generic[T]):
    """A table of entries by name: charlm's own in their order, then those of packages, then those added by code.

    A package provides an entry by an entry point, which is imported when the entry is first read. Listing the names, or
    reading one of charlm's own entries, imports no package.

    Args:
      sort: what an entry is called in messages.
      group: the group of the entry points.
      own: charlm's entries; a string is "module:name", loaded when the entry is read.
      check: takes a name and an object to be added; returns the entry for the table, or raises ValueError that says in
        one line what the object lacks.
      reserved: names that no added entry may have, beside `RESERVED`.
    """

    def __init__(
        self,
        sort: str,
        group: str,
        own: Mapping[str, T | str],
        check: Callable[[str, object], T],
        reserved: tuple[str, ...] = (),
    ) -> None:
        self.sort, self.group, self.own = sort, group, own
        self._check, self._reserved = check, (*RESERVED, *reserved)
        self._added: dict[str, T] = {}
        self._makers: dict[str, str] = {}  # for each added entry, the "module:name" that it was made from
        self._warned: set[str] = set()

    def add(self, name: str, thing: object, maker: Any = None) -> T:  # any object, of which only its name is read
        """Adds an object and returns its entry.

        Args:
          maker: the class or function that the object was made from. A later call with a maker of the same module and
            name replaces the entry, so that a notebook cell can be run again.

        Raises:
          ValueError: the name is invalid or taken, or the object lacks a part.
        """
        if not (isinstance(name, str) and NAME_RULE.fullmatch(name)):
            raise ValueError(f"{self.sort} {name!r}: expected a name of small letters, digits and _")
        made_from = f"{maker.__module__}:{maker.__qualname__}" if hasattr(maker, "__qualname__") else ""
        if owner := self._owner(name, made_from):
            raise ValueError(f"{self.sort} {name!r}: the name is taken by {owner}; choose another one")
        entry = self._check(name, thing)
        self._added[name], self._makers[name] = entry, made_from
        return entry

    def _owner(self, name: str, made_from: str) -> str:
        """Returns the owner of a name that is to be added; "": nobody."""
        if name in self.own or name in self._reserved:
            return "charlm"
        if name in self._added:
            return "" if made_from and made_from == self._makers[name] else self._makers[name] or "another one"
        point = self._brought.get(name)  # a package may add its entry by code before its entry point is read
        if point is None or point.module.partition(".")[0] == made_from.partition(":")[0].partition(".")[0]:
            return ""
        return f"the package {_package(point)}"

    @functools.cached_property
    def _brought(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages by name; if two share a name, the first package has it."""
        found: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, _package(point))):
            owner = "charlm" if point.name in self.own or point.name in self._reserved else ""
            if point.name in found:
                owner = f"the package {_package(found[point.name])}"
            if owner:
                self.warn(f"{self._said(point)} is left out: the name is taken by {owner}")
            elif not NAME_RULE.fullmatch(point.name):
                self.warn(f"{self._said(point)} is left out: expected a name of small letters, digits and _")
            else:
                found[point.name] = point
        return found

    def _said(self, point: EntryPoint) -> str:
        return f"package {_package(point)}: {self.sort} {point.name!r}"

    def warn(self, line: str) -> None:
        """Logs a warning about an added entry, each only once."""
        if line not in self._warned:
            self._warned.add(line)
            log.warning("%s", line)

    def __getitem__(self, name: str) -> T:
        """Returns the entry of a name.

        Raises:
          KeyError: there is none.
          ValueError: the package that provides it is broken, or its object lacks a part.
        """
        if name in self.own:
            entry = self.own[name]
            return load(entry) if isinstance(entry, str) else cast(T, entry)
        if name not in self._added:
            self._import(name)
        return self._added[name]

    def _import(self, name: str) -> None:
        point = self._brought[name]
        try:
            thing = point.load()
        except (Exception, SystemExit) as error:  # a third-party module may raise anything
            raise ValueError(f"{self._said(point)} cannot be loaded from {point.value}: {reason(error)}") from error
        if name in self._added:  # by a decorator in the module
            return
        try:
            self._added[name] = self._check(name, thing)
        except ValueError as error:
            raise ValueError(f"package {_package(point)}: {error}") from None
        self._makers[name] = point.value

    def load(self, name: str, part: object) -> Any:  # the caller knows what the part is
        """Returns a part of the entry `name`, loading it if `part` is a string "module:name".

        Raises:
          ValueError: the part cannot be loaded.
        """
        if not isinstance(part, str):
            return part
        try:
            return load(part)
        except (Exception, SystemExit) as error:
            raise ValueError(f"{self.sort} {name!r} cannot be loaded from {part}: {reason(error)}") from error

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._added or name in self._brought

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self._brought
        yield from (name for name in self._added if name not in self._brought)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def at_hand(self) -> dict[str, T]:
        """Returns charlm's own entries and those that were added or read so far; imports no package."""
        return {name: self[name] for name in self.own} | self._added

    def unknown(self, name: object) -> str:
        """Returns the message for an unknown name, with all known names and the nearest one."""
        return f"{name!r} is not one of {', '.join(self)}{did_you_mean(name, self)}"

    def usable(self) -> Iterator[tuple[str, T]]:
        """Yields every name and its entry; skips broken packages, with one log line for each."""
        for name in self:
            try:
                yield name, self[name]
            except ValueError as error:
                self.warn(str(error))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module
