"""The fine-tuning command: trains one run for each seed and fold, and writes a summary of all of them.

Open it to change how seeds and folds are run one after another, or what `summary.json` holds.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import jax
import ml_collections

from charlm import metrics
from charlm.config import to_json
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.called_as import as_typed
from charlm.core.durable import write_json, write_text
from charlm.core.memory import clear_exhaustion
from charlm.core.reading import read_json
from charlm.core.types import JsonObject
from charlm.families.source import load_source
from charlm.finetune.data import Examples, check_files, folds_of, read, set_aside
from charlm.finetune.fine_tuning import DEV, FOLD, RESULT_FILE, STATE_FOLDER, TEST, FineTuning, Stopped
from charlm.tasks.base import AnyTask
from charlm.tasks.create import task_of
from charlm.training import workdir as workdirs

log = logging.getLogger("charlm")

SUMMARY_FILE = "summary.json"
LONGEST_FOLD = 200  # bytes of a fold's name; file systems allow a folder 255
ALL_FOLDS = "all_folds"
DATA_FILE = "data.json"  # digests of the examples


def fine_tune(
    config: ml_collections.ConfigDict, workdir: str, profile: str = "", skip_damaged: bool = False
) -> JsonObject:
    """Fine-tunes as `config` says, or resumes what is found in `workdir`; returns the summary of all runs.

    The summary is {} if a signal stopped training.

    Args:
      profile: folder for traces, with a subfolder for each run if there are several; "": none.
      skip_damaged: as in `charlm.training.train.train`.

    Raises:
      ValueError: config, data, model or workdir are not usable, or training diverged.
    """
    folder = workdirs.folder_of(workdir)
    sizes = {name: config.data[name] for name in ("batch_size", "eval_batch_size", "max_length", "accumulation")}
    now = {name: f"data.{name} (now {size})" for name, size in sizes.items()}
    smaller = f"lower {now['batch_size']} or raise {now['accumulation']} where it trains, lower"
    smaller += f" {now['eval_batch_size']} where it predicts, or {now['max_length']}"
    try:
        with workdirs.opened(folder), clear_exhaustion(smaller):
            finished = hosts.from_primary((folder / SUMMARY_FILE).exists())
            workdirs.check_usable(folder, finished)
            return _fine_tune(config, folder, profile, skip_damaged)
    except Stopped:
        return {}


def _fine_tune(config: ml_collections.ConfigDict, folder: Path, profile: str, skip_damaged: bool) -> JsonObject:
    workdirs.check_same_config(config)
    begun = hosts.from_primary(_begun(folder))
    if begun:
        workdirs.check_same_run(config, folder)
    else:  # nothing to resume: the config of a run that kept nothing is replaced, but no other file of that name
        workdirs.saved_config(folder)
    check_files(config)
    source = load_source(config)
    task = task_of(config)
    examples = read(config, task)
    task.check_scores()
    log.info(
        "%s: %d examples to learn from, %d to choose by, %d to test; labels: %s",
        task.name, len(examples.train), len(examples.dev), len(examples.test), ", ".join(task.labels[:20]) or "none",
    )  # fmt: skip
    digests = _digests(examples)
    _check_same_data(digests, folder, bool(begun))
    runs = _runs(config, examples, task)
    _check_layout(folder, len(runs), begun)
    places = {name: folder / name if len(runs) > 1 else folder for name in runs}
    _check_source(config, places.values())
    parts = {name: set_aside(part, task, config.data.dev_share, seed) for name, (seed, part) in runs.items()}
    results = {}
    for name, (seed, _) in runs.items():
        place = places[name]
        place.mkdir(exist_ok=True)
        own = copy.deepcopy(task)
        own_profile = str(Path(profile) / name) if profile and len(runs) > 1 else profile
        run = FineTuning(config, seed, source, own, parts[name], place, own_profile)
        if not run.finished and hosts.is_primary():
            write_text(folder / workdirs.RUN_CONFIG_FILE, to_json(config))
            write_json(folder / DATA_FILE, digests)
        results[name] = run.run(skip_damaged)
    summary = _summary(results, task)
    if hosts.is_primary() and _read_summary(folder) != summary:
        write_json(folder / SUMMARY_FILE, summary)
    for part, scores in summary["scores"].items():
        if len(results) > 1:
            means = (f"{name} {value['mean']:.4f} +- {value['sd']:.4f}" for name, value in scores.items())
            log.info("%s, mean and standard deviation of %d runs: %s", part, len(results), "  ".join(means))
    if summary[ALL_FOLDS]:
        means = (f"{name} {value['mean']:.4f}" for name, value in summary[ALL_FOLDS].items())
        log.info("%s, all folds together: %s", TEST, "  ".join(means))
    _say_what_next(config, task, next(iter(places.values())))
    return summary


def _begun(folder: Path) -> list[str]:
    """Returns the names of the folders in a workdir in which a run has kept something; "": the workdir itself."""
    kept = lambda place: (
        (place / RESULT_FILE).exists()
        or any(checkpoints.complete_steps(place / name) for name in (STATE_FOLDER, checkpoints.FOLDER))
    )
    return sorted(place.name if place != folder else "" for place in (folder, *folder.glob("seed_*")) if kept(place))


def _check_layout(folder: Path, runs: int, begun: Sequence[str]) -> None:
    """Checks that a workdir whose single run has no folder of its own gets no others, nor the other way round.

    Raises:
      ValueError: it would, and would train anew beside what is there.
    """
    if begun and ("" in begun) != (runs == 1):
        there = "one run" if "" in begun else f"several runs ({', '.join(begun)})"
        raise ValueError(f"{folder} holds {there}, not {runs}: choose another --workdir")


def _say_what_next(config: ml_collections.ConfigDict, task: AnyTask, folder: Path) -> None:
    """Logs a command that uses a model of a finished run, and one that measures it under typos."""
    data = shlex.join(config.data.test or config.data.dev or ("FILE",))
    quoted = shlex.quote(str(folder))
    log.info("try it: %s", as_typed(task.use.format(workdir=quoted)))
    measuring = f"python -m charlm.robustness --models {quoted} --data {data} --out {quoted}_report"
    log.info("under typos: %s", as_typed(measuring))


def first_run(
    config: ml_collections.ConfigDict,
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]  # a class of C++, no stub
) -> tuple[FineTuning, int]:
    """Returns the first run of a config, which writes nothing until it is run, and how many runs there are.

    Args:
      devices: as in `FineTuning`.

    Raises:
      ValueError: config, data or model are not usable.
    """
    check_files(config)
    source, task = load_source(config), task_of(config)
    runs = _runs(config, read(config, task), task)
    seed, part = next(iter(runs.values()))
    part = set_aside(part, task, config.data.dev_share, seed)
    return FineTuning(config, seed, source, task, part, Path(), devices=devices), len(runs)


def _read_summary(folder: Path) -> JsonObject | None:
    try:
        return read_json(folder / SUMMARY_FILE)
    except (OSError, ValueError):
        return None


def _runs(config: ml_collections.ConfigDict, examples: Examples, task: AnyTask) -> dict[str, tuple[int, Examples]]:
    """Returns the seed and the examples of each run, by its name."""
    seeds = range(config.seed, config.seed + config.seeds)
    if not config.data.folds and not config.data.fold_column:
        return {f"seed_{seed}": (seed, examples) for seed in seeds}
    folds = folds_of(config, examples.train, task)
    if len(set(folds)) < 2:
        raise ValueError(f"data.fold_column={config.data.fold_column}: all rows are of one fold")
    runs = {}
    for seed in seeds:
        for fold in sorted(set(folds)):
            inside = [e for e, f in zip(examples.train, folds, strict=True) if f != fold]
            outside = [e for e, f in zip(examples.train, folds, strict=True) if f == fold]
            runs[f"seed_{seed}_fold_{_as_file_name(fold)}"] = (seed, Examples(inside, [], outside))
    return runs


def _as_file_name(fold: str) -> str:
    """Returns a fold's name without what no name of a folder may have; ValueError if it is too long for one."""
    name = fold.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    if len(os.fsencode(name)) > LONGEST_FOLD:
        shown = f"{fold[:40]!r}... of {len(fold)} characters"
        raise ValueError(f"data.fold_column: the fold {shown} is too long for the name of a folder")
    return name


def _summary(results: dict[str, JsonObject], task: AnyTask) -> JsonObject:
    """Returns all results, the mean and standard deviation of every score, and the scores of all folds together.

    For the scores of all folds, every example is predicted by the run that was not trained on it, and all predictions
    are scored at once; a mean over folds would give examples of small folds more weight. With several seeds, the mean
    and standard deviation of these scores are given.
    """
    scores: JsonObject = {}
    for part in (DEV, TEST):
        held = [result[part] for result in results.values() if part in result]
        names = [name for name in (held[0] if held else {}) if all(name in one for one in held)]
        if held:
            scores[part] = {name: _mean_and_sd([one[name] for one in held]) for name in names}
    return {"runs": results, "scores": scores, ALL_FOLDS: _all_folds(results, task)}


def _all_folds(results: dict[str, JsonObject], task: AnyTask) -> JsonObject:
    by_seed: dict[int, list[JsonObject]] = {}
    for result in results.values():
        if FOLD in result:
            by_seed.setdefault(result["seed"], []).append(result[FOLD])
    found = [task.scores_of_folds(folds) for folds in by_seed.values()]
    return {name: _mean_and_sd([one[name] for one in found]) for name in (found[0] if found else {})}


def _digests(examples: Examples) -> dict[str, str]:
    """Returns a digest of the examples of each part, independent of where their files are."""
    found = {}
    for name, part in examples._asdict().items():
        digest = hashlib.sha256()
        for example in part:
            digest.update(repr(example._replace(place="")).encode("utf-8", "backslashreplace"))
        found[name] = digest.hexdigest()
    return found


def _check_same_data(digests: dict[str, str], folder: Path, begun: bool) -> None:
    """Checks that all processes have the same examples, and that a run found in the folder had the same ones.

    Args:
      begun: whether that run has kept anything.

    Raises:
      ValueError: examples differ; names the parts.
    """
    first = hosts.from_primary(digests)
    other = [f"data.{name}" for name, digest in digests.items() if first[name] != digest]
    if hosts.total(len(other)):
        raise ValueError(
            f"not the examples of process 0: {', '.join(other)}" if other else "another process has other examples"
        )
    path = folder / DATA_FILE
    if not path.exists():
        return
    saved = read_json(path)
    if not isinstance(saved, dict):
        raise ValueError(f"{path} does not hold the digests of a run's examples: expected a JSON object")
    differing = [f"data.{name}" for name, digest in digests.items() if saved.get(name) != digest]
    if differing and begun:
        raise ValueError(
            f"{folder} holds a run on other examples: {', '.join(differing)} changed; choose another --workdir"
        )


def _check_source(config: ml_collections.ConfigDict, places: Collection[Path]) -> None:
    """Checks, before more is trained, that the runs so far started from what `init_from` holds; ValueError if not."""
    if all((place / RESULT_FILE).exists() for place in places):
        return
    for place in places:
        for folder in (place / STATE_FOLDER, place):
            workdirs.check_source_kept(config, folder)


def _mean_and_sd(values: list[float]) -> JsonObject:
    found = metrics.mean_and_sd(values)._asdict()
    return found | ({"sd": None} if len(values) == 1 else {})  # JSON has no NaN
