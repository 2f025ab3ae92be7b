"""Draws the curves of the HTML report: one small SVG plot for each kind of noise, coloured by the style of the page.

Open it to change how the plots look. The SVG is written by hand, not by a plotting library, for four reasons: the
policy of the page allows no inline styles, colours must follow light and dark mode, text must stay text, and equal
numbers must give equal bytes whatever is installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from charlm.robustness.render_parts import harmless
from charlm.robustness.render_view import View, kind_of, noise_name

_WIDTH, _HEIGHT = 340, 236
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 12, 40
_INSET = 10  # keeps markers off the axis and its labels
_COLOURS = 7  # classes c0 to c6 in the style of the page
_MARKERS = 7
_LABEL_WIDTH = 30  # the label of a level is left out if it is closer than this to the one before


class Scale(NamedTuple):
    """A linear map from values [low, high] to coordinates [start, end] of the picture."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Returns the coordinate of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def curves(view: View) -> str:
    """Returns the legend and the plots of all kinds that have a measurement, with one vertical scale for all."""
    values = [score for model in view.models for score in _extremes(view, model)]
    if not values:
        return ""
    ticks = nice_ticks(min(values), max(values))
    plots = [_figure(view, kind, ticks, number) for number, kind in enumerate(view.levels) if _has_points(view, kind)]
    return f'{_legend(view)}\n<div class="plots">\n' + "\n".join(plots) + "\n</div>"


def _has_points(view: View, kind: str) -> bool:
    return any(view.mean(model, (kind, level)) is not None for model in view.models for level in view.levels[kind])


def nice_ticks(low: float, high: float) -> list[float]:
    """Returns four to eight round numbers; the first is at most `low`, the last at least `high`."""
    width = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(width / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if width / (step * factor) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _extremes(view: View, model: str) -> list[float]:
    """Returns all values that the curves and bands of a model reach, among them the lowest and the highest."""
    found = [] if (clean := view.clean(model)) is None else [clean]
    for condition in view.conditions:
        if (mean := view.mean(model, condition)) is not None:
            sd = view.sd(model, condition) or 0.0
            found += [mean - sd, mean + sd]
    return found


def _figure(view: View, kind: str, ticks: Sequence[float], number: int) -> str:
    """Returns the plot of one kind."""
    levels = view.levels[kind]
    x = Scale(0.0, max(levels), _LEFT + _INSET, _WIDTH - _RIGHT - _INSET)
    y = Scale(ticks[0], ticks[-1], _HEIGHT - _BOTTOM, _TOP)
    bands, lines = [], []
    for place, model in enumerate(view.models):
        band, line = _curve(view, model, kind, x, y, place)
        bands.append(band)
        lines.append(line)
    drawn = [part for part in (_axes(ticks, levels, x, y, view), *bands, *lines) if part]
    title = _escaped(f"{view.metric_name} under {kind} noise")
    return (
        f'<figure>\n<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="plot{number}-t plot{number}-d">\n'
        f'<title id="plot{number}-t">{title}</title>\n'
        f'<desc id="plot{number}-d">{_escaped(_description(view, kind))}</desc>\n' + "\n".join(drawn) + "\n</svg>\n"
        f"<figcaption>{_caption(kind)}</figcaption>\n</figure>"
    )


def _caption(kind: str) -> str:
    known = kind_of(kind)
    line = f": {known.line}" if known else ""
    return f"<strong>{_escaped(kind)}</strong>{_escaped(line)}"


def _description(view: View, kind: str) -> str:
    """Returns a description of the curves in words: the first and the last score of each model."""
    said = []
    for model in view.models:
        ends = [level for level in view.levels[kind] if view.mean(model, (kind, level)) is not None]
        if not ends:
            said.append(f"{model} was not measured.")
            continue
        last = view.number(view.mean(model, (kind, ends[-1])))
        said.append(f"{model} goes from {view.number(view.clean(model))} clean to {last} at level {ends[-1]:g}.")
    return " ".join(said)


def _axes(ticks: Sequence[float], levels: Sequence[float], x: Scale, y: Scale, view: View) -> str:
    """Returns the grid, the labels and the names of both axes."""
    digits = max(0, min(6, math.ceil(-math.log10(ticks[1] - ticks[0]) - 1e-9)))
    if any(abs(round(tick, digits) - tick) > 1e-9 for tick in ticks):
        digits += 1  # steps of 0.025
    parts = []
    for tick in ticks:
        at = _n(y.at(tick))
        parts.append(f'<path class="grid" d="M{_LEFT} {at}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{at}" dy="4" text-anchor="end">{tick:.{digits}f}</text>')
    labelled = _LEFT - _LABEL_WIDTH
    for level in (0.0, *levels):
        at = x.at(level)
        parts.append(f'<path class="tickmark" d="M{_n(at)} {_HEIGHT - _BOTTOM}v4"/>')
        room = level == levels[-1] or x.at(levels[-1]) - at >= _LABEL_WIDTH if levels else True
        if at - labelled >= _LABEL_WIDTH and room:
            labelled = at
            name = "clean" if level == 0 else f"{level:g}"
            parts.append(
                f'<text class="tick" x="{_n(at)}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{name}</text>'
            )
    middle = _n((x.start + x.end) / 2)
    parts.append(f'<text class="axis" x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">level of noise</text>')
    metric = _escaped(view.metric_name)
    height = _n((y.start + y.end) / 2)
    parts.append(
        f'<text class="axis" transform="translate(10 {height}) rotate(-90)" text-anchor="middle">{metric}</text>'
    )
    return "\n".join(parts)


def _curve(view: View, model: str, kind: str, x: Scale, y: Scale, place: int) -> tuple[str, str]:
    """Returns the band of a model, and its line with markers; both have a gap where a level was not measured."""
    points: list[tuple[float, float | None, float, bool]] = [(0.0, view.clean(model), 0.0, False)]
    for level in view.levels[kind]:
        row = view.row(model, (kind, level))
        seen = bool(row and row["seen"])
        points.append((level, view.mean(model, (kind, level)), view.sd(model, (kind, level)) or 0.0, seen))
    if all(score is None for _, score, _, _ in points[1:]):
        return "", ""
    bands, lines, markers, run = [], [], [], []
    for point in (*points, (0.0, None, 0.0, False)):
        if point[1] is not None:
            run.append((x.at(point[0]), point[1], point[2]))
            markers.append(_marker(place, x.at(point[0]), y.at(point[1]), point[3], _said(view, model, kind, *point)))
            continue
        if len(run) > 1:
            lines.append("M" + "L".join(f"{_n(at)} {_n(y.at(score))}" for at, score, _ in run))
            if any(sd for _, _, sd in run):
                upper = [f"{_n(at)} {_n(y.at(score + sd))}" for at, score, sd in run]
                lower = [f"{_n(at)} {_n(y.at(score - sd))}" for at, score, sd in reversed(run)]
                bands.append("M" + "L".join(upper + lower) + "Z")
        run = []
    colour = place % _COLOURS
    band = f'<path class="band c{colour}" d="{" ".join(bands)}"/>' if bands else ""
    line = f'<path class="line d{place % 4}" d="{" ".join(lines)}"/>' if lines else ""
    return band, f'<g class="c{colour}">\n' + "\n".join([*([line] if line else []), *markers]) + "\n</g>"


def _said(view: View, model: str, kind: str, level: float, score: float | None, sd: float, seen: bool) -> str:
    """Returns the tooltip of a marker."""
    spread = f" ± {view.number(sd)}" if sd else ""
    known = ", seen in training" if seen else ""
    return f"{model}, {noise_name(kind, level)}: {view.number(score)}{spread}{known}"


def _marker(place: int, x: float, y: float, hollow: bool, said: str = "") -> str:
    """Returns a marker in the shape of the model; it is hollow if the model has seen the noise in training."""
    number = (place + place // _MARKERS) % _MARKERS  # with more models than colours, pair colours with other shapes
    shapes = [
        "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z",  # circle
        "M-3.3 -3.3h6.6v6.6h-6.6Z",  # square
        "M0 -4.4L4.2 3.2H-4.2Z",  # triangle
        "M0 -4.8L4 0L0 4.8L-4 0Z",  # diamond
        "M0 4.4L4.2 -3.2H-4.2Z",  # inverted triangle
        "M-1.5 -4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9Z",  # plus
        "M0 -4.8L1.4 -1.5L4.8 -1.5L2 0.8L3 4.4L0 2.3L-3 4.4L-2 0.8L-4.8 -1.5L-1.4 -1.5Z",  # star
    ]
    title = f"<title>{_escaped(said)}</title>" if said else ""
    kind = "marker hollow" if hollow else "marker"
    return f'<path class="{kind}" transform="translate({_n(x)} {_n(y)})" d="{shapes[number]}">{title}</path>'


def _legend(view: View) -> str:
    """Returns the list of models with their markers, and an explanation of hollow markers if there are any."""
    items = []
    for place, model in enumerate(view.models):
        line = f'<path class="line d{place % 4}" d="M2 8H32"/>'
        key = _key(f"c{place % _COLOURS}", line + _marker(place, 17, 8, False))
        items.append(f"<li>{key}<bdi>{_escaped(model)}</bdi></li>")
    if any(row["seen"] for row in view.noise):
        items.append(f"<li>{_key('c', _marker(0, 17, 8, True))}hollow: noise that the model has seen in training</li>")
    return '<ul class="legend">\n' + "\n".join(items) + "\n</ul>"


def _key(colour: str, drawn: str) -> str:
    return f'<svg class="key" viewBox="0 0 34 16" aria-hidden="true"><g class="{colour}">{drawn}</g></svg>'


def _n(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"


def _escaped(text: str) -> str:
    return escape(harmless(text))
