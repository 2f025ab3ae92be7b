"""Draws attention with matplotlib: a row of characters for each word, and a heat map of the words.

`Shown.figure` calls it; open it to change how the panels look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from charlm.core import extras
from charlm.core.pages import harmless, shortened
from charlm.families.views import AttentionView, Views

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = "Blues"
CELL, LEAST, MOST = 0.24, 2.2, 14.0  # inches: of a character or word, and of a panel
DARK = 0.55  # of the range of colours: from here on, text on it is white
NUMBERED = 12  # a heat map of at most so many words has its numbers in the cells


def draw(model: str, seen: Views, layer: int | None, head: int | None) -> Figure:
    """Returns the figure, a panel for each view; `layer` and `head` are those of `AttentionMap.chosen`.

    Raises:
      ValueError: matplotlib is missing, or a view has no such layer or head.
    """
    figures = extras.load("a figure of attention", "matplotlib.figure")
    views = [view for view in seen.views if view.maps]
    sizes = [_size(view) for view in views]
    width = max((w for w, _ in sizes), default=LEAST) + 1.2
    figure = figures.Figure(figsize=(width, sum(h for _, h in sizes) + 0.8 * len(sizes) + 0.4), layout="constrained")
    axes = figure.subplots(len(views), 1, squeeze=False, height_ratios=[h for _, h in sizes])[:, 0] if views else []
    for axis, view in zip(axes, views, strict=True):
        (_inside if view.inside else _between)(axis, view, layer, head)
        axis.set_title(f"{view.title}: {_which(view, layer, head)}", loc="left", fontsize=9)
    figure.suptitle(harmless(f"{model}: {shortened(seen.text, 60)}"), fontsize=9, x=0.01, ha="left", parse_math=False)
    return figure


def _size(view: AttentionView) -> tuple[float, float]:
    columns = max(len(one.columns) for one in view.maps)
    rows = len(view.maps) if view.inside else columns
    cell = CELL if view.inside or columns > NUMBERED else 1.4 * CELL
    width, height = (min(MOST, max(LEAST, cell * n)) for n in (columns, rows))
    return width, height


def _which(view: AttentionView, layer: int | None, head: int | None) -> str:
    layers, heads = view.maps[0].weights_LHQN.shape[:2]
    named = []
    for name, number, count in (("layer", layer, layers), ("head", head, heads)):
        mean = f"mean of {count} {name}s" if count > 1 else f"its only {name}"
        named.append(mean if number is None else f"{name} {number + 1} of {count}")
    return ", ".join(named)


def _inside(axis: Axes, view: AttentionView, layer: int | None, head: int | None) -> None:
    """Draws a row for each word: how much each of its characters is read, the mean over what reads."""
    longest = max(len(one.columns) for one in view.maps)
    cells = np.full((len(view.maps), longest), np.nan)
    for row, one in enumerate(view.maps):
        cells[row, : len(one.columns)] = one.chosen(layer, head).mean(axis=0)
    axis.imshow(np.sqrt(cells), cmap=COLOURS, vmin=0, vmax=1, aspect="equal")
    axis.set_anchor("W")
    for row, one in enumerate(view.maps):
        for column, char in enumerate(one.columns):
            _write(axis, column, row, harmless(char), cells[row, column], 7 if len(char) == 1 else 5)
    axis.set_xticks([])
    axis.set_yticks(range(len(view.maps)), [harmless(one.title) for one in view.maps], fontsize=7, parse_math=False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def _between(axis: Axes, view: AttentionView, layer: int | None, head: int | None) -> None:
    """Draws a heat map: rows read, columns are read."""
    (one,) = view.maps
    weights_QN = one.chosen(layer, head)
    axis.imshow(np.sqrt(weights_QN), cmap=COLOURS, vmin=0, vmax=1, aspect="equal")
    axis.set_anchor("W")
    if len(one.columns) <= NUMBERED:
        for (row, column), weight in np.ndenumerate(weights_QN):
            _write(axis, column, row, f"{100 * weight:.0f}", weight, 6)
    rotated = {"rotation": 90, "fontsize": 7, "parse_math": False}
    axis.set_xticks(range(len(one.columns)), [harmless(name) for name in one.columns], **rotated)
    axis.set_yticks(range(len(one.readers)), [harmless(name) for name in one.readers], fontsize=7, parse_math=False)
    axis.set_xlabel("is read", fontsize=7)
    axis.set_ylabel("reads", fontsize=7)
    axis.tick_params(length=0)


def _write(axis: Axes, x: int, y: int, text: str, weight: float, size: float) -> None:
    colour = "white" if np.sqrt(weight) > DARK else "black"
    axis.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, parse_math=False)
