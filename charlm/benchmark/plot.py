"""Figures as a picture: words a second by path, and the cost of a word by the length of texts."""

from __future__ import annotations

from typing import Any

from charlm.benchmark.figures import Figure

BARS = ("inference", "training_step", "tokenisation")


def check_installed() -> None:
    """Raises ValueError when matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("--plot: matplotlib is not installed: pip install 'charlm[eval]'") from None


def plot(figures: list[Figure], path: str) -> None:
    """Writes the picture, one panel for each case and batch; its extension names the format.

    Raises:
      ValueError: nothing to draw, no matplotlib, or the file cannot be written.
    """
    check_installed()
    from matplotlib.figure import Figure as Canvas

    bars: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure["case"] in BARS and figure["unit"] == "words/s" and figure.get("of") != "scaling":
            bars.setdefault(f"{figure['case']}, {figure['batch']}", []).append(figure)
    scaling = [f for f in figures if f["case"] == "scaling" and f["unit"] == "words/s"]
    panels = len(bars) + bool(scaling)
    if not panels:
        raise ValueError(f"--plot={path}: no figures of {', '.join(BARS)} or scaling to draw")
    canvas = Canvas(figsize=(6 * panels, 4), layout="constrained")
    axes = list(canvas.subplots(1, panels, squeeze=False)[0])
    for axis, (title, group) in zip(axes, bars.items(), strict=False):
        _bars(axis, title, group)
    if scaling:
        _curves(axes[-1], scaling)
    try:
        canvas.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ValueError(f"--plot={path}: {error}") from None


def _bars(axis: Any, title: str, group: list[Figure]) -> None:
    names, values = [f["path"] for f in group], [f["value"] for f in group]
    errors = [[f["value"] - f["low"] for f in group], [f["high"] - f["value"] for f in group]]
    axis.barh(names, values, xerr=errors, color="#4878a8", ecolor="#202020")
    axis.invert_yaxis()
    axis.set_title(title)
    axis.set_xlabel("words/s (median, extremes)")


def _curves(axis: Any, group: list[Figure]) -> None:
    for name in dict.fromkeys(f["path"] for f in group):
        points = sorted((f["words"], f["microseconds_a_word"]) for f in group if f["path"] == name)
        axis.plot(*zip(*points, strict=True), marker="o", label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_title("scaling: the same words, in longer texts")
    axis.set_xlabel("words of a text")
    axis.set_ylabel("microseconds a word")
    axis.legend()
