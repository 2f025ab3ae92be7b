"""Turns a league into jobs: commands of charlm, each with what it needs first and how it tells that it is done.

Open it to add a kind of job, or to change the command of one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import ml_collections

from charlm.core.reading import read_object
from charlm.league import done
from charlm.league.config import is_trained, tasks_of
from charlm.league.jobs import Job
from charlm.league.places import Places
from charlm.league.settings import table_of
from charlm.league.split import LEARNED, MEASURED

SPLIT, SUBWORDS, BUDGET, TRAIN, TUNE, MEASURE = "split", "subwords", "budget", "train", "tune", "measure"


def jobs_of(config: ml_collections.ConfigDict, places: Places) -> list[Job]:
    """Returns the jobs of a league in an order in which each comes after those that it needs.

    Args:
      config: a config that `charlm.league.config.resolved` returned.
    """
    return [
        *_splits(config, places),
        *_systems(config, places),
        *_tuning(config, places),
    ]


def trained(config: ml_collections.ConfigDict) -> list[str]:
    """Returns the systems that are trained, each after the one that it starts from."""
    found: list[str] = []

    def add(name: str) -> None:
        entry = config.systems[name]
        if entry.start:
            add(entry.start)
        if name not in found:
            found.append(name)

    for name, entry in config.systems.items():
        if is_trained(entry):
            add(name)
    return found


def tuned(config: ml_collections.ConfigDict) -> dict[str, str]:
    """Returns the systems that are fine-tuned, and of each the system whose pre-trained model it starts from."""
    own = {name: name for name in trained(config) if config.systems[name].ranked}
    return own | {name: entry.same for name, entry in config.systems.items() if entry.same}


def seeds_of(config: ml_collections.ConfigDict) -> list[int | None]:
    """Returns the seeds of the runs of pre-training of each system; None: the seed of its config."""
    runs = config.pretraining.runs
    return [None] if runs == 1 else list(range(runs))


def ranked(config: ml_collections.ConfigDict) -> list[str]:
    """Returns the systems that the report ranks."""
    return [name for name, entry in config.systems.items() if entry.behind or entry.ranked]


def defences(config: ml_collections.ConfigDict, system: str) -> list[str]:
    """Returns the defences behind which a trained system is measured, each once."""
    return list(dict.fromkeys(entry.defence for entry in config.systems.values() if entry.behind == system))


def is_split(task: ml_collections.ConfigDict) -> bool:
    """Says whether a task measures on a part of the files that it learns from."""
    return not task.measure


def measured_files(task: ml_collections.ConfigDict, folder: Path) -> tuple[str, ...]:
    """Returns the files that a task is measured on; `folder` is that of its parts."""
    return done.part_files(task.train, folder, MEASURED) if is_split(task) else tuple(task.measure)


def _splits(config: ml_collections.ConfigDict, places: Places) -> Iterable[Job]:
    for name, task in config.tasks.items():
        if is_split(task):
            out = places.parts(name)
            told = zip(("--table", "--header"), table_of(task), strict=True)
            flags = [flag for flag, holds in told if holds]
            line = _module("split", "--every", task.measure_every, *flags, "--out", out, "--files", *task.train)
            yield Job(
                f"{SPLIT}/{name}", (), lambda line=line: line, lambda t=task, out=out: done.is_split(t.train, out)
            )


def _systems(config: ml_collections.ConfigDict, places: Places) -> Iterable[Job]:
    for name in trained(config):
        entry = config.systems[name]
        seeds = seeds_of(config)
        needs = [_training(entry.start, seeds[0])] if entry.start else []
        flags = _flags(config, entry, places, name)
        if entry.subwords:
            out = places.subwords(name)
            line = _module("subwords", *flags, f"--kind={entry.subwords}", f"--pieces={entry.pieces}", f"--out={out}")
            job = f"{SUBWORDS}/{name}"
            yield Job(job, (), lambda line=line: line, lambda out=out: done.has_subwords(out))
            needs.append(job)
            flags.append(f"--config.text.tokenizer={out}")
        started = {seed: _start(places, entry, seed) for seed in seeds}
        budget, measured = places.budget(name), [*flags, *started[seeds[0]]]
        yield Job(
            f"{BUDGET}/{name}",
            tuple(needs),
            lambda flags=measured, entry=entry, out=budget: _budget(config, entry, flags, out),
            lambda out=budget: done.has_budget(out),
        )
        for seed in seeds:
            own = [*flags, *started[seed], *([] if seed is None else [f"--config.seed={seed}"])]
            model, before = places.model(name, seed), [_training(entry.start, seed)] if entry.start and seed else []
            yield Job(
                _training(name, seed),
                (f"{BUDGET}/{name}", *before),
                lambda flags=own, out=budget, model=model: _train(flags, out, model),
                lambda out=budget, model=model: done.is_trained(out, model),
            )


def _start(places: Places, entry: ml_collections.ConfigDict, seed: int | None) -> list[str]:
    """Returns the flag that names the model which a run starts from; [] if it starts from nothing."""
    return [f"--config.init_from={places.model(entry.start, seed)}"] if entry.start else []


def _training(system: str, seed: int | None) -> str:
    """Returns the name of the job that pre-trains a system."""
    return f"{TRAIN}/{system}" + ("" if seed is None else f"/{seed}")


def _flags(config: ml_collections.ConfigDict, entry: ml_collections.ConfigDict, places: Places, name: str) -> list[str]:
    """Returns the flags of a pre-training run but for those that follow from the budget."""
    corpora = config.corpora
    keys = {"data.train": ",".join(corpora.train), "data.heldout_fraction": corpora.heldout_fraction}
    if corpora.heldout:
        keys["data.heldout"] = ",".join(corpora.heldout)
    flags = [f"--config={entry.config}", *(f"--config.{key}={value}" for key, value in keys.items())]
    return flags + [f"--config.{setting}" for setting in entry["set"]]


def _budget(
    config: ml_collections.ConfigDict, entry: ml_collections.ConfigDict, flags: Sequence[str], out: Path
) -> list[str]:
    cfg = config.budget
    own = {
        "words": max(1, round(cfg.words * entry.share)), "flops": cfg.flops * entry.share,
        "splitter": config.corpora.splitter, "batches": cfg.batches,
        "stage": entry.stage, "warmup_share": cfg.warmup_share, "evaluations": cfg.evaluations,
        "checkpoints": cfg.checkpoints, "reports": cfg.reports, "out": out,
    }  # fmt: skip
    return _module("budget", *flags, *(f"--{name}={value}" for name, value in own.items()))


def _train(flags: Sequence[str], budget: Path, model: Path) -> list[str]:
    found = read_object(budget)
    given = {flag.partition("=")[0].removeprefix("--config.") for flag in flags}  # what the config sets itself stays
    keys = [key for key in found["settings"] if key not in given or key == found["steps_key"]]
    derived = [f"--config.{key}={found['settings'][key]}" for key in keys]
    return _python("charlm.main", *flags, *derived, f"--workdir={model}")


def _tuning(config: ml_collections.ConfigDict, places: Places) -> Iterable[Job]:
    for task_name, task in config.tasks.items():
        needs = (f"{SPLIT}/{task_name}",) if is_split(task) else ()
        parts = places.parts(task_name)
        learned = done.part_files(task.train, parts, LEARNED) if is_split(task) else task.train
        for name, model in tuned(config).items():
            for seed in config.tuning.seeds if task_name in tasks_of(config, name) else ():
                out = places.tuned(task_name, name, seed)
                keys = {"init_from": places.model(model), "seed": seed, "data.train": ",".join(learned)}
                keys |= {"data.dev": ",".join(task.dev)} if task.dev else {}
                flags = [f"--config={task.config}", *(f"--config.{key}={value}" for key, value in keys.items())]
                flags += [f"--config.{setting}" for setting in (*task["set"], *config.systems[name].tune)]
                line = _python("charlm.main", *flags, f"--workdir={out}")
                job = f"{TUNE}/{task_name}/{name}/{seed}"
                yield Job(
                    job,
                    (f"{TRAIN}/{model}", *needs),
                    lambda line=line: line,
                    lambda out=out: done.is_tuned(out),
                )
                yield _measuring(config, places, task_name, name, seed, job)


def _measuring(
    config: ml_collections.ConfigDict, places: Places, task_name: str, name: str, seed: int, needs: str
) -> Job:
    cfg, task = config.robustness, config.tasks[task_name]
    out = places.measured(task_name, name, seed)
    behind = defences(config, name)
    files = measured_files(task, places.parts(task_name))
    model = places.tuned(task_name, name, seed)
    options = ["--models", model, "--data", *files, "--noise", *cfg.noise, "--levels", "0", "--seeds", cfg.draws]
    options += ["--examples", cfg.examples, "--batch-size", cfg.batch_size, "--samples", cfg.samples, "--out", out]
    options += ["--misspellings", cfg.misspellings] if cfg.misspellings else []
    options += ["--defence", *behind] if behind else []
    line = _python("charlm.robustness", *options)
    wanted = done.Measuring(files, tuple(cfg.noise), cfg.draws, cfg.examples, tuple(behind))
    return Job(f"{MEASURE}/{task_name}/{name}/{seed}", (needs,), lambda: line, lambda: done.is_measured(out, wanted))


def _module(name: str, *arguments: object) -> list[str]:
    return _python(f"charlm.league.{name}", *arguments)


def _python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]
