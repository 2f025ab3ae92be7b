"""Writes what was measured: `report.json` (all numbers), `report.md` and `report.html` (the same).

Sections, tables and the frame of the page are those of the robustness report. Names, paths and texts are untrusted;
both writers escape them. Open it to change what the report says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from charlm.core.pages import shortened
from charlm.core.types import JsonObject
from charlm.robustness.render.files import write_files
from charlm.robustness.render.markdown import markdown
from charlm.robustness.render.numbers import Interval, Numbers
from charlm.robustness.render.page import html
from charlm.robustness.render.parts import (
    STEPS,
    Block,
    Bullets,
    Card,
    Cell,
    Command,
    Grid,
    Name,
    Report,
    RichText,
    Section,
    Shaded,
    Strong,
    Table,
    Wrong,
)

CLEAN = "clean"
_STEP = 0.05  # of a score: how much each shade of a cell stands for
_TEXT = 140  # characters of a document that are shown
_NAMES = {"mrr@10": "MRR@10", "ndcg@10": "nDCG@10", "map": "MAP"}
_NEAREST = 70  # characters of the nearest text of a class that are shown
_SHOWN = (
    "What each system reads, what it finds first, and the rank of the right document.",
    "What each system reads, the class that it finds first (its nearest text), and the rank of the right class.",
)
Found = Mapping[tuple[str, str, str], JsonObject]


def write_report(results: JsonObject, folder: Path) -> list[Path]:
    """Writes the report into a folder, which is made if needed; returns the files, report.json first.

    Raises:
      ValueError: the folder cannot be written.
    """
    report = report_of(results)
    return write_files(folder, results, markdown(report), html(report))


def report_of(results: JsonObject) -> Report:
    """Returns the whole report of what `charlm.evaluate_retrieval.measure.measure` found."""
    found = {(one["system"], one["noise"], one["score"]): one for one in results["scores"]}
    metric = results["metric"]
    classes, documents = results["classes"], results["documents"]
    counts = f"{results['queries']} queries, "
    counts += f"{classes} classes of {documents} texts" if classes else f"{documents} documents"
    sections = [
        Section("says", "What each noise costs", [_glance(results, found)]),
        Section("comparisons", "System against system", _comparisons(results)),
        Section("shown", "Queries, typos and what each system finds", _shown(results)),
        Section("scores", "All scores", _tables(results, found), folded=True),
        Section("how", "How it was measured", _how(results), folded=True),
        Section("notes", "Notes", [Bullets(results["notes"])] if results["notes"] else [], folded=True),
        Section("reproduce", "How to reproduce", _command(results), folded=True),
    ]
    return Report(
        title="Classes by nearest centroid, under typos" if classes else "Retrieval under typos",
        subtitle=f"Measured: {_NAMES.get(metric, metric)}, out of 100, clean and under noise; {counts}",
        headline=_headline(results, found),
        sections=[section for section in sections if section.blocks],
    )


def _numbers(results: JsonObject) -> Numbers:
    return Numbers(results["metric"], ())


def _headline(results: JsonObject, found: Found) -> RichText:
    """Returns the best system clean and under noise, by the mean over noises."""
    metric, show = results["metric"], _numbers(results)
    noises = [name for name in results["noise"] if name != CLEAN]
    names = [one["name"] for one in results["systems"]]
    clean = {name: found[name, CLEAN, metric]["value"] for name in names}
    best = max(names, key=lambda name: clean[name])
    text: RichText = ["Clean, ", Name(best), " has ", Strong(show.score(clean[best])), " of 100"]
    if not noises:
        return [*text, "."]
    noisy = {name: sum(found[name, noise, metric]["value"] for noise in noises) / len(noises) for name in names}
    best = max(names, key=lambda name: noisy[name])
    kinds = "the noise" if len(noises) == 1 else f"the mean over {len(noises)} noises"
    return [*text, "; under ", kinds, ", ", Name(best), " has ", Strong(show.score(noisy[best])), "."]


def _glance(results: JsonObject, found: Found) -> Table:
    """Returns the main score of every system under every noise; shades say what noise costs beside clean text."""
    metric, show = results["metric"], _numbers(results)
    rows: list[list[Cell]] = []
    for noise in results["noise"]:
        row: list[Cell] = [noise]
        for one in results["systems"]:
            value = found[one["name"], noise, metric]["value"]
            change = value - found[one["name"], CLEAN, metric]["value"]
            step = min(STEPS, round(abs(change) / _STEP))
            row.append(Shaded(show.score(value), "loss" if change < 0 else "gain", step))
        rows.append(row)
    caption = (
        f"{_NAMES.get(metric, metric)}, out of 100, mean over the seeds of a noise; colour: loss beside clean text."
    )
    return Table("table-glance", caption, ["noise", *(Name(one["name"]) for one in results["systems"])], rows)


def _tables(results: JsonObject, found: Found) -> list[Block]:
    """Returns a table for each score, with intervals."""
    show, tables = _numbers(results), []
    for score in dict.fromkeys(one["score"] for one in results["scores"]):
        rows: list[list[Cell]] = []
        for noise in results["noise"]:
            row: list[Cell] = [noise]
            for one in results["systems"]:
                of = found[one["name"], noise, score]
                row.append(show.interval(Interval(of["value"], of["low"], of["high"]), score))
            rows.append(row)
        caption = f"{_NAMES.get(score, score)}, out of 100, with its interval from queries that are drawn anew."
        header = ["noise", *(Name(one["name"]) for one in results["systems"])]
        tables.append(Table(f"table-{score.replace('@', '-')}", caption, header, rows))
    return tables


def _comparisons(results: JsonObject) -> list[Block]:
    """Returns the differences of the main score between systems."""
    show = _numbers(results)
    rows: list[list[Cell]] = []
    for one in results["comparisons"]:
        gap = Interval(one["difference"], one["low"], one["high"])
        said = show.interval(gap, signed=True)
        rows.append([one["noise"], Name(one["a"]), Name(one["b"]), Strong(said) if gap.excludes_zero else said])
    if not rows:
        return []
    caption = (
        f"{_NAMES.get(results['metric'], results['metric'])} of the first system minus that of the second, in points,"
        " on the same resamples of the queries; bold: the interval leaves out 0."
    )
    return [Table("table-comparisons", caption, ["noise", "first", "second", "difference"], rows, texts=3)]


def _shown(results: JsonObject) -> list[Block]:
    cards = []
    for n, one in enumerate(results["shown"]):
        rows: list[list[Cell]] = []
        for found in one["found"]:
            first = shortened(found["first"], _TEXT)
            if "nearest" in found:
                first += f" ({shortened(found['nearest'], _NEAREST)})"
            rows.append(
                [
                    Name(found["system"]),
                    found["read"] if found["read"] != one["asked"] else "as it is",
                    first if found["rank"] == 1 else Wrong(first),
                    str(found["rank"]),
                ]
            )
        table = Table(
            f"table-shown-{n}",
            _SHOWN[bool(one["classes"])],
            ["system", "reads", "finds first", "rank"],
            rows,
            texts=3,
        )
        lines: list[tuple[str, RichText]] = [("query", one["query"]), ("asked", one["asked"])]
        lines += [("class", name) for name in one["classes"]]
        cards.append(Card(one["noise"], lines, table))
    if not cards:
        return []
    rule = (
        "From each noise in turn, the next query on which the systems differ in whether a right one comes first "
        "(with one system: on which it does not)."
    )
    return [rule, Grid(cards)]


def _how(results: JsonObject) -> list[Block]:
    settings = results["settings"]
    seeds = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    by = f"the model {settings['documents']}" if settings["documents"] else "the model of each system"
    drawn = f"drawn with seed {settings['query_seed']}" if settings["queries"] else "all of the data"
    searched = f"Documents: {results['documents']}, embedded by {by}, without noise. The search is exact, by cosine."
    if results["classes"]:
        searched = (
            f"Classes: {results['classes']}, each the mean of its texts' unit vectors, brought to length 1; the "
            f"{results['documents']} texts are embedded by {by}, without noise. The nearest class is found by cosine."
        )
    return [
        Bullets(
            [
                f"Queries: {results['queries']}, {drawn}. Seeds of the noise: {', '.join(map(str, seeds))}.",
                searched,
                "Equal scores have no order: every score is the mean over all orders.",
                f"Intervals hold 95 % of {settings['samples']} resamples of the queries, with means over seeds.",
                "A corrector reads the query with its noise; its figures on clean text are what it costs.",
            ]
        )
    ]


def _command(results: JsonObject) -> list[Block]:
    command = results["settings"]["command"]
    return [Command(command)] if command else []
