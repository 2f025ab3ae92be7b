"""Defines a config key: its default, its meaning and its allowed values, declared once in one place.

Tables of such keys, by full name ("optim.b1"), give configs their defaults, checks and help texts. Open this module to
add a new kind of rule for values; keys themselves are declared in `charlm.config` and in the families' `keys` modules.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import ml_collections

from charlm.core.entries import is_line
from charlm.core.nearest import did_you_mean

Default: TypeAlias = bool | int | float | str | tuple[object, ...]


class Key(NamedTuple):
    """A config key.

    Attributes:
      default: the value if none is set; a value must have the type of the default.
      meaning: a line for --help, with the unit.
      choices: the allowed values; () allows any.
      least: the smallest allowed number.
      below: numbers must be smaller than this.
      finite: whether numbers must be finite.
      minus_one: what -1 means where it is allowed beside these numbers; "": it is not allowed.
      most: the largest allowed number.
    """

    default: Default
    meaning: str
    choices: Collection[str] = ()
    least: float = -math.inf
    below: float = math.inf
    finite: bool = False
    minus_one: str = ""
    most: float = math.inf

    def but(self, default: Default | None = None, meaning: str = "", **rule: Any) -> Key:  # Any: fields of any type
        """Returns the same key as one family or one kind of training has it.

        Args:
          default: the default there; None: the same default.
          meaning: the meaning there, in which "{}" stands for the meaning of this key; "": the same meaning.
          rule: other fields that differ.
        """
        told = meaning.replace("{}", self.meaning) if meaning else self.meaning
        return self._replace(default=self.default if default is None else default, meaning=told, **rule)

    def check(self, name: str, value: object) -> None:
        """Raises ValueError, naming the key, for a value that it cannot have."""
        if self.choices and value not in self.choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(str(one) or 'empty' for one in self.choices)}")
        if not isinstance(value, int | float):
            return
        if self.finite and not math.isfinite(value):
            raise ValueError(f"{name}={value} must be finite")
        if self.minus_one and value == -1:
            return
        if min(self.below, self.most) < math.inf and not (self.least <= value <= self.most and value < self.below):
            otherwise = f", or be -1: {self.minus_one}" if self.minus_one else ""
            end = f"{self.below:g})" if self.below <= self.most else f"{self.most:g}]"
            raise ValueError(f"{name}={value} must lie in [{self.least:g}, {end}{otherwise}")
        if self.least > -math.inf and not value >= self.least:
            expected = f"be at least {self.least:g}" if self.least else "not be negative"
            raise ValueError(f"{name}={value} must {expected}")


def problem_of_key(key: object) -> str:
    """Returns what is wrong with a key that a package brings; "": nothing."""
    if not isinstance(key, Key):
        return f"expected charlm.register.Key(default, meaning), got {key!r}"
    if not isinstance(key.default, bool | int | float | str | tuple):
        return f"default={key.default!r}, expected True, False, a number, a text or a tuple"
    if not is_line(key.meaning):
        return f"meaning={key.meaning!r}, expected a line for the help text"
    if key.minus_one != "" and not is_line(key.minus_one):
        return f"minus_one={key.minus_one!r}, expected a line that says what -1 means"
    if isinstance(key.choices, str) or not isinstance(key.choices, Collection):
        return f"choices={key.choices!r}, expected a collection of values"
    try:
        key.check("default", key.default)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def problem_of_name(name: str) -> str:
    """Returns what is wrong with the full name of a key that a package brings; "": nothing."""
    config = ml_collections.ConfigDict()
    if taken := [part for part in name.split(".") if hasattr(config, part)]:
        return f"every config has an attribute {taken[0]!r} of its own; choose another name"
    return ""


def count(default: int, meaning: str) -> Key:
    """Returns a key for a number from 1 on."""
    return Key(default, meaning, least=1)


def natural(default: int, meaning: str) -> Key:
    """Returns a key for a number from 0 on."""
    return Key(default, meaning, least=0)


def amount(default: float, meaning: str) -> Key:
    """Returns a key for a finite number from 0 on."""
    return Key(default, meaning, least=0, finite=True)


def share(default: float, meaning: str) -> Key:
    """Returns a key for a number from 0 to below 1."""
    return Key(default, meaning, least=0, below=1)


def whole_share(default: float, meaning: str) -> Key:
    """Returns a key for a number from 0 to 1, which may be all."""
    return Key(default, meaning, least=0, most=1)


def put(config: ml_collections.ConfigDict, values: Mapping[str, object]) -> None:
    """Sets keys by full name, and adds those that the config does not have yet."""
    with config.unlocked():
        for key, value in values.items():
            section, _, leaf = key.rpartition(".")
            if section and section not in config:
                config[section] = ml_collections.ConfigDict()
            (config[section] if section else config)[leaf] = value


def set_typed(
    config: ml_collections.ConfigDict, setting: str, keys: Mapping[str, Key], whose: str, floats: Collection[str] = ()
) -> None:
    """Sets a key from "key=value" as it is typed on a command line; lists have commas between.

    Args:
      keys: the keys that there are.
      whose: whose keys they are, for messages, such as "the league".
      floats: keys whose lists hold numbers, which an empty default does not tell.

    Raises:
      ValueError: there is no such key, or the value is of another type.
    """
    name, equals, text = setting.partition("=")
    if not equals:
        raise ValueError(f"--set {setting}: expected KEY=VALUE")
    if name not in keys:
        raise ValueError(f"--set {setting}: {whose} has no key {name}{did_you_mean(name, keys)}")
    old = keys[name].default
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        if isinstance(old, bool):
            value: Default = {"True": True, "False": False}[text]
        elif not isinstance(old, tuple):
            value = type(old)(text)
        elif name in floats:
            value = tuple(map(float, parts))
        else:
            value = tuple(map(int, parts)) if old and isinstance(old[0], int) else parts
    except (KeyError, ValueError):
        usual = "True or False" if isinstance(old, bool) else f"a value such as {old!r}"
        expected = "numbers, such as 1,2" if name in floats else usual
        raise ValueError(f"--set {setting}: expected {expected}") from None
    put(config, {name: value})


def defaults(keys: Mapping[str, Key]) -> dict[str, object]:
    """Returns the default of each key."""
    return {name: key.default for name, key in keys.items()}
