"""The cache of measurements: one small file ("cell") for each piece of work.

The name of a file includes a hash of everything that the measurement depends on, so a report continues after an
interruption and never uses outdated values. Open it to see what makes a measurement be computed again.
"""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.core.durable import replacing
from charlm.core.files import remove_stale, stable_hash
from charlm.core.reading import check_zip, loads
from charlm.core.types import Json, JsonObject, Option

log = logging.getLogger("charlm")

CELLS_FOLDER = "cells"
CELLS_FORMAT = 3  # format of the cells; to be raised if their content, or how it is computed, changes
_META = "meta"


class Cell(NamedTuple):
    """A measurement: JSON-able values, and arrays by name."""

    values: JsonObject
    arrays: dict[str, np.ndarray]


class Cells:
    """The cells of a report, in a folder below `out`.

    Attributes:
      found, computed: how many cells were read from files, and how many were computed.
    """

    def __init__(self, out: Path) -> None:
        self._folder = out / CELLS_FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_stale(str(self._folder))
        self.found = self.computed = 0

    def path(self, name: str, depends_on: Json) -> Path:
        """Returns the file of a cell."""
        return self._folder / f"{name}-{stable_hash(CELLS_FORMAT, name, depends_on)[:24]}.npz"

    def has(self, name: str, depends_on: Json) -> bool:
        """Says whether the file of a cell exists."""
        return self.path(name, depends_on).exists()

    def get(self, name: str, depends_on: Json, compute: Callable[[], Cell]) -> Cell:
        """Returns a cell; if it is missing or damaged, computes it and writes its file.

        Args:
          name: a readable name, which becomes part of the file name.
          depends_on: a JSON-able value of everything that the cell depends on.
          compute: computes the cell.
        """
        path = self.path(name, depends_on)
        if path.exists():
            try:
                cell = _read(path)
                self.found += 1
                return cell
            except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
                log.warning("%s is damaged (%s): computed again", path, error)
        cell = compute()
        self.computed += 1
        # The types of NumPy take each keyword for one of savez_compressed's own arguments, so the values are open.
        arrays: dict[str, Option] = {_META: np.array(json.dumps(cell.values)), **cell.arrays}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)
        return _read(path)


def _read(path: Path) -> Cell:
    check_zip(path)
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return Cell(loads(str(arrays.pop(_META))), arrays)
