"""Says what the report of a league says: its sections and tables, for the writers of Markdown and HTML.

Scores are in hundredths. Open it to add a section.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from charlm.core.types import JsonObject
from charlm.league.costs import course, heldout, scores_by_budget, size_and_cost
from charlm.league.events import BEGIN
from charlm.league.standing import CLEAN, NOISE, UNKNOWN
from charlm.league.view import NOTHING, Block, Folded, Section, Table, View, with_interval

INTERVALS = (
    "Square brackets hold 95 % intervals, of a bootstrap over examples and runs of fine-tuning together: each resample "
    "draws the examples anew, the same for all systems, and of each system one run less than it has, which gives the "
    "variance of the mean of all. They do not cover the luck of pre-training, of which there is one run a system."
)
RANKS = (
    "A rank is one more than the number of systems that are ahead beyond doubt, that is, with an interval of the "
    "paired difference above 0; systems that cannot be told apart from the best share rank 1."
)

_BORROWED = {"same": "same as", "start": "starts from", "behind": "is", "defence": "behind"}


def sections_of(results: JsonObject) -> list[Section]:
    """Returns the sections of the report; those without any figure are left out.

    Args:
      results: as `charlm.league.gathering.gathered` returns them.
    """
    view = View(results)
    found = [
        _standing(view),
        heldout(view),
        _claims(view),
        size_and_cost(view),
        course(view),
        scores_by_budget(view),
        *_noises(view),
        _differences(view),
        _how(view),
    ]
    return [section for section in found if section.blocks]


def _standing(view: View) -> Section:
    section = Section("Standing")
    if missing := view.results["missing"]:
        said = f"This report is partial: {len(missing)} jobs are not done, and their figures are left out."
        section.blocks.extend([said, Folded("Jobs that are not done", _missing_lines(missing))])
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
    if any(isinstance(block, Table) for block in section.blocks):
        section.blocks.extend([INTERVALS, RANKS])
    return section


def _missing_lines(missing: Sequence[str]) -> list[str]:
    """Returns the names of jobs grouped by kind, "tune: pos/bert/0, pos/bert/1"."""
    kinds: dict[str, list[str]] = {}
    for name in missing:
        kind, _, rest = name.partition("/")
        kinds.setdefault(kind, []).append(rest)
    return [f"{kind}: {', '.join(names)}" for kind, names in kinds.items()]


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
    said = tuning if config["tasks"] else "nothing is fine-tuned."
    start = f"charlm {view.results['charlm']}. Every system {budget} times its share, of {text}; {said}"
    blocks: list[Block] = [start]
    entries = [(name, entry) for section in ("systems", "tasks") for name, entry in sorted(config[section].items())]
    blocks.append(Folded("Configs and settings", [_settings(name, entry) for name, entry in entries]))
    events = [_event(one) for one in view.results["events"]]
    again = sum(bool(one.get("again")) for one in view.results["events"] if one["event"] == BEGIN)
    blocks.append(Folded(f"Log of {len(events)} events: {again} jobs went on after a stop", events))
    return Section("How it was made", blocks)


def _settings(name: str, entry: JsonObject) -> str:
    """Returns what a system or a task is made of: "b: same as a; in fine-tuning data.noise=swap:0.1"."""
    borrowed = [f"{word} {entry[key]}" for key, word in _BORROWED.items() if entry.get(key)]
    own = " ".join([entry["config"], *entry["set"]]).strip()
    tuned = " ".join(["in fine-tuning", *entry["tune"]]) if entry.get("tune") else ""
    return f"{name}: {'; '.join(part for part in (', '.join(borrowed), own, tuned) if part)}"


def _event(one: JsonObject) -> str:
    when = datetime.datetime.fromtimestamp(one["time"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    said = [f"{key}={value}" for key, value in one.items() if key not in ("time", "event", "job", "again")]
    again = " again" if one.get("again") else ""
    return " ".join([when, f"{one['event']}{again}", *([one["job"]] if "job" in one else []), *said])
