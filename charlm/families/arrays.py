"""The interface for models as programs of plain arrays, which other programs call without charlm (`charlm.export`).

A family's subclass of `Arrays` names the arrays that its models read, makes them from rows of units, and turns them
into the family's batches inside a program. Open it to make the models of a new family exportable.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import numpy as np

from charlm.core.types import JsonObject, Tree
from charlm.families.units import Joined, Units

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

PADDING = -1  # in every array of positions

PADDED = """\
def padded(rows):  # -1 pads
    longest = max(map(len, rows), default=0)
    if longest > reading["length"]:
        raise ValueError(f"a text has {longest} positions; the model reads {reading['length']} at a time")
    found = np.full((len(rows), longest), -1, np.int32)
    for b, row in enumerate(rows):
        found[b, : len(row)] = row
    return found
"""  # Python that stands beside an exported program, before a family's recipe


class ArrayInput(NamedTuple):
    """An array that a model reads; all are int32.

    Attributes:
      name: its name.
      axes: the size of each axis: a number, or a name that stands for any number, the same in all arrays.
      meaning: what it holds.
    """

    name: str
    axes: tuple[int | str, ...]
    meaning: str


class Arrays(abc.ABC):
    """The plain arrays that a model reads.

    Args:
      pretrained: the model.
      units: its units, which turn text into rows.

    Attributes:
      recipe: lines of Python, without charlm, that define `arrays_of`; `texts` says what it takes. "": there are none.
        `json`, `np`, `folder`, `names`, `reading` and `padded` are defined before it.
      texts: what `arrays_of` takes, or how the arrays come from text where there is no recipe.
    """

    recipe: str = ""
    texts: ClassVar[str]
    units: Any  # of a class of the family's own

    def __init__(self, pretrained: Pretrained, units: Units) -> None:
        self.pretrained, self.units = pretrained, units

    @property
    @abc.abstractmethod
    def inputs(self) -> tuple[ArrayInput, ...]:
        """The arrays."""

    @property
    def bounds(self) -> tuple[str, ...]:
        """What holds for the sizes with names, such as "length <= 512"."""
        return (f"length <= {self.units.longest}",)

    @abc.abstractmethod
    def of(self, rows: Sequence[Joined]) -> dict[str, np.ndarray]:
        """Returns the arrays of rows of units, by name."""

    @abc.abstractmethod
    def batch(self, arrays: Mapping[str, jax.Array]) -> Tree:
        """Returns the family's batch, with a leading axis of one shard, as `Units.apply` and `Units.states` read it.

        It runs inside a program whose sizes may stand for any number.
        """

    @abc.abstractmethod
    def reading(self) -> JsonObject:
        """Returns what one has to know to make the arrays, beside the files of `write_beside`."""

    @abc.abstractmethod
    def write_beside(self, folder: Path) -> None:
        """Writes the vocabularies that the arrays are made with."""


def padded(rows: Sequence[np.ndarray], value: int = PADDING) -> np.ndarray:
    """Returns rows of different lengths as int32 [rows, longest], padded on the right."""
    found = np.full((len(rows), max(map(len, rows))), value, np.int32)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found


def distinct(chars_NC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct rows of characters, int32 [U, longest], and the number of each row, int32 [N]."""
    words_UC, number_N = np.unique(chars_NC, axis=0, return_inverse=True)
    used = max(2, int((words_UC != 0).sum(axis=1).max(initial=0)))
    return words_UC[:, :used].astype(np.int32), number_N.reshape(-1).astype(np.int32)
