"""Draws figures: words per second by path, and the cost of a word by the length of texts.

`--plot` draws with it; it needs matplotlib. Open it to draw another case, or to change how the panels are chosen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from charlm.benchmark.figures import Figure
from charlm.benchmark.report import REPORTED_SETTINGS, setting
from charlm.core import extras
from charlm.core.durable import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = ("inference", "training_step", "tokenisation")
DRAWN_CASES = ("inference", "training_step", "scaling")  # cases with figures to draw


def check(path: str, cases: Iterable[str] = DRAWN_CASES) -> None:
    """Raises ValueError if no picture of these cases can be drawn or written; called before anything is measured."""
    canvas = extras.load("--plot", "matplotlib.backend_bases").FigureCanvasBase
    if not set(cases) & set(DRAWN_CASES):
        raise ValueError(f"--plot={path}: nothing to draw: choose {', '.join(DRAWN_CASES)} with --case")
    kind = Path(path).suffix.removeprefix(".").lower()
    kinds = sorted({*canvas.get_supported_filetypes()} - {"pgf"})
    if kind not in kinds:
        raise ValueError(f"--plot={path}: the name must end in one of {', '.join('.' + known for known in kinds)}")
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(f"--plot={path}: there is no folder {folder}")
    if Path(path).is_dir() or not os.access(path if Path(path).exists() else folder, os.W_OK):
        raise ValueError(f"--plot={path}: cannot be written")


def plot(figures: list[Figure], path: str) -> None:
    """Writes the picture, with a panel for each case, batch and setting; the extension of `path` names the format.

    Raises:
      ValueError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    check(path)
    from matplotlib.figure import Figure as Canvas

    drawn = [f for f in figures if f["unit"] == "words/s" and f["case"] in (*BARS, "scaling")]
    drawn = [f for f in drawn if f.get("of") != "scaling"]
    if not drawn:
        raise ValueError(f"--plot={path}: no figures of {', '.join(BARS)} or scaling to draw")
    differing = [i for i, values in enumerate(zip(*map(setting, drawn), strict=True)) if len(set(values)) > 1]
    panels: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in drawn:
        said = "\n".join(f"{REPORTED_SETTINGS[i]}: {setting(figure)[i]}" for i in differing)
        batch = "" if figure["case"] == "scaling" else figure["batch"]
        panels.setdefault((figure["case"], batch, said), []).append(figure)
    # The curves of scaling come last.
    ordered = sorted(panels.items(), key=lambda panel: panel[0][0] == "scaling")
    canvas = Canvas(figsize=(6 * len(panels), 4), layout="constrained")
    axes = canvas.subplots(1, len(panels), squeeze=False)[0]
    for axis, ((case, batch, said), group) in zip(axes, ordered, strict=True):
        if case == "scaling":
            _curves(axis, group)
        else:
            _bars(axis, f"{case}, {batch}", group)
        if said:
            axis.set_title(said, loc="left", fontsize=6, y=-0.3)
    try:
        with replacing(path) as temporary:
            canvas.savefig(temporary, dpi=150, format=Path(path).suffix.removeprefix(".") or None)
    except (OSError, ValueError) as error:
        raise ValueError(f"--plot={path}: {error}") from None


def _bars(axis: Axes, title: str, group: list[Figure]) -> None:
    names, values = [f["path"] for f in group], [f["value"] for f in group]
    errors = [[f["value"] - f["low"] for f in group], [f["high"] - f["value"] for f in group]]
    axis.barh(names, values, xerr=errors, color="#4878a8", ecolor="#202020")
    axis.invert_yaxis()
    axis.set_title(title)
    axis.set_xlabel("words/s (median, extremes)")


def _curves(axis: Axes, group: list[Figure]) -> None:
    for name in dict.fromkeys(f["path"] for f in group):
        points = sorted((f["words"], f["microseconds_a_word"]) for f in group if f["path"] == name)
        axis.plot(*zip(*points, strict=True), marker="o", label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_title("scaling: the same words, in longer texts")
    axis.set_xlabel("words of a text")
    axis.set_ylabel("microseconds a word")
    axis.legend()
