"""Builds the sections of all scores: plots over levels of noise, and the tables behind them.

Open it to change which scores are shown, or how losses are averaged in the tables.
"""

from __future__ import annotations

from charlm.robustness.render.numbers import NOTHING, score_name
from charlm.robustness.render.parts import Block, Bullets, Folded, Name, Plot, RichText, Table
from charlm.robustness.render.view import Condition, View, noise_name, unique


def over_levels(view: View) -> list[Block]:
    """Returns the plots of scores under noise, with the numbers behind them; nothing if there are none."""
    if not any(view.mean(model, condition) is not None for model in view.models for condition in view.conditions):
        return []
    plots: list[Block] = []
    if any(len(levels) > 1 for levels in view.levels.values()):
        plots += [
            "Lines are means over seeds of the noise, bands one standard deviation. All plots share the scale of"
            f" {view.metric_name}, which need not begin at 0; a level is not the same amount of damage in two kinds.",
            Plot("curves"),
        ]
    if any(len(levels) == 1 for levels in view.levels.values()):
        plots += [
            f"Bars: mean {view.metric_name} under noise that was measured at one level alone; a tick marks the score on"
            f" clean text. Beside them the score, and its change{view.numbers.in_points}."
            + (" °, pale: the model has met this noise in training." if any(row["seen"] for row in view.noise) else ""),
            Plot("bars"),
        ]
    return [*plots, *_missing(view), Folded("The numbers behind the plots", [_means(view)])]


def _means(view: View) -> Table:
    """Returns the table of mean scores, clean and under each noise."""
    rows: list[list[RichText]] = []
    if any(view.clean(model) is not None for model in view.models):
        rows.append(["clean", *(view.numbers.score(view.clean(model)) for model in view.models)])
    for condition in view.conditions:
        rows.append([noise_name(*condition), *(_with_spread(view, model, condition) for model in view.models)])
    caption = f"{view.metric_name}: mean ± standard deviation over seeds of the noise. {NOTHING}: not measured."
    header: list[RichText] = ["noise", *(Name(model) for model in view.models)]
    return Table("table-scores", caption, header, rows)


def _with_spread(view: View, model: str, condition: Condition) -> str:
    mean, sd = view.mean(model, condition), view.sd(model, condition)
    return view.numbers.score(mean) + ("" if mean is None or sd is None else f" ± {view.numbers.score(sd)}")


def _missing(view: View) -> list[Block]:
    """Returns a list that says under which kinds of noise each model was not measured; empty if there are none."""
    found: list[RichText] = []
    for model in view.models:
        kinds = [
            kind
            for kind, levels in view.levels.items()
            if all(view.mean(model, (kind, level)) is None for level in levels)
        ]
        if kinds:
            found.append((Name(model), f" was not measured under {', '.join(kinds)}."))
    return [Bullets(found)] if found else []


def scores(view: View) -> list[Block]:
    """Returns the tables of all scores on clean text, and of what each noise costs, averaged and one by one."""
    return [*_clean(view), *_changes(view)]


def _clean(view: View) -> list[Table]:
    """Returns the table of all scores on clean text; the main score of the report comes first."""
    names = sorted({name for scores in view.results["clean"].values() for name in scores or {}} - {view.metric})
    names = [view.metric, *names]
    rows = [
        [Name(model), *(view.numbers.score(view.clean(model, name), name) for name in names)]
        for model in view.models
        if any(view.clean(model, name) is not None for name in names)
    ]
    if not rows:
        return []
    header: list[RichText] = ["model", *(score_name(name) for name in names)]
    caption = f"Scores on clean text; the report is about {view.metric_name}."
    return [Table("table-clean", caption, header, rows)]


def _changes(view: View) -> list[Block]:
    """Returns the average changes, then those of each condition in two tables: unseen and seen noise."""
    if not any(view.measured(model, seen) for model in view.models for seen in (False, True)):
        return []
    better = "lower" if view.lower_is_better else "higher"
    text = (
        f"A change is {view.metric_name} under noise minus {view.metric_name} on clean text, for {better} is better. In"
        " brackets, its bootstrap interval. The interval of an average is the mean of its conditions' bounds; all"
        " conditions are made from the same examples, so it is, if anything, too wide. Draws of a noise are pooled"
        " before they are scored, so a change can differ in its last digits from that of the mean scores above."
    )
    of_conditions = [table for seen in (False, True) if (table := _of_conditions(view, seen))]
    return [text, _averages(view), *of_conditions]


def _averages(view: View) -> Table:
    """Returns the mean change of each model under noise unseen by all models, unseen by the model, and seen by it."""
    ranked, shared = view.ranked()
    rows: list[list[RichText]] = []
    sets = [("unseen by all", model, shared) for model in ranked if len(ranked) > 1]
    sets += [("unseen", model, view.measured(model, False)) for model in ranked]
    sets += [("seen", model, view.measured(model, True)) for model in ranked]
    for name, model, conditions in sets:
        if found := view.average(model, conditions):
            change = view.numbers.interval(view.change(found.loss), signed=True)
            rows.append([name, Name(model), str(found.conditions), change, view.numbers.score(found.score)])
    header = ["noise", "model", "conditions", "mean change", f"mean {view.metric_name}"]
    caption = "Mean change over conditions; only those unseen by, and measured for, all models are a fair comparison."
    if len(ranked) < 2:
        caption = "Mean change over conditions."
    return Table("table-averages", caption, header, rows, row_headers=2)


def _of_conditions(view: View, seen: bool) -> Table | None:
    """Returns the changes by noise that some model has seen in training, or has not; None if there is none."""
    models = [model for model in view.models if view.measured(model, seen)]
    wanted = {condition for model in models for condition in view.measured(model, seen)}
    rows: list[list[RichText]] = []
    for condition in view.conditions:
        if condition not in wanted:
            continue
        cells: list[RichText] = []
        for model in models:
            row, loss = view.row(model, condition), view.loss(model, condition)
            other = bool(row and row["seen"]) != seen
            shown = view.numbers.interval(view.change(loss) if loss else None, signed=True)
            cells.append(("unseen" if seen else "seen") if loss and other else shown)
        rows.append([noise_name(*condition), *cells])
    if not rows:
        return None
    name = "seen" if seen else "unseen"
    others = unique(cell for row in rows for cell in row[1:] if cell in ("seen", "unseen"))
    elsewhere = f" “{others[0]}”: in the other table." if others else ""
    caption = f"Change of {view.metric_name} under noise that is {name} in training.{elsewhere}"
    header: list[RichText] = ["noise", *(Name(model) for model in models)]
    return Table(f"table-{name}", caption, header, rows)
