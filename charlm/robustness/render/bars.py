"""Draws the bars of the page: for each kind of noise that was measured at one level, a bar for each model.

Open it to change how they look. A bar begins at 0, and is stretched to the room there is; its text is HTML beside it.
"""

from __future__ import annotations

from charlm.core.pages import escaped
from charlm.robustness.render.svg import Scale, colour, nice_ticks, short
from charlm.robustness.render.view import View, kind_of, noise_name


def bars(view: View) -> str:
    """Returns a figure for each kind of noise that was measured at one level alone; all share one scale."""
    kinds = [kind for kind in view.by_cost() if len(view.levels[kind]) == 1]
    values = [0.0]
    for model in view.models:
        found = [view.clean(model), *(view.mean(model, (kind, view.levels[kind][0])) for kind in kinds)]
        values += [view.numbers.scaled(score) for score in found if score is not None]
    ticks = nice_ticks(min(values), max(values))
    scale = Scale(ticks[0], ticks[-1], 0, 100)
    figures = [figure for kind in kinds if (figure := _figure(view, kind, scale))]
    return '<div class="plots">\n' + "\n".join(figures) + "\n</div>"


def _figure(view: View, kind: str, scale: Scale) -> str:
    """Returns the bars of one kind; "" if no model was measured."""
    rows = [row for place, model in enumerate(view.models) if (row := _bar(view, model, kind, scale, place))]
    known = kind_of(kind)
    title = f"<strong>{escaped(noise_name(kind, view.levels[kind][0]))}</strong>"
    line = escaped(f": {known.line}") if known else ""
    return f"<figure>\n<figcaption>{title}{line}</figcaption>\n" + "\n".join(rows) + "\n</figure>" if rows else ""


def _bar(view: View, model: str, kind: str, scale: Scale, place: int) -> str:
    condition = (kind, view.levels[kind][0])
    score, clean, row = view.mean(model, condition), view.clean(model), view.row(model, condition)
    if score is None:
        return ""
    show = view.numbers
    start, end = sorted((scale.at(0.0), scale.at(show.scaled(score))))
    seen = bool(row and row["seen"])
    drawn = (
        f'<rect class="bar{" hollow" if seen else ""}" x="{short(start)}" width="{short(end - start)}" height="10"/>'
    )
    value, said = show.score(score), f"{model}, {noise_name(*condition)}: {show.score(score)}"
    if clean is not None:
        drawn += f'<path class="was" d="M{short(scale.at(show.scaled(clean)))} 0V10"/>'
        value += f" ({show.score(score - clean, signed=True)})"
        said += f", {show.score(clean)} clean"
    if seen:
        said += ", seen in training"
        value += "°"
    return (
        f'<div class="row"><bdi>{escaped(model)}</bdi><svg class="{colour(place)}" viewBox="0 0 100 10"'
        f' preserveAspectRatio="none" role="img" aria-label="{escaped(said)}"><title>{escaped(said)}</title>{drawn}'
        f'</svg><span class="value">{escaped(value)}</span></div>'
    )
