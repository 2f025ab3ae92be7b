"""Writes figures as JSON lines, reads them again, and formats them as text tables.

Open it to change the tables, or which figures replace earlier ones in a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TextIO

from charlm.benchmark.figures import Figure
from charlm.benchmark.text import FREQUENT, TRAINED
from charlm.core.reading import loads, read_text

REPORTED_SETTINGS = (
    "text", "texts", "models", "config", "dtype", "attention_kernel", "wordpiece", "compile", "processor",
    "vector_units", "threads", "versions",
)  # fmt: skip
FigureCell = Callable[[Figure], object]
_RATE: dict[str, FigureCell] = {
    "words/s": lambda f: f"{f['value']:,.0f}",
    "low": lambda f: f"{f['low']:,.0f}",
    "high": lambda f: f"{f['high']:,.0f}",
    "texts/s": lambda f: f"{f['texts_per_second']:,.2f}",
    "us/word": lambda f: f"{f['microseconds_a_word']:,.1f}",
    "GFLOP/s": lambda f: f"{f['gflop_per_second']:,.0f}" if "gflop_per_second" in f else "",
    "bare product": lambda f: f"{f['product_gflop']:,.0f}" if "product_gflop" in f else "",
    "MFU": lambda f: f"{f['mfu']:.1%}" if "mfu" in f else "",
    "cpu s": lambda f: f"{f['cpu_seconds']:.3g}",
    "tokens/text": lambda f: f"{f['tokens']:,.0f}",
    "padded to": lambda f: f"{f['padded_to']:,}" if "padded_to" in f else "",
}
_PACKING: dict[str, FigureCell] = {"pack s": lambda f: f"{f['pack_seconds']:.2g}" if "pack_seconds" in f else ""}
_MEMORY: dict[str, FigureCell] = {"MiB": lambda f: f"{f['peak_mib']:,}" if "peak_mib" in f else ""}
_ON_DEVICE: dict[str, FigureCell] = {
    "MFU, padding too": lambda f: f"{f['executed_mfu']:.1%}" if "executed_mfu" in f else "",
    "MiB on device": lambda f: f"{f['device_peak_bytes'] / 2**20:,.0f}" if f.get("device_peak_bytes") else "",
}
_ATTENTION: dict[str, FigureCell] = {
    "ms": lambda f: f"{f['value']:,.3f}" if f["unit"] == "ms" else "",
    "low": lambda f: f"{f['low']:,.3f}" if f["unit"] == "ms" else "",
    "high": lambda f: f"{f['high']:,.3f}" if f["unit"] == "ms" else "",
    "TFLOP/s": lambda f: f"{f['tflop_per_second']:,.1f}" if "tflop_per_second" in f else "not timed",
    "of peak": lambda f: f"{f['mfu']:.1%}" if "mfu" in f else "",
    "temporaries, MiB": lambda f: f"{f['temporaries_mib']:,.0f}" if f.get("temporaries_mib") is not None else "",
    "error": lambda f: _error(f, "error"),
    "error of gradients": lambda f: _error(f, "gradient_error"),
    "two runs": lambda f: ("same bits" if f["same_bits"] else "DIFFERENT BITS") if "same_bits" in f else "",
}
_PLAIN: dict[str, FigureCell] = {"value": lambda f: f"{f['value']:,}", "unit": lambda f: f["unit"]}
_TABLES = (
    "inference", "training_step", "scaling", "tokenisation", "joined_words", "full_mode", "charbert", "calls", "pages",
    "generator",
)  # fmt: skip
_NAMES = ("case", "path", "unit")  # fields that every figure has, beside its value
_RATES = ("low", "high", "texts_per_second", "microseconds_a_word", "cpu_seconds", "tokens")  # also needed for speeds
_MAYBE_NAMES = (
    "batch", "of", "text", "models", "config", "dtype", "attention_kernel", "wordpiece", "processor",
    "vector_units", "device", "date",
)  # fmt: skip
_MAYBE_NUMBERS = (
    "words", "distinct_words", "gflop_per_second", "mfu", "executed_mfu", "tflop_per_second", "peak_mib", "padded_to",
    "pack_seconds", "product_gflop",
)  # fmt: skip


def write(figures: Iterable[Figure], stream: TextIO) -> None:
    """Writes one JSON line for each figure."""
    for figure in figures:
        print(json.dumps(figure), file=stream, flush=True)


def setting(figure: Figure) -> tuple[str, ...]:
    """Returns the values of `REPORTED_SETTINGS` in a figure: the settings of the measurement and where it ran."""
    return tuple(str(figure.get(name, "")) for name in REPORTED_SETTINGS)


def read(path: str) -> list[Figure]:
    """Reads a file that `write` wrote; of figures with all settings in common, keeps the last one.

    Raises:
      ValueError: the file does not exist or has no figures, or a line is not a figure or lacks a field.
    """
    figures: dict[tuple[str, ...], Figure] = {}
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--from={path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            figure = loads(line)
        except ValueError:
            figure = None
        if not isinstance(figure, dict):
            raise ValueError(f"--from={path}: line {number} is no figure of the benchmark")
        if wrong := _wrong(figure):
            raise ValueError(f"--from={path}: line {number}: {wrong}")
        said = (str(figure.get(name, "")) for name in (*_NAMES, "batch", "of", "device"))
        figures[(*said, *setting(figure))] = figure
    if not figures:
        raise ValueError(f"--from={path}: no figures in it")
    return list(figures.values())


def _wrong(figure: Figure) -> str:
    """Returns what is wrong with a figure that a table or plot needs; "" if nothing is."""
    numbers = ["value"]
    if figure.get("unit") == "words/s" and figure.get("case") in _TABLES:
        numbers += [*_RATES, *(["words"] if figure["case"] == "scaling" else [])]
    if figure.get("unit") == "ms" and figure.get("case") == "attention":
        numbers += ["low", "high"]
    strings = [*_NAMES, *(["batch"] if len(numbers) > 1 else [])]
    for name in (*strings, *numbers):
        if name not in figure:
            return f"{name!r} is missing"
    for name in dict.fromkeys((*strings, *numbers, *_MAYBE_NAMES, *_MAYBE_NUMBERS)):
        value, wants_number = figure.get(name), name in numbers or name in _MAYBE_NUMBERS
        fits = isinstance(value, int | float if wants_number else str) and not isinstance(value, bool)
        if name in figure and not fits:
            return f"{name!r} is {value!r}: expected a {'number' if wants_number else 'string'}"
    if len(numbers) > 1 and not figure["low"] <= figure["value"] <= figure["high"]:
        return "'value' does not lie between 'low' and 'high'"
    return ""


def table(figures: list[Figure]) -> str:
    """Returns the figures as text: a table for each case, batch and setting, with a matrix of ratios below it."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for figure in figures:
        case = figure["case"]
        # All lengths of scaling are in one table, to show the curve; so are figures without a batch.
        batch = "" if case == "scaling" else str(figure.get("batch", ""))
        device = figure.get("device", "").split(" x ")[-1]  # PyTorch paths do not state the number of devices
        groups.setdefault((case, batch, figure.get("of", ""), device, *setting(figure)), []).append(figure)
    parts = []
    for (case, batch, of, *_), group in groups.items():
        rates = [f for f in group if f["unit"] != "x"]
        on = f"on {group[0]['text']}" if "text" in group[0] else ""
        title = " ".join(filter(None, [case, f"of {of}" if of else "", batch and f"({batch})", on]))
        parts.append("\n".join([_title(title, group[0]), *_rows(case, rates), *_matrix(group)]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _title(title: str, figure: Figure) -> str:
    said = ["tiny models: no measurement"] if figure.get("models") == "smoke" else []
    said += (
        [figure["texts"] if figure["texts"] == FREQUENT else f"{figure['texts']} texts"] if "texts" in figure else []
    )
    if "distinct_words" in figure and figure["case"] != "scaling":  # in scaling, the share differs between lengths
        said.append(f"{figure['distinct_words']:.0%} distinct words")
    said += [f"{figure['subwords_a_word']} subwords a word"] if "subwords_a_word" in figure else []
    said += [figure[name] for name in ("dtype", "config") if figure.get(name)]
    said += [f"attention by {figure['attention_kernel']}"] if figure.get("attention_kernel") else []
    said += [f"pieces of {figure['wordpiece']}"] if figure.get("wordpiece", TRAINED) != TRAINED else []
    said += ["torch.compile not tried"] if figure.get("compile") is False else []
    if {"threads", "processor"} <= set(figure):
        units = f" ({figure['vector_units']})" if figure.get("vector_units") else ""
        said.append(f"{figure['threads']} threads of {figure['processor']}{units}")
    said += [f"load before {figure['load']}"] if "load" in figure else []
    said += [figure["date"]] if "date" in figure else []
    return f"{title}: {', '.join(said)}" if said else title


def _rows(case: str, figures: list[Figure]) -> list[str]:
    if not figures:
        return []
    columns = dict(_PLAIN)
    if case in _TABLES:
        packing = _PACKING if any("pack_seconds" in f for f in figures) else {}
        columns = _RATE | packing | ({} if case == "tokenisation" else _MEMORY)
        columns |= {name: cell for name, cell in _ON_DEVICE.items() if any(cell(f) for f in figures)}
    if case == "attention":
        columns = _ATTENTION
    if case == "scaling":
        columns = {"words": lambda f: f["words"]} | columns
    lines = [["path", *columns], *([f["path"], *(str(cell(f)) for cell in columns.values())] for f in figures)]
    return aligned(lines)


def _error(figure: Figure, name: str) -> str:
    if name not in figure:
        return ""
    return "not finite" if figure[name] is None else f"{figure[name]:.1e}"


def _matrix(figures: list[Figure]) -> list[str]:
    """Returns a matrix for each batch: a row for each path of charlm, a column for each path it is compared with."""
    found = [f for f in figures if f["unit"] == "x" and " / " in f["path"]]
    lines = []
    for batch in dict.fromkeys(f.get("batch", "") for f in found):
        cells = {tuple(f["path"].split(" / ")): f"{f['value']:.2f}" for f in found if f.get("batch", "") == batch}
        rows, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
        title = f"times as fast as ({batch})" if batch else "times as fast as"
        lines += aligned([[title, *columns], *([r, *(cells.get((r, c), "") for c in columns)] for r in rows)])
    return lines


def aligned(rows: list[list[str]]) -> list[str]:
    """Returns rows as lines of text: the first column is aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
