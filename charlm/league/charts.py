"""Draws the charts of a league's report as SVG: values by words or operations, on a logarithmic axis.

Open it to change how they look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from charlm.core.pages import escaped
from charlm.robustness.render.axes import (
    HEIGHT,
    WIDTH,
    across,
    grid,
    label_below,
    legend,
    mark_below,
    names_of,
    upward,
)  # fmt: skip
from charlm.robustness.render.svg import Scale, colour, dashes, marker, nice_ticks, short

_LABELS = 36  # two labels of the lower axis are at least so far apart
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E", 21: "Z"}


class Point(NamedTuple):
    """A value at a cost, with its interval; both of its ends are None if it has none."""

    cost: float
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart of several curves.

    Attributes:
      title: what is drawn.
      cost: name of the lower axis; it is logarithmic.
      value: name of the axis on the left.
      curves: of each curve its name and its points, by rising cost; none costs nothing.
    """

    title: str
    cost: str
    value: str
    curves: Sequence[tuple[str, Sequence[Point]]]


def drawn(charts: Sequence[Chart]) -> str:
    """Returns the charts side by side below one legend; curves of one name look alike in all of them."""
    names = list(dict.fromkeys(name for chart in charts for name, _ in chart.curves))
    figures = "\n".join(_figure(chart, names) for chart in charts)
    return f'{legend(names)}\n<div class="plots">\n{figures}\n</div>'


def _figure(chart: Chart, names: Sequence[str]) -> str:
    points = [point for _, curve in chart.curves for point in curve]
    ticks = nice_ticks(*_range([one for point in points for one in point[1:] if one is not None]))
    low, high = _range([math.log10(point.cost) for point in points])
    x, y = across(low, high if high > low else low + 1.0), upward(ticks)
    lines = [_curve(chart, curve, name, names.index(name), x, y) for name, curve in chart.curves]
    ends = (f"{name} goes from {_said(chart, curve[0])} to {_said(chart, curve[-1])}." for name, curve in chart.curves)
    said = escaped(" ".join([f"{chart.title}.", *ends]))
    return (
        f'<figure>\n<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">\n'
        + "\n".join([_axes(chart, ticks, x, y), *lines])
        + f"\n</svg>\n<figcaption>{escaped(chart.title)}</figcaption>\n</figure>"
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _axes(chart: Chart, ticks: Sequence[float], x: Scale, y: Scale) -> str:
    """Returns the grid, the labels and the names of both axes."""
    costs = _round_costs(x.low, x.high)
    rounder = [cost for cost in costs if f"{cost:e}"[0] in "125"]
    labels = rounder if len(rounder) > 1 else costs
    parts, labelled = grid(ticks, y), -math.inf
    for cost in costs:
        at = x.at(math.log10(cost))
        parts.append(mark_below(at))
        if cost in labels and at - labelled >= _LABELS:
            labelled = at
            parts.append(label_below(at, short_number(cost)))
    return "\n".join([*parts, *names_of(x, y, chart.cost, chart.value)])


def _round_costs(low: float, high: float) -> list[float]:
    """Returns the costs of one digit whose logarithms are between two; the ends if there are less than two."""
    powers = range(math.floor(low), math.floor(high) + 1)
    found = [digit * 10.0**power for power in powers for digit in range(1, 10)]
    inside = [cost for cost in found if low - 1e-9 <= math.log10(cost) <= high + 1e-9]
    return inside if len(inside) > 1 else [10.0**low, 10.0**high]


def short_number(value: float) -> str:
    """Returns a number from 1 on with a prefix of the metric system: 2500000 as "2.5M"."""
    value = float(f"{value:.3g}")
    power = min(3 * int(math.log10(value) / 3 + 1e-9), max(_PREFIXES)) if value >= 1 else 0
    return f"{value / 10.0**power:.3g}{_PREFIXES[power]}"


def _curve(chart: Chart, points: Sequence[Point], name: str, place: int, x: Scale, y: Scale) -> str:
    """Returns the line of a curve with markers and intervals."""
    across = [short(x.at(math.log10(point.cost))) for point in points]
    parts = []
    if len(points) > 1:
        path = "L".join(f"{at} {short(y.at(point.value))}" for at, point in zip(across, points, strict=True))
        parts.append(f'<path class="line {dashes(place)}" d="M{path}"/>')
    for at, point in zip(across, points, strict=True):
        if point.low is not None and point.high is not None:
            parts.append(f'<path class="line" d="M{at} {short(y.at(point.low))}V{short(y.at(point.high))}"/>')
        said = f"{name}: {_said(chart, point)}"
        parts.append(marker(place, float(at), y.at(point.value), False, said))
    return f'<g class="{colour(place)}">\n' + "\n".join(parts) + "\n</g>"


def _said(chart: Chart, point: Point) -> str:
    return f"{chart.value} {point.value:.4g} at {short_number(point.cost)} {chart.cost}"
