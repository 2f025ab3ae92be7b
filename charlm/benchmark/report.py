"""Figures as JSON lines and as tables to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from charlm.benchmark.figures import Figure

Cell = Callable[[Figure], Any]
_RATE: dict[str, Cell] = {
    "words/s": lambda f: f"{f['value']:,.0f}",
    "low": lambda f: f"{f['low']:,.0f}",
    "high": lambda f: f"{f['high']:,.0f}",
    "texts/s": lambda f: f"{f['texts_per_second']:,.2f}",
    "us/word": lambda f: f"{f['microseconds_a_word']:,.1f}",
    "GFLOP/s": lambda f: f"{f['gflop_per_second']:,.0f}" if "gflop_per_second" in f else "",
    "MFU": lambda f: f"{f['mfu']:.1%}" if "mfu" in f else "",
    "cpu s": lambda f: f"{f['cpu_seconds']:.3g}",
    "tokens/text": lambda f: f"{f['tokens']:,.0f}",
}
_MEMORY: dict[str, Cell] = {"MiB": lambda f: f"{f['peak_mib']:,}" if "peak_mib" in f else ""}
_PLAIN: dict[str, Cell] = {"value": lambda f: f"{f['value']:,}", "unit": lambda f: f["unit"]}
_TABLES = ("inference", "training_step", "scaling", "tokenisation")


def write(figures: Iterable[Figure], stream: TextIO) -> None:
    """Writes a JSON line a figure."""
    for figure in figures:
        print(json.dumps(figure), file=stream, flush=True)


def read(path: str) -> list[Figure]:
    """Reads what `write` wrote; of equal measurements the last one.

    Raises:
      ValueError: no such file, or a line that is no figure.
    """
    figures: dict[tuple[Any, ...], Figure] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--from={path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            figure = json.loads(line)
            key = tuple(figure[name] for name in ("case", "path", "unit"))
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"--from={path}: line {number} is no figure of the benchmark") from None
        figures[(*key, *map(str, map(figure.get, ("batch", "of", "dtype", "device", "text"))))] = figure
    return list(figures.values())


def table(figures: list[Figure]) -> str:
    """Returns the figures as text: a table of each case and batch, ratios as a matrix under it."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for figure in figures:
        case = figure["case"]
        # Lengths stand in one table, so that the curve can be read; so do the parts of other cases.
        batch = "" if case == "scaling" else str(figure.get("batch", ""))
        groups.setdefault((case, batch, str(figure.get("of", ""))), []).append(figure)
    parts = []
    for (case, batch, of), group in groups.items():
        rates = [f for f in group if f["unit"] != "x"]
        title = " ".join(filter(None, [case, f"of {of}" if of else "", batch and f"({batch})"]))
        parts.append("\n".join([_title(title, group[0]), *_rows(case, rates), *_matrix(group)]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _title(title: str, figure: Figure) -> str:
    if "date" not in figure:
        return title
    said = [f"{figure['threads']} threads of {figure['processor']}", f"load before {figure['load']}", figure["date"]]
    if "distinct_words" in figure and figure["case"] != "scaling":  # there, every length has its own
        said = [f"{figure['distinct_words']:.0%} distinct words", figure["dtype"], *said]
    if figure.get("models") == "smoke":
        said = ["tiny models: no measurement", *said]
    return f"{title}: {', '.join(said)}"


def _rows(case: str, figures: list[Figure]) -> list[str]:
    if not figures:
        return []
    columns = dict(_PLAIN)
    if case in _TABLES:
        columns = _RATE | ({} if case == "tokenisation" else _MEMORY)
    if case == "scaling":
        columns = {"words": lambda f: f["words"]} | columns
    lines = [["path", *columns], *([f["path"], *(str(cell(f)) for cell in columns.values())] for f in figures)]
    return aligned(lines)


def _matrix(figures: list[Figure]) -> list[str]:
    """Returns one row an HLM, one column a model that it is compared with; of several lengths, one matrix each."""
    found = [f for f in figures if f["unit"] == "x" and " / " in f["path"]]
    lines = []
    for batch in dict.fromkeys(f.get("batch", "") for f in found):
        cells = {tuple(f["path"].split(" / ")): f"{f['value']:.2f}" for f in found if f.get("batch", "") == batch}
        rows, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
        title = f"times as fast as ({batch})" if batch else "times as fast as"
        lines += aligned([[title, *columns], *([r, *(cells.get((r, c), "") for c in columns)] for r in rows)])
    return lines


def aligned(rows: list[list[str]]) -> list[str]:
    """Returns rows as lines: the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
