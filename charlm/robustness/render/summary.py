"""Writes what a report says: a headline, a table at a glance, and a few sentences that claim what the numbers support.

Open it to change which claims the numbers must support, and how certain they must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from charlm.robustness.render.numbers import NOTHING, Interval
from charlm.robustness.render.parts import Block, Inline, Name, RichText, Strong, Table, listed
from charlm.robustness.render.view import Average, View, unique

_NAMED = 4  # of more models than these, a sentence counts the others; the table names all


def headline(view: View) -> RichText:
    """Returns the main result in a sentence or two."""
    averages = _ranking(view)
    if not averages:
        scores = _clean_scores(view)
        if not scores:
            return "Nothing was measured that models could be compared by."
        return _clean_sentence(view, scores)
    (first, least), *others = averages.items()
    if not others:
        verb, size = ("costs", least.loss.value) if least.loss.value >= 0 else ("gives", -least.loss.value)
        return [
            "Noise ",
            verb,
            " ",
            Name(first),
            " ",
            Strong(_points(view, size)),
            f" of {view.metric_name} on average.",
        ]
    last, most = others[-1]
    text: list[Inline] = ["Under noise ", Name(first), " loses ", Strong(_points(view, least.loss.value))]
    text += [f" of {view.metric_name} on average, ", Name(last), " ", Strong(view.numbers.score(most.loss.value)), "."]
    if not (least.loss.known and most.loss.known):
        return [*text, " No interval was measured, so it may be chance."]
    return [*text, " The difference is within noise."] if least.loss.overlaps(most.loss) else text


def summary(view: View) -> list[Block]:
    """Returns a table at a glance, and paragraphs about clean text, unseen noise, and what the intervals leave out."""
    clean = _clean_scores(view)
    found: list[RichText] = [_clean_sentence(view, clean)] if clean and _ranking(view) else []
    found += _unseen(view)
    return [*_glance(view), *found, _reach(view)] if clean or found else []


def _ranking(view: View) -> dict[str, Average]:
    """Returns the mean loss of each model, the smallest first, over the noise that no model has met in training."""
    models, conditions = view.ranked()
    averages = {model: found for model in models if (found := view.average(model, conditions))}
    return dict(sorted(averages.items(), key=lambda item: item[1].loss.value))


def _clean_scores(view: View) -> dict[str, float]:
    """Returns the known scores on clean text, the best first."""
    scores = {model: score for model in view.models if (score := view.clean(model)) is not None}
    return dict(sorted(scores.items(), key=lambda item: item[1] if view.lower_is_better else -item[1]))


def _glance(view: View) -> list[Table]:
    """Returns a table of all models: clean, under noise that none of them has met in training, and the change."""
    averages = _ranking(view)
    if not averages:
        return []
    show = view.numbers
    rows: list[list[RichText]] = []
    for model in view.models:
        clean, found = show.score(view.clean(model)), averages.get(model)
        score = NOTHING if found is None else show.score(found.score)
        change = None if found is None else view.change(found.loss)
        rows.append([Name(model), clean, score, show.interval(change, signed=True)])
    count = _count(len(view.ranked()[1]), "condition")
    caption = (
        f"The models: {view.metric_name} on clean text, and its mean over {count} of noise that no model has met in"
        f" training; the change{show.in_points}, with its bootstrap interval in brackets."
    )
    return [Table("table-glance", caption, ["model", "clean", "under noise", "change"], rows)]


def _clean_sentence(view: View, scores: Mapping[str, float]) -> RichText:
    """Returns who is best on clean text; `scores` has the best first."""
    metric, order = view.metric_name, list(scores)
    best, others = order[0], order[1:]
    value = view.numbers.score(scores[best])
    if not others:
        return ["On clean text ", Name(best), f" has {metric} {value}."]
    equal = [model for model in order if view.numbers.score(scores[model]) == value]
    if len(equal) > 1:
        return ["On clean text ", *_names(equal, "models"), f" have the same {metric}, {value}."]
    text: list[Inline] = ["On clean text ", Name(best), f" has the best {metric}, {value}"]
    text += _lead(view, best, others[0], scores[others[0]])
    gaps = {model: view.gap(best, model, None) for model in others[1:]}
    unsure = [model for model, gap in gaps.items() if gap and not gap.excludes_zero]
    if unsure:
        text += [" Its lead on ", *_names(unsure), " is within noise."]
    return text


def _lead(view: View, best: str, second: str, score: float) -> list[Inline]:
    """Returns how far the second model is behind, and whether the difference is more than chance."""
    gap = view.gap(best, second, None)
    after: list[Inline] = ["; ", Name(second), f" follows with {view.numbers.score(score)}"]
    if gap is None or not gap.known:
        return [*after, ". No interval of the difference was measured, so it may be chance."]
    size = f"{_points(view, gap.value)} ({_between(view, gap)})"
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
    averages = _ranking(view)
    if not averages:
        return [
            "No noise was measured for every model that all of them met here for the first time, so they are not ranked"
            " by what noise costs them; the tables say what each loses."
            if len(models) > 1
            else ["All measured noise was part of the training of ", Name(models[0]), "."]
        ]
    order, metric = list(averages), view.metric_name
    first = order[0]
    kinds = unique(kind for kind, _ in conditions)
    where = f"{_count(len(conditions), 'condition')} ({_count(len(kinds), 'kind')} of noise at their levels)"
    if len(order) == 1:
        loss = f" loses {_loss(view, averages[first])} of {metric} on average."
        return [[f"Over {where} that it has not met in training, ", Name(first), loss]]
    text: list[Inline] = [f"Over the {where} that no model has met in training, ", Name(first)]
    text += [f" loses least {metric} on average, {_loss(view, averages[first])}"]
    for model in order[1:] if len(order) <= _NAMED else order[-1:]:
        text += ["; ", Name(model), f" {_loss(view, averages[model])}"]
    if len(order) > _NAMED:
        text.append(", the most")
    text += [".", *_certainty(averages, order), *_highest(view, averages, order)]
    return [text]


def _certainty(averages: dict[str, Average], order: Sequence[str]) -> list[Inline]:
    """Returns a sentence on whether the lead of the first model over the others is more than chance."""
    first = averages[order[0]].loss
    unknown = [model for model in order if not averages[model].loss.known]
    if unknown:
        return [" There is no interval of ", *_names(unknown), ", so the order may be chance."]
    near = [model for model in order[1:] if first.overlaps(averages[model].loss)]
    if not near:
        return [" The interval of ", Name(order[0]), " overlaps no other model's."]
    return [" The intervals of ", Name(order[0]), " and ", *_names(near), " overlap: the difference is within noise."]


def _names(models: Sequence[str], what: str = "others") -> list[Inline]:
    """Returns the models' names, or how many they are."""
    return listed([Name(model) for model in models]) if len(models) < _NAMED else [f"{len(models)} {what}"]


def _highest(view: View, averages: dict[str, Average], order: Sequence[str]) -> list[Inline]:
    """Returns a sentence on which model scores best there, which need not be the one that loses least."""
    scores = {model: average.score for model, average in averages.items() if average.score is not None}
    if len(scores) < len(order):
        return []
    best = sorted(order, key=lambda model: scores[model] if view.lower_is_better else -scores[model])[0]
    first = view.numbers.score(scores[order[0]])
    if view.numbers.score(scores[best]) == first:
        return [f" Its mean {view.metric_name} there, {first}, is also the best."]
    return [
        " Losing little is not scoring well: under the same noise ", Name(best),
        f" has the best mean {view.metric_name}, {view.numbers.score(scores[best])}; ", Name(order[0]), f" has {first}."
    ]  # fmt: skip


def _reach(view: View) -> RichText:
    """Returns a sentence on what the intervals do not cover."""
    examples = f"these {view.results['examples']} examples" if view.results["examples"] else "these examples"
    return (
        f"All this is about these trained models and {examples}: intervals come from drawing the examples anew, and do"
        " not cover training a model again."
    )


def _loss(view: View, average: Average) -> str:
    size = _points(view, average.loss.value)
    return f"{size} ({_between(view, average.loss)})" if average.loss.known else size


def _points(view: View, size: float) -> str:
    """Returns "4.3 points"."""
    return view.numbers.score(size) + view.numbers.points


def _between(view: View, found: Interval) -> str:
    return f"{view.numbers.score(found.low)} to {view.numbers.score(found.high)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
