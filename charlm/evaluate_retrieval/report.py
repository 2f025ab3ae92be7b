"""Writes what was measured: `report.json` (all numbers), `report.md` and `report.html` (the same).

Sections, tables and the frame of the page are those of the robustness report. Names, paths and texts are untrusted;
both writers escape them. Open it to change what the report says.
"""

from __future__ import annotations

from pathlib import Path

from charlm.core.pages import shortened
from charlm.core.types import JsonObject
from charlm.robustness.render.parts import (
    Block,
    Bullets,
    Card,
    Cell,
    Grid,
    Name,
    Report,
    RichText,
    Table,
    Wrong,
)
from charlm.robustness.render.systems import SystemParts, score_name, write_system_report

_TEXT = 140  # characters of a document that are shown
_NEAREST = 70  # characters of the nearest text of a class that are shown
_SHOWN = (
    "What each system reads, what it finds first, and the rank of the right document.",
    "What each system reads, the class that it finds first (its nearest text), and the rank of the right class.",
)


def write_report(results: JsonObject, folder: Path) -> list[Path]:
    """Writes the report into a folder, which is made if needed; returns the files, report.json first.

    Raises:
      ValueError: the folder cannot be written.
    """
    return write_system_report(folder, results, report_of(results))


def report_of(results: JsonObject) -> Report:
    """Returns the whole report of what `charlm.evaluate_retrieval.measure.measure` found."""
    parts = SystemParts(results, "queries")
    classes, documents = results["classes"], results["documents"]
    counts = f"{results['queries']} queries, "
    counts += f"{classes} classes of {documents} texts" if classes else f"{documents} documents"
    return parts.report(
        "Classes by nearest centroid, under typos" if classes else "Retrieval under typos",
        f"Measured: {score_name(results['metric'])}, out of 100, clean and under noise; {counts}",
        ("Queries, typos and what each system finds", _shown(results)),
        _how(results),
    )


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
