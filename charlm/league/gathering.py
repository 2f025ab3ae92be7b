"""Gathers the results of the jobs of a league into one plain dict, from which the report is written.

`DESCRIPTION` explains its keys. Open it to add a figure to the report.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_collections
import numpy as np

from charlm.core import checkpoint as checkpoints
from charlm.core.reading import read_object
from charlm.core.types import JsonObject
from charlm.core.version import __version__
from charlm.league.config import claim_of
from charlm.league.events import read_events
from charlm.league.heldout import heldout_of
from charlm.league.jobs import Job
from charlm.league.places import Places
from charlm.league.plan import ranked, trained
from charlm.league.spending import budgets_of, evaluations, seconds_of, spent_in_all
from charlm.league.standing import CLEAN, NOISE, Draws, Estimate, answer, draws_of, over_tasks, ranks
from charlm.metrics.compare import Metric
from charlm.robustness.measure import RESULTS_FILE
from charlm.robustness.results import plain
from charlm.robustness.scoring import metric_of
from charlm.robustness.sums import Sums, read_sums
from charlm.tasks.create import from_settings

FORMAT = 1
DESCRIPTION = """
format, charlm   of the file, and the version of charlm
title, config    of the league
systems          name, title, ranked, behind, defence, same, start; of those that were trained words (seen by itself),
                 words_all (with those of the systems that it starts from), steps, flops and flops_all, seconds (of
                 steps that lasted, in pre-training), tuning_seconds, parameters (total, body, tables, head),
                 corpus_words
tasks            name, title, metric, examples
scores           task (null: the mean over tasks), system, noise ("": clean; "noise": mean over noises), value, low,
                 high, rank, seeds (value of each run; of single tasks)
differences      task (null: the mean over tasks), noise ("" and "noise"), a, b, value, low, high: a minus b
claims           text, verdict, value, low, high
budgets          lists of systems that differ in nothing but their share of the budget, the smallest share first
course           of each trained system: system, evaluations on held-out text in the course of pre-training (steps,
                 words and flops, with those of the systems that it starts from; bits_per_char of what is masked,
                 null where the loss counts anything else, or the budget was measured before charlm counted characters)
heldout          of a league without tasks: system, seeds, metrics (of each finished run, after its last step)
missing          names of jobs that are not done; the figures they would give are left out
events           the log of the league
"""


def gathered(config: ml_collections.ConfigDict, places: Places, jobs: Sequence[Job]) -> JsonObject:
    """Returns the results of what is done.

    Args:
      config: the resolved config of the league.
      jobs: all of its jobs.
    """
    tasks, drawn = [], {}
    per_seed: dict[tuple[str, str, str], list[float]] = {}
    for name, task in config.tasks.items():
        rows, metric, names = _rows(config, places, name)
        if metric is None:
            continue
        entry = {"name": name, "title": task.title or name, "metric": names}
        models = {one: own.behind for one, own in config.systems.items() if own.behind}
        drawn[name] = draws_of(rows, metric, list(config.robustness.noise), config.robustness.samples, models)
        tasks.append(entry | {"examples": len(next(iter(next(iter(rows.values())).values()))[0])})
        for system, conditions in rows.items():
            for condition, seeds in conditions.items():
                per_seed[name, system, condition] = [float(metric(seed.sum(0)[None])[0]) for seed in seeds]
    whole = len(drawn) == len(config.tasks)  # of fewer tasks there is no mean yet: it would be that of an easier league
    everywhere = {None: over_tasks(list(drawn.values()))} if len(drawn) > 1 and whole else {}
    standings = drawn | everywhere
    claims = [answer(claim_of(text, config), drawn, whole) for text in config.claims]
    found = {
        "format": FORMAT,
        "charlm": __version__,
        "title": config.title,
        "config": config.to_dict(),
        "systems": [_system(config, places, name) for name in config.systems],
        "tasks": tasks,
        "scores": [entry for name, draws in standings.items() for entry in _scores(name, draws, per_seed)],
        "differences": [entry for name, draws in standings.items() for entry in _differences(name, draws)],
        "claims": [{"text": one.claim.text, "verdict": one.verdict} | _interval(one.difference) for one in claims],
        "budgets": budgets_of(config),
        "course": [{"system": name, "evaluations": evaluations(config, places, name)} for name in trained(config)],
        "heldout": [] if config.tasks else heldout_of(config, places),
        "missing": [job.name for job in jobs if not job.finished()],
        "events": read_events(places.events),
    }
    return plain(found)


def _rows(
    config: ml_collections.ConfigDict, places: Places, task: str
) -> tuple[dict[str, dict[str, list[np.ndarray]]], Metric | None, str]:
    """Returns the sums of a task by system and condition, one for each seed, its metric, and the metric's name.

    The metric is None, and there are no sums, if no system is measured with every seed.
    """
    rows: dict[str, dict[str, list[np.ndarray]]] = {}
    metric, named = None, ""
    for system in ranked(config):
        entry = config.systems[system]
        for seed in config.tuning.seeds:
            folder = places.measured(task, entry.behind or system, seed)
            for one in _sums(folder, entry.defence):
                if one.spec not in (CLEAN, *config.robustness.noise):
                    continue
                rows.setdefault(system, {}).setdefault(one.spec, []).append(one.rows)
                if metric is None:
                    checkpoint = checkpoints.find(places.tuned(task, entry.behind or system, seed))
                    settings = from_settings(checkpoints.read_metadata(checkpoint)["task"])
                    metric, named = metric_of(settings, one.kind), settings.metric
    every = len(config.tuning.seeds)  # a system of fewer runs than the others is left out until it has them all
    full = {name: {at: runs for at, runs in own.items() if len(runs) == every} for name, own in rows.items()}
    rows = {name: own for name, own in full.items() if own}
    return rows, metric if rows else None, named


def _sums(folder: Path, defence: str) -> list[Sums]:
    """Returns the sums of a model behind a defence; [] if they are not there."""
    try:
        models = {entry["name"]: entry["defence"] for entry in read_object(folder / RESULTS_FILE)["models"]}
        return [one for one in read_sums(folder) if models.get(one.model) == defence]
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return []


def _scores(task: str | None, draws: Draws, per_seed: Mapping[tuple[str, str, str], list[float]]) -> list[JsonObject]:
    conditions = list(dict.fromkeys(condition for _, condition in draws.values))
    found = []
    for condition in sorted(conditions, key=lambda one: (one != CLEAN, one != NOISE)):
        places = ranks(draws, condition)
        for system in places:
            entry = {"task": task, "system": system, "noise": condition, "rank": places[system]}
            entry |= _interval(draws.score(system, condition))
            if task is not None and condition != NOISE:
                entry["seeds"] = per_seed[task, system, condition]
            found.append(entry)
    return found


def _differences(task: str | None, draws: Draws) -> list[JsonObject]:
    found = []
    for condition in (CLEAN, NOISE):
        there = [system for system in draws.systems() if draws.has(system, condition)]
        for place, a in enumerate(there):
            for b in there[place + 1 :]:
                named = {"task": task, "noise": condition, "a": a, "b": b}
                found.append(named | _interval(draws.difference(a, b, condition)))
    return found


def _interval(found: Estimate | None) -> JsonObject:
    return dict.fromkeys(("value", "low", "high")) if found is None else found._asdict()


def _system(config: ml_collections.ConfigDict, places: Places, name: str) -> JsonObject:
    entry = config.systems[name]
    said = {"name": name, "title": entry.title or name, "ranked": bool(entry.behind or entry.ranked)}
    said |= {key: entry[key] for key in ("behind", "defence", "same", "start")}
    if entry.behind:
        return said
    own = spent_in_all(config, places, entry.same or name)
    if entry.same:  # what it has cost itself is its fine-tuning alone
        own |= {"words": 0.0, "flops": 0.0, "steps": 0, "seconds": 0.0} if own.get("words") is not None else {}
    tuned = [places.tuned(task, name, seed) for task in config.tasks for seed in config.tuning.seeds]
    own["tuning_seconds"] = sum(seconds_of(folder) for folder in tuned)
    return said | own
