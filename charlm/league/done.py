"""Tells by the results themselves whether a job of a league is done: no marks are kept that could say otherwise.

Open it when a job runs again that you think is done, or does not run that you think is not.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from charlm.core import checkpoint as checkpoints
from charlm.core.reading import check_zip, read_object
from charlm.core.types import JsonObject
from charlm.finetune.run import SUMMARY_FILE
from charlm.league.split import LEARNED, MEASURED, part_file
from charlm.robustness.measure import RESULTS_FILE
from charlm.robustness.sums import SUMS_FILE
from charlm.text.subwords import SubwordTokenizer


class Measuring(NamedTuple):
    """What a robustness report is asked for.

    Attributes:
      data: its files.
      noise: the noises, with their rates.
      draws: draws of each noise.
      examples: number of examples; 0: all.
      defences: what the model is measured behind, too.
    """

    data: tuple[str, ...]
    noise: tuple[str, ...]
    draws: int
    examples: int
    defences: tuple[str, ...]


def part_files(files: Sequence[str], folder: Path, part: str) -> tuple[str, ...]:
    """Returns where a part of the examples of each file is written."""
    return tuple(str(part_file(file, number, folder, part)) for number, file in enumerate(files))


def is_split(files: Sequence[str], folder: Path) -> bool:
    """Says whether both parts of all files are written."""
    return all(Path(path).is_file() for part in (LEARNED, MEASURED) for path in part_files(files, folder, part))


def has_subwords(folder: Path) -> bool:
    """Says whether a folder holds a tokenizer."""
    try:
        SubwordTokenizer.load(folder)
    except ValueError:
        return False
    return True


def has_budget(path: Path) -> bool:
    """Says whether the measured budget of a system is there."""
    return isinstance(_object(path).get("settings"), dict)


def is_trained(budget: Path, model: Path) -> bool:
    """Says whether a run of pre-training, or its last stage, has a whole checkpoint of its last step."""
    asked = _object(budget)
    try:
        newest, stage = checkpoints.find(model), asked["last_stage"]
        return int(newest.name) >= asked["last_steps"] and stage in ("", newest.parents[1].name)
    except (ValueError, KeyError):
        return False


def is_tuned(folder: Path) -> bool:
    """Says whether a run of fine-tuning has its scores, and a checkpoint."""
    runs = _object(folder / SUMMARY_FILE).get("runs")
    if not isinstance(runs, dict) or not runs:
        return False
    try:
        checkpoints.find(folder)
    except ValueError:
        return False
    return all(isinstance(run, dict) and run.get("dev") for run in runs.values())


def is_measured(folder: Path, wanted: Measuring) -> bool:
    """Says whether a robustness report has all that is asked for, and the sums of each example."""
    found = _object(folder / RESULTS_FILE)
    settings, clean = found.get("settings") or {}, found.get("clean") or {}
    try:
        check_zip(folder / SUMS_FILE)
        there = {entry["defence"] for entry in found["models"] if entry["name"] in clean}
        specs = {entry["spec"] for entry in found["noise"]}
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return False
    same = tuple(settings.get("data", ())) == wanted.data
    same = same and (settings.get("seeds"), settings.get("examples")) == (wanted.draws, wanted.examples)
    return same and _all_in(wanted.noise, specs) and _all_in(("", *wanted.defences), there)


def _all_in(wanted: Iterable[str], there: set[str]) -> bool:
    return set(wanted) <= there


def _object(path: Path) -> JsonObject:
    """Returns the object of a JSON file; {} if it is missing or damaged."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return {}
