"""Reads off the logs of pre-training what a system has cost so far, and what it had learned by then.

Words and operations are those of the lines of metrics: the mean of a step, times the steps that were taken. Open it to
change what counts as cost.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

import ml_collections
import numpy as np

from charlm.core import checkpoint as checkpoints
from charlm.core.reading import read_object
from charlm.core.types import JsonObject
from charlm.league.config import is_trained
from charlm.league.places import Places
from charlm.league.plan import seeds_of
from charlm.training.goodput import account, read_starts
from charlm.training.progress import read_metrics

_SAME = ("config", "set", "start", "stage", "subwords", "pieces", "tune")  # keys of what differs in its budget alone


class _Log(NamedTuple):
    """What the metrics of a run say: after each reported step, the units and operations of all steps so far."""

    steps: list[int]
    units: list[float]
    flops: list[float]

    def at(self, step: float) -> tuple[float, float]:
        """Returns the units and operations up to a step; behind the last reported one, those of a mean step each."""
        scale = max(step / self.steps[-1], 1.0)
        inside = min(step, self.steps[-1])
        units, flops = (float(np.interp(inside, [0, *self.steps], [0.0, *sums])) for sums in (self.units, self.flops))
        return units * scale, flops * scale


def spent(places: Places, name: str, seed: int | None = None) -> JsonObject:
    """Returns what a run of a system has cost in pre-training so far; {} before its budget is measured."""
    budget = _budget(places, name)
    if not budget:
        return {}
    stages, root = _stages(places, name, seed), places.model(name, seed)
    found: JsonObject = {key: budget[key] for key in ("parameters", "corpus_words")}
    found |= {"words": None, "flops": None, "steps": None, "seconds": 0.0}
    for folder in stages or [root]:
        steps, units, flops = _taken(folder, budget["unit"])
        if not steps:
            continue
        found["flops"] = (found["flops"] or 0.0) + flops
        found["seconds"] += seconds_of(folder)
        if not stages or folder.name == budget["folder"]:
            found |= {"steps": steps, "words": units * budget["words_per_unit"]}
    return found


def spent_in_all(config: ml_collections.ConfigDict, places: Places, name: str) -> JsonObject:
    """Returns what the first run of a system has cost, and as words_all and flops_all with all that it starts from."""
    seed = seeds_of(config)[0]
    own = spent(places, name, seed)
    chain, at = [own], config.systems[name].start
    while at:
        chain.append(spent(places, at, seed))
        at = config.systems[at].start
    for key in ("words", "flops"):
        values = [one.get(key) for one in chain]
        known = [value for value in values if value is not None]
        own[f"{key}_all"] = sum(known) if len(known) == len(values) else None
    return own


def evaluations(config: ml_collections.ConfigDict, places: Places, name: str) -> list[JsonObject]:
    """Returns the evaluations on held-out text of the first run of a system; see `gathering.DESCRIPTION`.

    Bits are those of the characters that are masked (`TextObjective.masked`): as the run has measured them, or the loss
    of a masked subword, divided by the characters of a subword in training.
    """
    budget, seed, start = _budget(places, name), seeds_of(config)[0], config.systems[name].start
    before = spent_in_all(config, places, start) if start else {"words_all": 0.0, "flops_all": 0.0}
    if not budget or before.get("words_all") is None or before.get("flops_all") is None:
        return []
    folder = places.model(name, seed) / budget["folder"]
    stages = [stage for stage in _stages(places, name, seed) if stage.name < folder.name]
    earlier = before["flops_all"] + sum(_taken(stage, budget["unit"])[2] for stage in stages)
    log, found = _log(folder, budget["unit"]), []
    for line in read_metrics(folder):
        if "heldout_loss" not in line or not log.steps:
            continue
        units, flops = log.at(line["step"])
        found.append({
            "steps": int(line["step"]),
            "words": before["words_all"] + units * budget["words_per_unit"],
            "flops": earlier + flops,
            "bits_per_char": _bits(line, budget),
        })  # fmt: skip
    return found


def _bits(line: JsonObject, budget: JsonObject) -> float | None:
    masked = budget.get("masked")  # budgets that were measured earlier lack it
    if masked == "characters":
        return line.get("heldout_bits_per_char")
    if masked == "subwords" and "heldout_mlm_loss" in line:
        return line["heldout_mlm_loss"] / math.log(2) / budget["chars_per_unit"]
    return None


def budgets_of(config: ml_collections.ConfigDict) -> list[list[str]]:
    """Returns the ranked systems that differ in nothing but their share of the budget, the smallest share first."""
    groups: dict[str, list[str]] = {}
    for name, entry in config.systems.items():
        if entry.ranked and is_trained(entry):
            groups.setdefault(repr([entry[key] for key in _SAME]), []).append(name)
    by_share = lambda name: config.systems[name].share
    return [sorted(names, key=by_share) for names in groups.values() if len(set(map(by_share, names))) > 1]


def seconds_of(folder: Path) -> float:
    """Returns the seconds of the steps of a run that lasted; 0 if it has no log of starts."""
    starts = read_starts(folder)
    return account(starts, 0.0).lasted if starts else 0.0


def _budget(places: Places, name: str) -> JsonObject:
    try:
        return read_object(places.budget(name))
    except (OSError, ValueError):
        return {}


def _stages(places: Places, name: str, seed: int | None) -> list[Path]:
    """Returns the folders of the stages of a run; [] if it has none."""
    root = places.model(name, seed)
    return sorted(path for path in root.glob("*") if checkpoints.STAGE.fullmatch(path.name)) if root.is_dir() else []


def _taken(folder: Path, unit: str) -> tuple[int, float, float]:
    """Returns the steps of a run so far, and the units and operations of all of them."""
    log = _log(folder, unit)
    try:
        taken = int(checkpoints.find(folder).name)
    except ValueError:
        return 0, 0.0, 0.0
    return taken, *(log.at(taken) if log.steps else (0.0, 0.0))


def _log(folder: Path, unit: str) -> _Log:
    log, units, flops = _Log([], [], []), 0.0, 0.0
    for line in read_metrics(folder):
        values = {re.sub("^train_", "", name): value for name, value in line.items()}
        if "ms_per_step" in values:
            seconds = (line["step"] - (log.steps[-1] if log.steps else 0)) * values["ms_per_step"] / 1000
            units += seconds * values.get(f"{unit}_per_second", 0.0)
            flops += seconds * values.get("tflops_per_second", 0.0) * 1e12
            log.steps.append(int(line["step"]))
            log.units.append(units)
            log.flops.append(flops)
    return log
