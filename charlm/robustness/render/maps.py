"""Builds the heat maps of a report: what each kind of noise costs at each level.

Open it to change what is compared, or when a map of models replaces those of levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from charlm.robustness.render.numbers import NOTHING, Interval
from charlm.robustness.render.parts import STEPS, Block, Cell, Grid, Inline, Name, RichText, Shaded, Strong, Table
from charlm.robustness.render.view import Condition, View

_MOST_MAPS = 4  # more models than these share one map of noise and model
_SEEN = "°"


def maps(view: View) -> list[Block]:
    """Returns the heat maps: of two models their difference first, then each model's; of many models a single one."""
    losses = {at for model in view.models for at in view.conditions if view.loss(model, at)}
    kinds = [kind for kind in view.by_cost() if any(at[0] == kind for at in losses)]
    models = [model for model in view.models if any(view.loss(model, condition) for condition in view.conditions)]
    if not kinds:
        return []
    largest = max(abs(loss.value) for model in models for at in view.conditions if (loss := view.loss(model, at)))
    short = all(len(view.levels[kind]) == 1 for kind in kinds)
    if short or len(models) > _MOST_MAPS:
        found = [_of_models(view, kinds, models, largest, short)]
    else:
        found = [_of_levels(view, kinds, model, number, largest) for number, model in enumerate(models)]
    if len(models) == 2 and (gap := _of_gaps(view, kinds, models[0], models[1], largest)):
        found.insert(0, gap)
    text: list[Inline] = [
        "The stronger the colour, the more; all maps share one scale, the costliest noise is at the top."
    ]
    if any(row["seen"] for row in view.noise):
        text.append(f" {_SEEN}: the model has met this noise in training.")
    return [text, Grid(found)]


def _of_levels(view: View, kinds: Sequence[str], model: str, number: int, largest: float) -> Table:
    """Returns the map of one model: a row for each kind, a column for each level."""
    levels = sorted({level for kind in kinds for level in view.levels[kind]})
    rows: list[list[Cell]] = [
        [kind, *(_change(view, model, (kind, level), largest) for level in levels)] for kind in kinds
    ]
    better = "lower" if view.lower_is_better else "higher"
    caption: list[Inline] = [Name(model), f": change of {view.metric_name} by noise of each level"]
    caption.append(f"{view.numbers.in_points} ({better} is better).")
    return Table(f"map-{number}", caption, ["noise", *(f"{level:g}" for level in levels)], rows)


def _change(view: View, model: str, condition: Condition, largest: float) -> Cell:
    row, loss = view.row(model, condition), view.loss(model, condition)
    return _shaded(view, loss, largest, seen=bool(row and row["seen"]))


def _of_models(view: View, kinds: Sequence[str], models: Sequence[str], largest: float, short: bool) -> Table:
    """Returns the map of all models: a row for each kind, a column for each model."""
    rows: list[list[Cell]] = []
    for kind in kinds:
        cells: list[Cell] = []
        for model in models:
            found = view.average(model, [(kind, level) for level in view.levels[kind]])
            seen = any(row["seen"] for at in view.levels[kind] if (row := view.row(model, (kind, at))))
            cells.append(_shaded(view, found.loss if found else None, largest, seen=seen))
        rows.append([_with_level(view, kind) if short else kind, *cells])
    what = "by noise" if short else "by noise, mean over its levels"
    caption = f"Change of {view.metric_name} {what}{view.numbers.in_points}."
    return Table("map-models", caption, ["noise", *(Name(model) for model in models)], rows)


def _of_gaps(view: View, kinds: Sequence[str], a: str, b: str, largest: float) -> Table | None:
    """Returns the map of the difference of two models under noise; None if they were not compared."""
    gaps = {condition: gap for condition in view.conditions if (gap := view.gap(a, b, condition))}
    if not gaps:
        return None
    levels = sorted({level for _, level in gaps})
    single = all(len(view.levels[kind]) == 1 for kind in kinds)
    rows: list[list[Cell]] = []
    for kind in kinds:
        if single:
            rows.append([_with_level(view, kind), _gap(view, gaps.get((kind, view.levels[kind][0])), largest)])
        else:
            rows.append([kind, *(_gap(view, gaps.get((kind, level)), largest) for level in levels)])
    caption: list[Inline] = [Name(a), " minus ", Name(b), f": {view.metric_name} under noise{view.numbers.in_points};"]
    caption += [" + (blue): ", Name(a), " is better, − (orange): ", Name(b), ". Bold: the interval excludes 0."]
    header: list[RichText] = ["noise", *(["difference"] if single else [f"{level:g}" for level in levels])]
    return Table("map-gap", caption, header, rows)


def _gap(view: View, gap: Interval | None, largest: float) -> Cell:
    if gap is None:
        return NOTHING
    text = view.numbers.score(gap.value, signed=True)
    hue = "first" if gap.value > 0 else "second"
    return Shaded(Strong(text) if gap.excludes_zero else text, hue, _step(gap.value, largest))


def _shaded(view: View, loss: Interval | None, largest: float, seen: bool) -> Cell:
    if loss is None:
        return NOTHING
    text = view.numbers.score(view.change(loss).value, signed=True) + (_SEEN if seen else "")
    return Shaded(text, "loss" if loss.value > 0 else "gain", _step(loss.value, largest))


def _step(value: float, largest: float) -> int:
    """Returns how strong the colour of a value is, 0 to `STEPS`; anything that is shown as a number has some."""
    return min(STEPS, max(1, round(STEPS * abs(value) / largest))) if value and largest else 0


def _with_level(view: View, kind: str) -> str:
    return f"{kind} {view.levels[kind][0]:g}"
