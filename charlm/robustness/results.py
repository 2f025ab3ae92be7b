"""Computes the results from cells: means over draws, losses under noise, and comparisons of models.

Open it to add a number to `results.json`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from charlm import metrics
from charlm.core.types import Json, JsonObject
from charlm.metrics.compare import Metric
from charlm.robustness import scoring
from charlm.robustness.cells import Cell
from charlm.robustness.groups import entries
from charlm.robustness.measurement import Measured
from charlm.robustness.settings import Level
from charlm.robustness.subjects import Subject

RESULTS_FORMAT = 1  # of `results.json`; raise it when a reader of older files would misread new ones


class _Place(NamedTuple):
    """The measurements of a model on clean text (kind None) or under a noise, with a cell for each draw."""

    model: str
    kind: str | None
    level: float
    cells: Sequence[Cell]

    def named(self) -> JsonObject:
        """Returns the fields with which entries of the results begin."""
        return {"model": self.model, "kind": self.kind, "level": self.level}


def tables(
    measured: Measured, subjects: Sequence[Subject], masks: Mapping[str, np.ndarray], samples: int
) -> JsonObject:
    """Returns the parts of the results that are computed from cells of scores.

    Args:
      masks: the groups, see `charlm.robustness.groups.masks`.
      samples: number of resamples for each interval.
    """
    task = subjects[0].task
    metric = scoring.metric_of(task, next(iter(measured.clean.values())).values["kind"])
    by_name = {subject.name: subject for subject in subjects}
    places = [_Place(name, None, 0.0, [cell]) for name, cell in measured.clean.items()]
    places += [_Place(name, at.kind, at.level, cells) for (name, at), cells in measured.noisy.items() if at.noise]
    return {
        "clean": {name: cell.values["scores"] for name, cell in measured.clean.items()},
        "noise": [
            _noise_entry(by_name[name], level, cells, measured.clean[name], metric, samples)
            for (name, level), cells in measured.noisy.items()
        ],
        "comparisons": _comparisons(places, task.metric, metric, samples),
        "groups": [place.named() | entry for place in places for entry in entries(masks, place.cells, metric)],
        "segmentation": [place.named() | place.cells[0].values["segmentation"] for place in places],
    }


def _comparisons(places: Sequence[_Place], name: str, metric: Metric, samples: int) -> list[JsonObject]:
    """Returns the difference of every pair of models, on clean text and under each noise."""
    found = []
    for (kind, level), of_models in itertools.groupby(places, key=lambda place: (place.kind, place.level)):
        for a, b in itertools.combinations(of_models, 2):
            place = {"kind": kind, "level": level, "a": a.model, "b": b.model, "metric": name}
            found.append(place | _difference(a.cells, b.cells, metric, samples))
    return found


def _noise_entry(
    subject: Subject, level: Level, cells: Sequence[Cell], clean: Cell, metric: Metric, samples: int
) -> JsonObject:
    of_draws = [cell.values["scores"] for cell in cells]
    scores = {}
    for name in of_draws[0]:
        if all(name in one for one in of_draws):  # no mean for scores of types that only some predictions have
            values = [one[name] for one in of_draws]
            found = metrics.mean_and_sd(values)
            scores[name] = {"mean": found.mean, "sd": found.sd, "values": values}
    return {
        "model": subject.name,
        "kind": level.kind,
        "spec": level.spec,
        "level": level.level,
        "seen": subject.has_seen(level.spec),
        "seeds": [] if level.noise is None else list(range(len(cells))),
        "scores": scores,
        "drop": None if level.noise is None else _difference([clean], cells, metric, samples),
        "changed": sum(cell.values["changed"] for cell in cells) / len(cells),
    }


def _difference(a: Sequence[Cell], b: Sequence[Cell], metric: Metric, samples: int) -> dict[str, float]:
    found = metrics.paired_bootstrap(scoring.pooled(a), scoring.pooled(b), metric, samples)
    return {"difference": found.difference, "low": found.low, "high": found.high}


def plain(value: Any) -> Json:  # anything that a result may hold, NumPy's arrays and numbers among it
    """Returns a JSON-able copy of a value, in which numbers that are not finite are None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
