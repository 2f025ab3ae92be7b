"""Builds a report from measurements, section by section.

Open it to add a section or to change their order. If something was not measured, its section has a sentence that says
so instead of an empty table.
"""

from __future__ import annotations

from charlm.robustness.render_details import (
    adversarial,
    comparisons,
    groups,
    segmentation,
    sensitivity,
)
from charlm.robustness.render_how import how, reproduce
from charlm.robustness.render_parts import (
    Bullets,
    Curves,
    Inline,
    Name,
    PageBlock,
    Report,
    RichText,
    Section,
    Table,
    listed,
)
from charlm.robustness.render_summary import said
from charlm.robustness.render_view import NOTHING, Condition, View, noise_name, score_name, unique

_IN_TITLE = 4  # maximum number of models named in the title


def report_of(view: View) -> Report:
    """Returns the whole report."""
    task = view.task.replace("_", " ")
    shown = list(view.models[:_IN_TITLE])
    if more := len(view.models) - len(shown):
        shown.append(f"{more} more")
    examples = view.results["examples"] or 0
    subtitle: list[Inline] = [f"{view.metric_name} on clean text and under noise; examples: {examples}"]
    if more or not shown:
        subtitle += ["; models: ", *listed([Name(model) for model in view.models] or ["none"])]
    return Report(
        title=f"Robustness in {task}" + (": " if shown else "") + "".join(str(part) for part in listed(shown)),
        subtitle=subtitle,
        sections=[
            Section("says", "What this says", [*said(view)]),
            Section("how", "How it was measured", how(view)),
            Section("clean", "Clean scores", _clean(view)),
            Section("curves", "Scores over levels of noise", _curves(view)),
            Section("drops", "What noise costs", _drops(view)),
            Section("comparisons", "Model against model", comparisons(view)),
            Section("groups", "Groups of words", groups(view)),
            Section("segmentation", "Over-segmentation", segmentation(view)),
            Section("sensitivity", "Sensitivity", sensitivity(view)),
            Section("adversarial", "Adversarial edits", adversarial(view)),
            Section("notes", "Notes", _notes(view)),
            Section("reproduce", "How to reproduce", reproduce(view)),
        ],
    )


def _clean(view: View) -> list[PageBlock]:
    """Returns the table of all scores on clean text; the main score of the report comes first."""
    names = sorted({name for scores in view.results["clean"].values() for name in scores or {}} - {view.metric})
    names = [view.metric, *names]
    rows = [
        [Name(model), *(view.number(view.clean(model, name), name) for name in names)]
        for model in view.models
        if view.results["clean"].get(model)
    ]
    if not rows:
        return ["No model was scored on clean text."]
    header: list[RichText] = ["model", *(score_name(name) for name in names)]
    caption = f"Scores on clean text; the report is about {view.metric_name}."
    return [Table("table-clean", caption, header, rows)]


def _curves(view: View) -> list[PageBlock]:
    """Returns the plots and the numbers behind them."""
    if not view.conditions:
        return ["No noise was measured."]
    rows: list[list[RichText]] = []
    if any(view.clean(model) is not None for model in view.models):
        rows.append(["clean", *(view.number(view.clean(model)) for model in view.models)])
    for condition in view.conditions:
        rows.append([noise_name(*condition), *(_with_spread(view, model, condition) for model in view.models)])
    caption = f"{view.metric_name}: mean ± standard deviation over seeds of the noise. {NOTHING}: not measured."
    header: list[RichText] = ["noise", *(Name(model) for model in view.models)]
    return [
        "Lines are means over seeds of the noise, bands one standard deviation. All plots share the scale of"
        f" {view.metric_name}, which need not begin at 0; a level is not the same amount of damage in two kinds.",
        Curves(),
        *_missing(view),
        Table("table-scores", caption, header, rows),
    ]


def _with_spread(view: View, model: str, condition: Condition) -> str:
    mean, sd = view.mean(model, condition), view.sd(model, condition)
    return view.number(mean) + ("" if mean is None or sd is None else f" ± {view.number(sd)}")


def _missing(view: View) -> list[PageBlock]:
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


def _drops(view: View) -> list[PageBlock]:
    """Returns the average losses, then the losses of each condition in two tables: unseen and seen noise."""
    if not any(view.measured(model, seen) for model in view.models for seen in (False, True)):
        return ["No loss under noise was measured."]
    better = "lower" if view.lower_is_better else "higher"
    blocks: list[PageBlock] = [
        f"A loss is {view.metric_name} on clean text against {view.metric_name} under noise, for {better} is better:"
        " positive means worse under noise. In brackets, its bootstrap interval. The interval of an average is the"
        " mean of its conditions' bounds; all conditions are made from the same examples, so it is, if anything,"
        " too wide. Draws of a noise are pooled before they are scored, so a loss can differ in its last digits from"
        " that of the mean scores above.",
        _averages(view),
    ]
    for seen, name in ((False, "unseen"), (True, "seen")):
        if table := _losses(view, seen):
            blocks.append(table)
        else:
            blocks.append(f"No noise was measured that is {name} in training by any of the models.")
    return blocks


def _averages(view: View) -> Table:
    """Returns the mean loss of each model under noise unseen by all models, unseen by the model, and seen by it."""
    ranked, shared = view.ranked()
    rows: list[list[RichText]] = []
    sets = [("unseen by all", model, shared) for model in ranked if len(ranked) > 1]
    sets += [("unseen", model, view.measured(model, False)) for model in ranked]
    sets += [("seen", model, view.measured(model, True)) for model in ranked]
    for name, model, conditions in sets:
        if found := view.average(model, conditions):
            loss = found.loss
            numbers = [view.number(x) for x in (loss.value, loss.low, loss.high, found.score)]
            rows.append([name, Name(model), str(found.conditions), *numbers])
    header = ["noise", "model", "conditions", "mean loss", "low", "high", f"mean {view.metric_name}"]
    caption = "Mean loss over conditions; only those unseen by, and measured for, all models are a fair comparison."
    if len(ranked) < 2:
        caption = "Mean loss over conditions."
    return Table("table-averages", caption, header, rows, row_headers=2)


def _losses(view: View, seen: bool) -> Table | None:
    """Returns the losses of the conditions that some model has seen in training, or has not; None if there are none."""
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
            cells.append(("unseen" if seen else "seen") if loss and other else view.interval(loss))
        rows.append([noise_name(*condition), *cells])
    if not rows:
        return None
    name = "seen" if seen else "unseen"
    others = unique(cell for row in rows for cell in row[1:] if cell in ("seen", "unseen"))
    elsewhere = f" “{others[0]}”: in the other table." if others else ""
    caption = f"Loss of {view.metric_name} under noise that is {name} in training.{elsewhere}"
    header: list[RichText] = ["noise", *(Name(model) for model in models)]
    return Table(f"table-{name}", caption, header, rows)


def _notes(view: View) -> list[PageBlock]:
    notes = [str(note) for note in view.results["notes"]]
    return [Bullets(notes)] if notes else ["There are none."]
