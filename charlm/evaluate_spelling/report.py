"""Writes an evaluation: `report.md` (tables), `report.json` (all numbers) and `sentences.md` (corrected sentences).

Open it to change what the tables show, or which sentences are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from charlm.core.durable import write_json, write_text
from charlm.core.types import JsonObject
from charlm.evaluate_spelling.data import Example
from charlm.evaluate_spelling.measure import Measured
from charlm.text.noise.edits import NoisedText

SHOWN = 20  # sentences that are written out
_HEADER = ("system", "precision", "recall", "F0.5", "false alarms per 1,000", "sentences a second")


def write_report(results: JsonObject, folder: Path, shown: str) -> list[Path]:
    """Writes the files into a folder, which is made if needed; returns them, the table first.

    Raises:
      ValueError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / "report.md", folder / "report.json", folder / "sentences.md"]
        write_text(files[0], markdown(results))
        write_json(files[1], results)
        write_text(files[2], shown)
    except OSError as error:
        raise ValueError(f"--out={folder} cannot be written: {error}") from error
    return files


def markdown(results: JsonObject) -> str:
    """Returns the report as Markdown: for each set its systems and their differences, then how it was measured."""
    lines = ["# Misspelled words mended", ""]
    for one in results["sets"]:
        lines += [f"## {one['name']}", "", f"{one['about']}", "", *_table(one["systems"]), ""]
        if one["differences"]:
            lines += ["Differences on the same resamples of the sentences:", "", *_differences(one["differences"]), ""]
    how = [
        f"Intervals hold 95 % of {results['samples']} resamples of the sentences.",
        "Precision, recall and F0.5 are out of 100. A correction is right if the word becomes the one meant, in its "
        "case; a false alarm is a right word that is changed.",
        "Every system was asked for the clean sentences before it was timed.",
        *(f"{_escaped(name)}: {_escaped(about)}" for name, about in results["about"].items()),
        *results["notes"],
    ]
    lines += ["## How it was measured", "", *(f"- {line}" for line in how), ""]
    lines += ["```bash", results["command"], "```", ""]
    return "\n".join(lines)


def _table(systems: Sequence[JsonObject]) -> list[str]:
    rows = [_row(_HEADER), _row(["---"] + ["---:"] * (len(_HEADER) - 1))]
    for one in systems:
        shares = [_interval(one[name], 100, 1) for name in ("precision", "recall", "f0.5")]
        speed = "–" if one["sentences_per_second"] is None else f"{one['sentences_per_second']:,.0f}"
        rows.append(_row([_escaped(one["system"]), *shares, _interval(one["false_alarms"], 1, 2), speed]))
    return rows


def _differences(found: Sequence[JsonObject]) -> list[str]:
    rows = [_row(["first", "second", "F0.5, points", "false alarms per 1,000"]), _row(["---", "---", "---:", "---:"])]
    pairs: dict[tuple[str, str], dict[str, JsonObject]] = {}
    for one in found:
        pairs.setdefault((one["a"], one["b"]), {})[one["score"]] = one | {"value": one["difference"]}
    for (a, b), of in pairs.items():
        gaps = [_interval(of["f0.5"], 100, 1, "+"), _interval(of["false_alarms"], 1, 2, "+")]
        rows.append(_row([_escaped(a), _escaped(b), *gaps]))
    return rows


def _interval(of: JsonObject, scale: float, digits: int, sign: str = "") -> str:
    value, low, high = (f"{scale * of[name]:{sign}.{digits}f}" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def shown_sentences(examples: Sequence[Example], measured: Sequence[Measured], most: int = SHOWN) -> str:
    """Returns sentences as they are read, meant and corrected by each system, as Markdown.

    Taken are, evenly over the set, those that are misspelled or changed by a system.
    """
    touched = [
        n
        for n, example in enumerate(examples)
        if example.text != example.clean or any(found.edits[n] for found in measured)
    ]
    step = max(len(touched) / most, 1.0)
    chosen = [touched[int(k * step)] for k in range(min(most, len(touched)))]
    lines = ["# Sentences as they are read, meant and corrected", ""]
    for n in chosen:
        lines += [f"- read: `{_code(examples[n].text)}`", f"  - meant: `{_code(examples[n].clean)}`"]
        for found in measured:
            new = NoisedText.of(examples[n].text, found.edits[n]).text
            said = "right" if new == examples[n].clean else f"`{_code(new)}`"
            lines.append(f"  - {_escaped(found.system)}: {said}")
    return "\n".join([*lines, ""])


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")
