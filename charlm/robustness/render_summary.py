"""Writes the summary of a report: a few sentences that claim only what the numbers support.

Open it to change which claims the numbers must support, and how certain they must be.
"""

from __future__ import annotations

from collections.abc import Sequence

from charlm.robustness.render_parts import Inline, Name, RichText, listed
from charlm.robustness.render_view import Average, Condition, Interval, View, unique


def said(view: View) -> list[RichText]:
    """Returns paragraphs about clean text, about unseen noise, and about what the intervals do not cover."""
    found: list[RichText] = [*_clean(view), *_unseen(view)]
    if not found:
        return ["Nothing was measured that models could be compared by."]
    return [*found, _reach(view)]


def comparison(view: View, a: str, b: str, condition: Condition | None) -> Interval | None:
    """Returns by how much model `a` is better than `b` in the main score, on clean text (None) or under a noise."""
    for row in view.results["comparisons"]:
        clean = row["kind"] is None or not row["level"]
        at = None if clean else (row["kind"], row["level"])
        if row["metric"] != view.metric or at != condition or {row["a"], row["b"]} != {a, b}:
            continue
        if row["difference"] is not None:
            return view.oriented(row) if row["a"] == a else view.oriented(row).turned()
    return None


def _clean(view: View) -> list[RichText]:
    """Returns a paragraph on which model is best on clean text, and which others may be as good."""
    scores = {model: score for model in view.models if (score := view.clean(model)) is not None}
    if not scores:
        return []
    metric = view.metric_name
    order = sorted(scores, key=lambda model: scores[model] if view.lower_is_better else -scores[model])
    best, others = order[0], order[1:]
    value = view.number(scores[best])
    if not others:
        return [["On clean text ", Name(best), f" has {metric} {value}."]]
    equal = [model for model in order if view.number(scores[model]) == value]
    if len(equal) > 1:
        return [["On clean text ", *listed([Name(model) for model in equal]), f" have the same {metric}, {value}."]]
    text: list[Inline] = ["On clean text ", Name(best), f" has the best {metric}, {value}"]
    text += _lead(view, best, others[0], scores[others[0]])
    gaps = {model: comparison(view, best, model, None) for model in others[1:]}
    unsure = [model for model, gap in gaps.items() if gap and not gap.excludes_zero]
    if unsure:
        text += [" Its lead on ", *listed([Name(model) for model in unsure]), " is within noise."]
    return [text]


def _lead(view: View, best: str, second: str, score: float) -> list[Inline]:
    """Returns how far the second model is behind, and whether the difference is more than chance."""
    gap = comparison(view, best, second, None)
    after: list[Inline] = ["; ", Name(second), f" follows with {view.number(score)}"]
    if gap is None or not gap.known:
        return [*after, ". No interval of the difference was measured, so it may be chance."]
    size = f"{view.number(gap.value)} ({_between(view, gap)})"
    if not gap.excludes_zero:
        return [*after, f". The difference, {size}, is within noise: its interval includes 0."]
    if gap.value < 0:
        return [*after, f". Their comparison, {size}, says the opposite: look at the seeds before trusting either."]
    return [*after, f". The difference is {size}."]


def _unseen(view: View) -> list[RichText]:
    """Returns a paragraph on which model loses least under noise that none saw in training, and how certain that is."""
    models, conditions = view.ranked()
    if not models:
        return []
    averages = {model: found for model in models if (found := view.average(model, conditions))}
    if not averages:
        return [
            "No noise was measured for every model that all of them met here for the first time, so they are not ranked"
            " by what noise costs them; the tables say what each loses."
            if len(models) > 1
            else ["All measured noise was part of the training of ", Name(models[0]), "."]
        ]
    order = sorted(averages, key=lambda model: averages[model].loss.value)
    first, metric = order[0], view.metric_name
    kinds = unique(kind for kind, _ in conditions)
    where = f"{_count(len(conditions), 'condition')} ({_count(len(kinds), 'kind')} of noise at their levels)"
    if len(order) == 1:
        loss = f" loses {_loss(view, averages[first])} {metric} on average."
        return [[f"Over {where} that it has not met in training, ", Name(first), loss]]
    text: list[Inline] = [f"Over the {where} that no model has met in training, ", Name(first)]
    text += [f" loses least {metric} on average: {_loss(view, averages[first])}"]
    for model in order[1:]:
        text += ["; ", Name(model), f" {_loss(view, averages[model])}"]
    text += [".", *_certainty(averages, order), *_highest(view, averages, order)]
    return [text]


def _certainty(averages: dict[str, Average], order: Sequence[str]) -> list[Inline]:
    """Returns a sentence on whether the lead of the first model over the others is more than chance."""
    first = averages[order[0]].loss
    unknown = [model for model in order if not averages[model].loss.known]
    if unknown:
        names = listed([Name(model) for model in unknown])
        return [" There is no interval of ", *names, ", so the order may be chance."]
    near = [model for model in order[1:] if first.overlaps(averages[model].loss)]
    if not near:
        return [" The interval of ", Name(order[0]), " overlaps no other model's."]
    names = listed([Name(model) for model in near])
    return [" The intervals of ", Name(order[0]), " and ", *names, " overlap: the difference is within noise."]


def _highest(view: View, averages: dict[str, Average], order: Sequence[str]) -> list[Inline]:
    """Returns a sentence on which model scores best there, which need not be the one that loses least."""
    scores = {model: average.score for model, average in averages.items() if average.score is not None}
    if len(scores) < len(order):
        return []
    best = sorted(order, key=lambda model: scores[model] if view.lower_is_better else -scores[model])[0]
    first = view.number(scores[order[0]])
    if view.number(scores[best]) == first:
        return [f" Its mean {view.metric_name} there, {first}, is also the best."]
    return [
        " Losing little is not scoring well: under the same noise ", Name(best),
        f" has the best mean {view.metric_name}, {view.number(scores[best])}; ", Name(order[0]), f" has {first}."
    ]  # fmt: skip


def _reach(view: View) -> RichText:
    """Returns a sentence on what the intervals do not cover."""
    examples = f"these {view.results['examples']} examples" if view.results["examples"] else "these examples"
    return (
        f"All this is about these trained models and {examples}: intervals come from drawing the examples anew, and do"
        " not cover training a model again."
    )


def _loss(view: View, average: Average) -> str:
    if not average.loss.known:
        return view.number(average.loss.value)
    return f"{view.number(average.loss.value)} ({_between(view, average.loss)})"


def _between(view: View, found: Interval) -> str:
    return f"{view.number(found.low)} to {view.number(found.high)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
