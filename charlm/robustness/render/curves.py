"""Draws the curves of the page: a small SVG plot for each kind of noise of several levels, coloured by its style.

Open it to change how the plots look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from charlm.core.pages import escaped
from charlm.robustness.render.axes import (
    HEIGHT,
    LEFT,
    WIDTH,
    across,
    grid,
    label_below,
    legend,
    mark_below,
    names_of,
    upward,
)  # fmt: skip
from charlm.robustness.render.svg import Scale, colour, dashes, key, marker, nice_ticks, short
from charlm.robustness.render.view import View, kind_of, noise_name

_LABEL_WIDTH = 30  # the label of a level is left out if it is closer than this to the one before


def curves(view: View) -> str:
    """Returns the legend and the plots of all kinds of several levels, with one vertical scale for all."""
    kinds = [kind for kind in view.by_cost() if len(view.levels[kind]) > 1]
    values = [score for model in view.models for score in _extremes(view, model, kinds)]
    if not values:
        return ""
    ticks = nice_ticks(min(values), max(values))
    plots = [_figure(view, kind, ticks, number) for number, kind in enumerate(kinds) if _has_points(view, kind)]
    return f'{_legend(view, kinds)}\n<div class="plots">\n' + "\n".join(plots) + "\n</div>"


def _has_points(view: View, kind: str) -> bool:
    return any(view.mean(model, (kind, level)) is not None for model in view.models for level in view.levels[kind])


def _extremes(view: View, model: str, kinds: Sequence[str]) -> list[float]:
    """Returns all values that the curves and bands of a model reach, among them the lowest and the highest."""
    found = [] if (clean := view.clean(model)) is None else [clean]
    for kind, level in view.conditions:
        if kind in kinds and (mean := view.mean(model, (kind, level))) is not None:
            sd = view.sd(model, (kind, level)) or 0.0
            found += [mean - sd, mean + sd]
    return [view.numbers.scaled(value) for value in found]


def _figure(view: View, kind: str, ticks: Sequence[float], number: int) -> str:
    """Returns the plot of one kind."""
    levels = view.levels[kind]
    x, y = across(0.0, max(levels)), upward(ticks)
    bands, lines = [], []
    for place, model in enumerate(view.models):
        band, line = _curve(view, model, kind, x, y, place)
        bands.append(band)
        lines.append(line)
    drawn = [part for part in (_axes(ticks, levels, x, y, view), *bands, *lines) if part]
    title = escaped(f"{view.metric_name} under {kind} noise")
    return (
        f'<figure>\n<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="plot{number}-t plot{number}-d">\n'
        f'<title id="plot{number}-t">{title}</title>\n'
        f'<desc id="plot{number}-d">{escaped(_description(view, kind))}</desc>\n' + "\n".join(drawn) + "\n</svg>\n"
        f"<figcaption>{_caption(kind)}</figcaption>\n</figure>"
    )


def _caption(kind: str) -> str:
    known = kind_of(kind)
    line = f": {known.line}" if known else ""
    return f"<strong>{escaped(kind)}</strong>{escaped(line)}"


def _description(view: View, kind: str) -> str:
    """Returns a description of the curves in words: the first and the last score of each model."""
    said = []
    for model in view.models:
        ends = [level for level in view.levels[kind] if view.mean(model, (kind, level)) is not None]
        if not ends:
            said.append(f"{model} was not measured.")
            continue
        last = view.numbers.score(view.mean(model, (kind, ends[-1])))
        said.append(f"{model} goes from {view.numbers.score(view.clean(model))} clean to {last} at level {ends[-1]:g}.")
    return " ".join(said)


def _axes(ticks: Sequence[float], levels: Sequence[float], x: Scale, y: Scale, view: View) -> str:
    """Returns the grid, the labels and the names of both axes."""
    parts, labelled = grid(ticks, y), float(LEFT - _LABEL_WIDTH)
    for level in (0.0, *levels):
        at = x.at(level)
        parts.append(mark_below(at))
        room = level == levels[-1] or x.at(levels[-1]) - at >= _LABEL_WIDTH if levels else True
        if at - labelled >= _LABEL_WIDTH and room:
            labelled = at
            parts.append(label_below(at, "clean" if level == 0 else f"{level:g}"))
    return "\n".join([*parts, *names_of(x, y, "level of noise", view.metric_name)])


class _Point(NamedTuple):
    """A measured score, its standard deviation, and where it lies in the plot; a score of None is a gap in the line."""

    level: float
    score: float | None
    sd: float
    seen: bool


def _curve(view: View, model: str, kind: str, x: Scale, y: Scale, place: int) -> tuple[str, str]:
    """Returns the band of a model, and its line with markers; both have a gap where a level was not measured."""
    points = [_Point(0.0, view.clean(model), 0.0, False)]
    for level in view.levels[kind]:
        row, sd = view.row(model, (kind, level)), view.sd(model, (kind, level)) or 0.0
        points.append(_Point(level, view.mean(model, (kind, level)), sd, bool(row and row["seen"])))
    if all(point.score is None for point in points[1:]):
        return "", ""
    height = lambda score: y.at(view.numbers.scaled(score))
    bands, lines, markers, run = [], [], [], []
    for point in (*points, _Point(0.0, None, 0.0, False)):
        if point.score is not None:
            at = x.at(point.level)
            run.append((short(at), point.score, point.sd))
            markers.append(marker(place, at, height(point.score), point.seen, _said(view, model, kind, point)))
            continue
        if len(run) > 1:
            lines.append("M" + "L".join(f"{at} {short(height(score))}" for at, score, _ in run))
            if any(sd for _, _, sd in run):
                upper = [f"{at} {short(height(score + sd))}" for at, score, sd in run]
                lower = [f"{at} {short(height(score - sd))}" for at, score, sd in reversed(run)]
                bands.append("M" + "L".join(upper + lower) + "Z")
        run = []
    band = f'<path class="band {colour(place)}" d="{" ".join(bands)}"/>' if bands else ""
    line = f'<path class="line {dashes(place)}" d="{" ".join(lines)}"/>' if lines else ""
    return band, f'<g class="{colour(place)}">\n' + "\n".join([*([line] if line else []), *markers]) + "\n</g>"


def _said(view: View, model: str, kind: str, point: _Point) -> str:
    """Returns the tooltip of a marker."""
    spread = f" ± {view.numbers.score(point.sd)}" if point.sd else ""
    known = ", seen in training" if point.seen else ""
    return f"{model}, {noise_name(kind, point.level)}: {view.numbers.score(point.score)}{spread}{known}"


def _legend(view: View, kinds: Sequence[str]) -> str:
    """Returns the list of models with their markers, and an explanation of hollow markers if there are any."""
    seen = any(row["seen"] and row["kind"] in kinds for row in view.noise)
    hollow = f"<li>{key('c', marker(0, 17, 8, True))}hollow: noise that the model has seen in training</li>"
    return legend(view.models, [hollow] if seen else [])
