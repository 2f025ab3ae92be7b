"""What a model card says, as plain values: from the checkpoint, the files of its run, a report, and the maker's words.

Open it to add a fact to the cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import jax

from charlm.convert.model import Model
from charlm.core import checkpoint as checkpoints
from charlm.core.metric_writer import METRICS_FILE, parse_line
from charlm.core.nearest import did_you_mean
from charlm.core.reading import read_object, read_text
from charlm.core.types import Json, JsonObject
from charlm.text.noise.levels import CLEAN
from charlm.training.goodput import RunStart, account, read_starts

RESULT_FILE = "result.json"  # of a fine-tuning run: the scores of its best epoch
HELD_OUT = "heldout_"  # how the names of what pre-training measures on held-out text begin
MAIN = ("bits_per_char", "loss")  # what tells most about a pre-trained model: the first of these that it has

_WORDS, _TEXTS = "a text", "a list of texts"
_ABOUT = {  # what the file of the maker's words may hold
    "title": _WORDS, "license": _WORDS, "language": _TEXTS, "limits": _TEXTS, "corpora": "an object",
    "tags": _TEXTS, "datasets": _TEXTS, "base_model": _WORDS, "made": _WORDS,
}  # fmt: skip
_OPTIONAL = ("tags", "datasets", "base_model", "made")
_CORPUS = ("name", "license", "url")


def read_about(path: str) -> JsonObject:
    """Returns what the maker of a model says about it; the text of `charlm.ship.__main__` explains the keys.

    Raises:
      ValueError: the file cannot be read, a key is missing, unknown or of another type; names it.
    """
    about = read_object(path)
    for name, value in about.items():
        if name not in _ABOUT:
            raise ValueError(f"{path}: unknown key {name!r}{did_you_mean(name, _ABOUT)}")
        if not _fits(value, _ABOUT[name]):
            raise ValueError(f"{path}: {name}: expected {_ABOUT[name]}")
    if missing := [name for name in _ABOUT if name not in about and name not in _OPTIONAL]:
        raise ValueError(f"{path}: {', '.join(missing)} missing")
    for corpus, entry in about["corpora"].items():
        fits = isinstance(entry, dict) and all(isinstance(entry.get(name, ""), str) for name in _CORPUS)
        if not (fits and {"name", "license"} <= entry.keys() <= set(_CORPUS)):
            raise ValueError(f"{path}: corpora: {corpus}: expected name and license, and perhaps url")
    return about


def _fits(value: Json, kind: str) -> bool:
    if kind == _TEXTS:
        return isinstance(value, list) and bool(value) and all(_fits(one, _WORDS) for one in value)
    return isinstance(value, str) and bool(value.strip()) if kind == _WORDS else isinstance(value, dict)


def of_model(model: Model, kind: str, head: str, dtype: str) -> JsonObject:
    """Returns kind (the title of its family), task, head, labels, number of parameters and dtype of a model."""
    task = model.metadata.get("task") or {}
    return {
        "kind": kind,
        "task": task.get("name") or head.replace("_", " "),
        "head": head,
        "labels": list(task.get("labels") or ()),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model.params)),
        "dtype": dtype,
    }


def of_rest(elsewhere: Mapping[str, Json]) -> JsonObject:
    """Returns how many parameters lie in another package, and the name to install it by; of what the metadata say."""
    return {name: elsewhere[name] for name in ("parameters", "install")}


def of_run(checkpoint: Path, metadata: Mapping[str, Json], about: Mapping[str, Json]) -> JsonObject:
    """Returns what is known of the training: data with licences, steps, units of text read, hours; and `about`.

    Raises:
      ValueError: `about` says nothing about a corpus of the run, or about one that the run did not read.
    """
    config = metadata.get("fine_tuning") or metadata.get("config") or {}
    names = [Path(spec).name for spec in config.get("data", {}).get("train") or ()]
    words = [None] * len(names) if "fine_tuning" in metadata else _words(metadata, len(names))
    if missing := [name for name in names if name not in about["corpora"]]:
        raise ValueError(f"--about: corpora: no word about {', '.join(missing)}, which the model was trained on")
    earlier = [name for name in about["corpora"] if name not in names]
    if earlier and "made" not in about:  # which tells of the runs before this one
        raise ValueError(f"--about: corpora: the model was not trained on {', '.join(earlier)}")
    counted = [*zip(names, words, strict=True), *((name, None) for name in earlier)]
    corpora = [{"file": name, **about["corpora"][name], "words": count} for name, count in counted]
    started = (metadata.get("started_from") or {}).get("init_from", "")
    base = about.get("base_model") or (Path(started).name if started else "")
    return dict(about) | {"corpora": corpora, "base_model": base, "training": _training(checkpoint)}


def _words(metadata: Mapping[str, Json], count: int) -> list[int | None]:
    """Returns the words of each training corpus, as far as the checkpoint knows them."""
    known = metadata.get("train_text") or []
    return [words for _, words in known] if len(known) == count else [None] * count


def _training(checkpoint: Path) -> JsonObject:
    """Returns steps, hours and units of text read until a checkpoint; {} for one that no run wrote."""
    if not checkpoint.name.isdigit():
        return {}
    folder, step = _run_of(checkpoint), int(checkpoint.name)
    lines = [line for line in _metrics(folder) if line["step"] <= step]
    found: JsonObject = {"steps": step}
    if starts := read_starts(folder):
        found["hours"] = round(account([_until(start, step) for start in starts], 0.0).lasted / 3600, 2)
    read: dict[str, float] = {}
    before = 0
    for line in lines:
        speeds = {n: v for n, v in line.items() if re.fullmatch("(train_)?[a-z]+_per_second", n) and "flops" not in n}
        pace = line.get("ms_per_step", line.get("train_ms_per_step"))
        if not speeds or pace is None:
            continue
        for name, speed in speeds.items():
            unit = name.removeprefix("train_").removesuffix("_per_second")
            read[unit] = read.get(unit, 0.0) + speed * pace / 1000 * (line["step"] - before)
        before = line["step"]
    return found | {"read": {unit: round(count) for unit, count in read.items()}}


def _until(start: RunStart, step: int) -> RunStart:
    """Returns a start of a run without what came after a step."""
    kept = sum(one <= step for one in start.steps)
    return start._replace(steps=start.steps[:kept], seconds=start.seconds[:kept])


def _run_of(checkpoint: Path) -> Path:
    """Returns the workdir of the run that wrote a checkpoint."""
    return checkpoint.parents[1] if checkpoint.parent.name == checkpoints.FOLDER else checkpoint.parent


def _metrics(folder: Path) -> list[dict[str, float]]:
    """Returns the lines of a run's metrics; [] if it kept none."""
    path = folder / METRICS_FILE
    found = [parse_line(line) for line in read_text(path).splitlines()] if path.is_file() else []
    return [line for line in found if line is not None]


def scores_of(checkpoint: Path, metadata: Mapping[str, Json], report: str) -> JsonObject:
    """Returns `metric`, the name of the main score, and `scores`: metric, value, data and noise of each.

    Args:
      report: `report.json` of a robustness report, or of one on retrieval or on gaps; "": what the run itself measured
        of this step, if it did. Below the scores of a cloze test stand those, too.

    Raises:
      ValueError: the report is damaged, or the model is not in it.
    """
    if report:
        results = read_object(report)
        known = _reported(checkpoint, report, results)
        own = _of_run(checkpoint, metadata)["scores"] if results.get("task") == "cloze" else []
        return known | {"scores": [*known["scores"], *own]}
    return _of_run(checkpoint, metadata)


def _of_run(checkpoint: Path, metadata: Mapping[str, Json]) -> JsonObject:
    """Returns what the run itself measured of a checkpoint, in the form of `scores_of`."""
    found: dict[str, float] = {}
    data = ""
    if not checkpoint.name.isdigit():
        return {"metric": "", "scores": []}
    folder, step = _run_of(checkpoint), int(checkpoint.name)
    if "fine_tuning" in metadata:
        result = read_object(folder / RESULT_FILE) if (folder / RESULT_FILE).is_file() else {}
        if result.get("step") == step:
            part = "test" if "test" in result else "dev"
            found, data = result.get(part) or {}, part
    else:
        for line in _metrics(folder):
            if line["step"] == step and any(name.startswith(HELD_OUT) for name in line):
                found = {n.removeprefix(HELD_OUT): v for n, v in line.items() if n.startswith(HELD_OUT)}
        found.pop("words", None)
        data = "held-out text"
    scores = [{"metric": name, "value": value, "data": data, "noise": ""} for name, value in found.items()]
    main = next((name for name in MAIN if name in found), next(iter(found), ""))
    return {"metric": main, "scores": scores}


def _reported(checkpoint: Path, report: str, results: JsonObject) -> JsonObject:
    """Returns the scores of a model in a report, on clean text and under each noise."""
    of_systems = "systems" in results  # those of `charlm.metrics.systems`
    listed, path = ("systems", "model") if of_systems else ("models", "path")
    try:
        metric = results["metric"]
        plain = [one for one in results[listed] if not one["defence"]]
        places = {_run_of(checkpoint), checkpoint}
        own = [one for one in plain if Path(one[path]).absolute() in places]
        if not own and len(plain) == 1 and Path(plain[0][path]).name in {place.name for place in places}:
            own = plain  # measured where the run was before
        if len(own) != 1:
            raise ValueError(f"--report={report}: it measures {len(plain)} models, and not this one: {checkpoint}")
        name = own[0]["name"]
        if of_systems:
            return _of_system(results, name, metric)
        data = ", ".join(Path(path).name for path in results["settings"]["data"])
        scores = [(metric_, value, "") for metric_, value in results["clean"][name].items()]
        scores += [
            (metric, one["scores"][metric]["mean"], one["spec"])
            for one in results["noise"]
            if one["model"] == name and one["kind"] is not None and one["level"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"--report={report}: expected a report of charlm.robustness, charlm.evaluate_retrieval or "
            f"charlm.evaluate_cloze: {error!r}"
        ) from error
    return {
        "metric": metric,
        "scores": [{"metric": m, "value": value, "data": data, "noise": noise} for m, value, noise in scores],
    }


def _of_system(results: JsonObject, system: str, metric: str) -> JsonObject:
    """Returns the scores of a system in a report on systems: all of them clean, the main one under each noise."""
    asked = results["settings"]
    queries = asked.get("intents", [])[1:]  # earlier reports have no intents
    files = asked["data"] if "data" in asked else queries or asked["squad"] or [asked["beir"]]
    data = ", ".join(Path(path).name for path in files)
    own = [one | {"noise": "" if one["noise"] == CLEAN else one["noise"]} for one in results["scores"]]
    scores = [
        {"metric": one["score"], "value": one["value"], "data": data, "noise": one["noise"]}
        for one in own
        if one["system"] == system and (not one["noise"] or one["score"] == metric)
    ]
    return {"metric": metric, "scores": scores}
