"""Writes what was measured: `report.json` (all numbers), `report.md` and `report.html` (the same).

Sections, tables and the frame of the page are those of the robustness report. Names, paths and texts are untrusted;
both writers escape them. Open it to change what the report says.
"""

from __future__ import annotations

from pathlib import Path

from charlm.core.types import JsonObject
from charlm.evaluate_cloze.questions import SHORTEST
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
from charlm.robustness.render.systems import SystemParts, write_system_report


def write_report(results: JsonObject, folder: Path) -> list[Path]:
    """Writes the report into a folder, which is made if needed; returns the files, report.json first.

    Raises:
      ValueError: the folder cannot be written.
    """
    return write_system_report(folder, results, report_of(results))


def report_of(results: JsonObject) -> Report:
    """Returns the whole report of what `charlm.evaluate_cloze.measure.measure` found."""
    parts = SystemParts(results, "sentences")
    counts = f"{results['questions']} sentences, {results['candidates']['shared']} words to choose from"
    return parts.report(
        "Words left out, under typos",
        f"Measured: how often the first guess is right, out of 100, clean and under noise; {counts}",
        ("Sentences, typos and what each system guesses", _shown(results)),
        [_how(results)],
    )


def _shown(results: JsonObject) -> list[Block]:
    cards = []
    for n, one in enumerate(results["shown"]):
        rows: list[list[Cell]] = []
        for found in one["found"]:
            answers = ", ".join(found["answers"])
            right = found["answers"][:1] == [one["word"]]
            read = found["read"] if found["read"] != one["asked"] else "as it is"
            rows.append([Name(found["system"]), read, answers if right else Wrong(answers)])
        caption = "What each system reads, and its guesses, the likeliest first."
        table = Table(f"table-shown-{n}", caption, ["system", "reads", "guesses"], rows, texts=3)
        lines: list[tuple[str, RichText]] = [
            ("sentence", one["sentence"]), ("left out", one["word"]), ("asked", one["asked"]),
        ]  # fmt: skip
        cards.append(Card(one["noise"], lines, table))
    if not cards:
        return []
    rule = (
        "From each noise in turn, the next sentence on which the systems differ in whether the first guess is right "
        "(with one system: on which it is not)."
    )
    return [rule, Grid(cards)]


def _how(results: JsonObject) -> Bullets:
    settings = results["settings"]
    words, count = (settings["words"] or "the commonest of the text"), results["candidates"]
    able = "; ".join(
        f"{one['name']} {one['writable']}" for one in results["systems"] if one["model"] and not one["defence"]
    )
    return Bullets(
        [
            f"One word of each sentence is left out (seed {settings['seed']}): one of at least {SHORTEST} letters, "
            "none of them a capital, that is among the words to choose from. The other words get the noise.",
            f"Words to choose from: {words}, and of these {count['listed']} the {count['shared']} that every model can "
            f"write ({able}). All systems are told how many characters the right one has; {count['of_the_length']:.0f} "
            "have that length, on average.",
            "Models of subwords rank a word of several by the geometric mean of their probabilities, each with as many "
            "masks as it has subwords.",
            f"Seeds of the noise: {', '.join(map(str, range(settings['seeds'])))}.",
            f"Intervals hold 95 % of {settings['samples']} resamples of the sentences, with means over seeds.",
            "A corrector reads what is before the gap and what is behind it, with the noise; its figures on clean text "
            "are what it costs.",
        ]
    )
