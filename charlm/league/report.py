"""Says what the report of a league says: its sections and tables, for the writers of Markdown and HTML.

Scores are in hundredths. Open it to add a section.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from charlm.core.types import JsonObject
from charlm.league.events import BEGIN
from charlm.league.gathering import missing_lines
from charlm.league.heldout import measure_of, minus_first, spread
from charlm.league.standing import CLEAN, NOISE, UNKNOWN

NOTHING = "–"  # the cell of a value that was not measured
INTERVALS = (
    "Square brackets hold 95 % intervals, of a bootstrap over examples and runs of fine-tuning together: each resample "
    "draws the examples anew, the same for all systems, and of each system its runs. They do not cover the luck of "
    "pre-training, of which there is one run a system, and as few runs spread less than many, they are somewhat narrow."
)
RANKS = (
    "A rank is one more than the number of systems that are ahead beyond doubt, that is, with an interval of the "
    "paired difference above 0; systems that cannot be told apart from the best share rank 1."
)


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    Attributes:
      caption: explains the numbers.
      header: the header of each column.
      rows: the cells of each row.
      texts: number of columns on the left that hold text; the others hold numbers.
      heat: of each cell behind the first column a shade from 0 (worst) to 9, -1: none; (): no shades.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    heat: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Folded:
    """Lines that are shown when they are asked for."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it; strings are paragraphs."""

    title: str
    blocks: list[str | Table | Folded] = field(default_factory=list)


def sections_of(results: JsonObject) -> list[Section]:
    """Returns the sections of the report; those without any figure are left out.

    Args:
      results: as `charlm.league.gathering.gathered` returns them.
    """
    view = View(results)
    found = [
        _standing(view),
        _heldout(view),
        _claims(view),
        _cost(view),
        *_noises(view),
        _differences(view),
        _how(view),
    ]
    return [section for section in found if section.blocks]


class View:
    """The results, by what they are looked up by."""

    def __init__(self, results: JsonObject) -> None:
        self.results = results
        self.tasks: dict[str | None, JsonObject] = {task["name"]: task for task in results["tasks"]}
        self.systems: dict[str, JsonObject] = {one["name"]: one for one in results["systems"]}
        self.ranked = [name for name, one in self.systems.items() if one["ranked"]]
        self.scores = {(one["task"], one["system"], one["noise"]): one for one in results["scores"]}
        self.columns: list[str | None] = [*self.tasks, *([None] if len(self.tasks) > 1 else [])]

    def title(self, task: str | None) -> str:
        """Returns the title of a task; None: the mean over tasks."""
        return "mean" if task is None else self.tasks[task]["title"]

    def named(self, system: str) -> str:
        """Returns the title of a system."""
        return self.systems[system]["title"]

    def cell(self, task: str | None, system: str, noise: str, ranked: bool = True) -> str:
        """Returns a score with interval and rank."""
        found = self.scores.get((task, system, noise))
        if found is None or found["value"] is None:
            return NOTHING
        rank = f" ({found['rank']})" if ranked else ""
        return f"{with_interval(found)}{rank}"

    def measured(self, noise: str) -> list[str]:
        """Returns the ranked systems with any score under a noise, the best mean first."""
        there = [name for name in self.ranked if any((task, name, noise) in self.scores for task in self.columns)]
        mean = lambda name: [
            self.scores[task, name, noise]["value"] or 0.0 for task in self.tasks if (task, name, noise) in self.scores
        ]
        return sorted(there, key=lambda name: (-len(mean(name)), -sum(mean(name)) / max(len(mean(name)), 1)))


def with_interval(found: Mapping[str, float | None], signed: bool = False) -> str:
    """Returns "93.4 [92.8, 94.0]" for a value with its interval."""
    if found["value"] is None:
        return NOTHING
    sign = "+" if signed else ""
    value, low, high = (f"{100 * (found[key] or 0.0):{sign}.1f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _standing(view: View) -> Section:
    section = Section("Standing")
    if missing := view.results["missing"]:
        section.blocks.append(
            f"This report is partial: {len(missing)} jobs are not done, and their figures are left out. "
            + "; ".join(missing_lines(missing))
        )
    for noise, what in ((CLEAN, "on clean text"), (NOISE, "under noise, the mean over all kinds")):
        rows = [
            [view.named(name), *(view.cell(task, name, noise) for task in view.columns)]
            for name in view.measured(noise)
        ]
        if rows:
            head = ["system", *map(view.title, view.columns)]
            metrics = ", ".join(f"{task['title']}: {task['metric']}" for task in view.tasks.values())
            caption = f"Scores {what}, in hundredths, with their intervals and, in round brackets, ranks ({metrics})."
            section.blocks.append(Table(caption, head, rows))
    if len(section.blocks) > bool(view.results["missing"]):
        section.blocks.extend([INTERVALS, RANKS])
    return section


def _heldout(view: View) -> Section:
    """Returns the losses on held-out text of a league without tasks, each over the seeds of pre-training."""
    entries = [entry for entry in view.results.get("heldout", []) if entry["metrics"]]
    if not entries:
        return Section("Held-out text")
    measure, accuracies = measure_of(entries), sorted(name for name in entries[0]["metrics"][0] if "accuracy" in name)
    rows = []
    for entry in entries:
        one, runs = view.systems[entry["system"]], entry["metrics"]
        apart = minus_first(entries, entry, measure) if entry is not entries[0] else []
        rows.append([
            one["title"],
            _spread([metrics[measure] for metrics in runs], 4),
            _spread(apart, 4, signed=True) if apart else NOTHING,
            *(_spread([100 * metrics[name] for metrics in runs if name in metrics], 2) for name in accuracies),
            str(len(runs)), _count(one.get("steps")), _flops(one.get("flops")), _count(one.get("words")),
        ])  # fmt: skip
    first = view.named(entries[0]["system"])
    caption = (
        f"{measure} on held-out text after the last step, less is better: the mean over runs of different seeds and, "
        f"behind ±, their standard deviation; the difference from {first}, of runs with equal seeds, likewise; "
        "accuracies in hundredths; steps, operations and words of the first run."
    )
    head = ["system", measure, f"minus {first}", *accuracies, "runs", "steps", "FLOPs", "words"]
    return Section("Held-out text", [Table(caption, head, rows)])


def _spread(values: Sequence[float], digits: int, signed: bool = False) -> str:
    """Returns "3.4120 ± 0.0100" for values; a single one stands alone."""
    if not values:
        return NOTHING
    mean, apart = spread(values)
    sign = "+" if signed else ""
    return f"{mean:{sign}.{digits}f}" + ("" if apart is None else f" ± {apart:.{digits}f}")


def _claims(view: View) -> Section:
    rows = [
        [one["text"], one["verdict"], NOTHING if one["verdict"] == UNKNOWN else with_interval(one, signed=True)]
        for one in view.results["claims"]
    ]
    if not rows:
        return Section("Claims")
    caption = (
        "A claim holds if the whole interval of the difference is above what it says, does not hold if it is below, "
        "and is undecided otherwise."
    )
    return Section("Claims", [Table(caption, ["claim", "answer", "difference"], rows, texts=2)])


def _cost(view: View) -> Section:
    rows = []
    for one in view.systems.values():
        if one["behind"]:
            continue
        sizes = one.get("parameters") or {}
        rows.append([
            one["title"] if one["ranked"] else f"{one['title']} (only a start for others)",
            view.named(one["start"]) if one["start"] else "nothing",
            *(_count(sizes.get(key)) for key in ("body", "tables", "head")),
            _count(one.get("words")), _count(one.get("words_all")),
            _flops(one.get("flops")), _flops(one.get("flops_all")),
            _hours(one.get("seconds")), _hours(one.get("tuning_seconds")),
        ])  # fmt: skip
    caption = (
        "Parameters while pre-training (body: all but tables of embeddings and the head that predicts), words seen and "
        "useful floating-point operations as the logs have them, without and with what a system starts from, and hours "
        "of steps in pre-training and in all fine-tuning. Words are those of one splitter for all: "
        f"{view.results['config']['corpora']['splitter']}."
    )
    head = ["system", "starts from", "body", "tables", "head", "words", "with start", "FLOPs", "with start"]
    return Section("Size and cost", [Table(caption, [*head, "hours", "hours tuning"], rows, texts=2)] if rows else [])


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{round(value):,}"


def _flops(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2e}"


def _hours(value: float | None) -> str:
    return NOTHING if not value else f"{value / 3600:.2f}"


def _noises(view: View) -> list[Section]:
    """Returns for each task the scores of every system under every noise, shaded."""
    found = []
    for task, entry in view.tasks.items():
        noises = dict.fromkeys(noise for one, _, noise in view.scores if one == task and noise != NOISE)
        systems = [name for name in view.measured(CLEAN) if (task, name, CLEAN) in view.scores]
        values = [[view.scores.get((task, name, noise)) for name in systems] for noise in noises]
        known = [one["value"] for row in values for one in row if one is not None and one["value"] is not None]
        if not known:
            continue
        low, width = min(known), (max(known) - min(known)) or 1.0
        shade = lambda one, low=low, width=width: (
            -1 if one is None or one["value"] is None else min(9, int(10 * (one["value"] - low) / width))
        )
        rows = [
            [noise or "clean", *(view.cell(str(task), name, noise, ranked=False) for name in systems)]
            for noise in noises
        ]
        counted = f"{entry['title']}: {entry['metric']} in hundredths, {entry['examples']:,} examples"
        caption = f"{counted}; the stronger the shade, the better."
        heat = [[shade(one) for one in row] for row in values]
        table = Table(caption, ["noise", *map(view.named, systems)], rows, heat=heat)
        found.append(Section(f"Noise: {entry['title']}", [table]))
    return found


def _differences(view: View) -> Section:
    rows = [
        [view.title(one["task"]), "clean" if one["noise"] == CLEAN else "mean over noises",
         view.named(one["a"]), view.named(one["b"]), with_interval(one, signed=True)]
        for one in view.results["differences"]
    ]  # fmt: skip
    lines = ["{}, {}: {} minus {}: {}".format(*row) for row in rows]
    return Section("Every two systems", [Folded(f"{len(lines)} paired differences", lines)] if lines else [])


def _how(view: View) -> Section:
    config = view.results["config"]
    flops, text = config["budget"].get("flops", 0), ", ".join(config["corpora"]["train"])
    budget = f"costs {flops:.2e} useful operations" if flops else f"reads {config['budget']['words']:,} words"
    tuning = (
        f"fine-tuning has the seeds {', '.join(map(str, config['tuning']['seeds']))}; each noise is drawn "
        f"{config['robustness']['draws']} times."
    )
    said = tuning if view.results["tasks"] else "nothing is fine-tuned."
    start = f"charlm {view.results['charlm']}. Every system {budget} times its share, of {text}; {said}"
    blocks: list[str | Table | Folded] = [start]
    settings = [
        f"{name}: {entry['config']} {' '.join(entry['set'])}".rstrip()
        for section in ("systems", "tasks")
        for name, entry in config[section].items()
        if entry["config"]
    ]
    blocks.append(Folded("Configs and settings", settings))
    events = [_event(one) for one in view.results["events"]]
    again = sum(bool(one.get("again")) for one in view.results["events"] if one["event"] == BEGIN)
    blocks.append(Folded(f"Log of {len(events)} events: {again} jobs went on after a stop", events))
    return Section("How it was made", blocks)


def _event(one: JsonObject) -> str:
    when = datetime.datetime.fromtimestamp(one["time"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    said = [f"{key}={value}" for key, value in one.items() if key not in ("time", "event", "job", "again")]
    again = " again" if one.get("again") else ""
    return " ".join([when, f"{one['event']}{again}", *([one["job"]] if "job" in one else []), *said])
