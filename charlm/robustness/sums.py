"""The sums of each example behind the scores of a report, in a file beside `results.json`.

They are for whoever compares the models of several reports on the same examples, as `charlm.league` does. Open it to
read or change that file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.core.durable import replacing
from charlm.core.reading import check_zip, loads
from charlm.core.types import Option
from charlm.robustness import scoring
from charlm.robustness.cells import Cell
from charlm.robustness.settings import Level

SUMS_FILE = "sums.npz"
_META = "meta"


class Sums(NamedTuple):
    """The sums of every example for one model on clean text or under one noise.

    Attributes:
      model: the name of the model in the results.
      spec: the noise; "": clean.
      kind: what the columns are, see `charlm.metrics.score_from_statistics`.
      rows: [examples, sums], the mean over the draws of the noise.
    """

    model: str
    spec: str
    kind: str
    rows: np.ndarray


def write_sums(folder: Path, clean: Mapping[str, Cell], noisy: Mapping[tuple[str, Level], Sequence[Cell]]) -> Path:
    """Writes the sums of all examples of a report into its folder; returns the file.

    Args:
      clean, noisy: the cells of the measurement, see `charlm.robustness.measurement.Measured`.
    """
    entries, arrays = [], {}
    for number, one in enumerate(_sums_of(clean, noisy)):
        entries.append({"model": one.model, "spec": one.spec, "kind": one.kind})
        arrays[f"rows_{number}"] = one.rows
    # The types of NumPy take each keyword for one of savez_compressed's own arguments, so the values are open.
    content: dict[str, Option] = {_META: np.array(json.dumps(entries)), **arrays}
    path = folder / SUMS_FILE
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **content)
    return path


def read_sums(folder: Path) -> list[Sums]:
    """Returns the sums in the folder of a report.

    Raises:
      ValueError, OSError, KeyError, zipfile.BadZipFile: the file is missing or damaged.
    """
    path = folder / SUMS_FILE
    check_zip(path)
    with np.load(path, allow_pickle=False) as file:
        entries = loads(str(file[_META]))
        return [Sums(**entry, rows=file[f"rows_{number}"]) for number, entry in enumerate(entries)]


def _sums_of(clean: Mapping[str, Cell], noisy: Mapping[tuple[str, Level], Sequence[Cell]]) -> Iterator[Sums]:
    for model, cell in clean.items():
        yield _one(model, "", [cell])
    for (model, level), cells in noisy.items():
        if level.noise is not None:
            yield _one(model, level.spec, cells)


def _one(model: str, spec: str, cells: Sequence[Cell]) -> Sums:
    return Sums(model, spec, cells[0].values["kind"], scoring.pooled(cells))
