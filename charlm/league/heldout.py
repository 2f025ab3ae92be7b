"""Gathers what the models of a league without tasks have learned of held-out text, over the seeds of pre-training.

Open it to change how runs of several seeds are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_collections
import numpy as np

from charlm.core.types import JsonObject
from charlm.league import done
from charlm.league.places import Places
from charlm.league.plan import seeds_of, trained
from charlm.training.progress import read_metrics

PREFIX = "heldout_"
MEASURES = ("bits_per_char", "loss")  # what systems are compared by: the first that all of them have; less is better


def heldout_of(config: ml_collections.ConfigDict, places: Places) -> list[JsonObject]:
    """Returns for each trained system its held-out metrics after the last step, one dict for each finished run.

    The baseline (`pretraining.baseline`) comes first. Each entry has the name of the `system`, the `seeds` of the runs
    (null: the config's own) and their `metrics`.
    """
    found = []
    for name in sorted(trained(config), key=lambda name: name != config.pretraining.baseline):
        runs = {seed: last_metrics(places, name, seed) for seed in seeds_of(config)}
        there = {seed: metrics for seed, metrics in runs.items() if metrics}
        found.append({"system": name, "seeds": list(there), "metrics": list(there.values())})
    return found


def last_metrics(places: Places, system: str, seed: int | None) -> JsonObject:
    """Returns the held-out metrics of a finished run, without the prefix of their names; {} if it is not finished."""
    folder = places.model(system, seed)
    if not done.is_trained(places.budget(system), folder):
        return {}
    lines = [line for line in read_metrics(folder) if f"{PREFIX}loss" in line]
    last = lines[-1] if lines else {}
    return {name.removeprefix(PREFIX): value for name, value in last.items() if name.startswith(PREFIX)}


def measure_of(entries: Sequence[JsonObject]) -> str:
    """Returns the measure that all finished runs have, one of `MEASURES`."""
    runs = [metrics for entry in entries for metrics in entry["metrics"]]
    return next((name for name in MEASURES if all(name in metrics for metrics in runs)), MEASURES[-1])


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns the mean of values, at least one, and their standard deviation (n - 1); None of a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def minus_first(entries: Sequence[JsonObject], entry: JsonObject, measure: str) -> list[float]:
    """Returns the differences from the first system, of the runs with equal seeds."""
    first = dict(zip(entries[0]["seeds"], entries[0]["metrics"], strict=True))
    pairs = zip(entry["seeds"], entry["metrics"], strict=True)
    return [metrics[measure] - first[seed][measure] for seed, metrics in pairs if seed in first]
