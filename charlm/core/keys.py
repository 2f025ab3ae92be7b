"""What a config key is: its default, its meaning and the values that it may have, said once, where it is declared.

Defaults, checks and help texts of configs all come from tables of these, by the full name of a key ("optim.b1").
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ml_collections


class Key(NamedTuple):
    """A config key.

    Attributes:
      default: its value where none is set, and so its type. meaning: a line for --help, with the unit.
      choices: the values that it may have; (): any. least: of a number, the smallest. below: what it must not reach.
      finite: whether a number must be finite.
    """

    default: bool | int | float | str | tuple[Any, ...]
    meaning: str
    choices: Collection[Any] = ()
    least: float = -math.inf
    below: float = math.inf
    finite: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError, naming the key, for a value that it cannot have."""
        if self.choices and value not in self.choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(map(str, self.choices))}")
        if not isinstance(value, int | float):
            return
        if self.finite and not math.isfinite(value):
            raise ValueError(f"{name}={value} must be finite")
        if self.below < math.inf and not self.least <= value < self.below:
            raise ValueError(f"{name}={value} must lie in [{self.least:g}, {self.below:g})")
        if self.least > -math.inf and not value >= self.least:
            expected = f"be at least {self.least:g}" if self.least else "not be negative"
            raise ValueError(f"{name}={value} must {expected}")


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


def put(config: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
    """Sets keys by full name, those that a config does not have, too."""
    with config.unlocked():
        for key, value in values.items():
            section, _, leaf = key.rpartition(".")
            if section and section not in config:
                config[section] = ml_collections.ConfigDict()
            (config[section] if section else config)[leaf] = value


def defaults(keys: Mapping[str, Key]) -> dict[str, Any]:
    """Returns the default of each key."""
    return {name: key.default for name, key in keys.items()}
