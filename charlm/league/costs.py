"""Says what the systems of a league have cost, and what they have learned for it: sections of the report.

Open it to add what depends on words, operations or hours.
"""

from __future__ import annotations

from collections.abc import Sequence

from charlm.league.charts import Chart, Point
from charlm.league.heldout import measure_of, minus_first, spread
from charlm.league.standing import CLEAN, NOISE
from charlm.league.view import NOTHING, Block, Charts, Section, Table, View

COURSE = "Held-out text in the course of pre-training"
BUDGETS = "Scores by budget"
BITS = (
    "Bits for each masked character of held-out text: as an HLM counts them, over whole masked words; of models of "
    "subwords the loss of a masked subword, the rest of whose word may be visible, divided by the characters of a "
    "subword on average. So they tell how fast a system learns; which one is better, the scores tell. Systems whose "
    "loss counts anything else are left out, as are those whose budget was measured before characters were counted."
)


def size_and_cost(view: View) -> Section:
    """Returns the parameters of each system, and what its training has cost."""
    rows = []
    for one in view.systems.values():
        if one["behind"]:
            continue
        sizes = one.get("parameters") or {}
        rows.append([
            view.named_with_state(one["name"]) + ("" if one["ranked"] else " (only a start for others)"),
            view.named(one["same"] or one["start"]) if one["same"] or one["start"] else "nothing",
            *(_count(sizes.get(key)) for key in ("body", "tables", "head")),
            _count(one.get("words")), _count(one.get("words_all")),
            _flops(one.get("flops")), _flops(one.get("flops_all")),
            _hours(one.get("seconds")), _hours(one.get("tuning_seconds")),
        ])  # fmt: skip
    caption = (
        "Parameters while pre-training (body: all but tables of embeddings and the head that predicts), words seen and "
        "useful floating-point operations as the logs have them, without and with what a system starts from, and hours "
        "of steps in pre-training and in all fine-tuning. Words are those of one splitter for all: "
        f"{view.results['config']['corpora']['splitter']}."
    )
    head = ["system", "starts from", "body", "tables", "head", "words", "words with start", "FLOPs", "FLOPs with start"]
    return Section("Size and cost", [Table(caption, [*head, "hours", "hours tuning"], rows, texts=2)] if rows else [])


def course(view: View) -> Section:
    """Returns what the systems have learned of held-out text in the course of pre-training."""
    rows, by_words, by_flops = [], [], []
    for entry in view.results.get("course", []):
        name = view.named_with_state(entry["system"])
        known = [one for one in entry["evaluations"] if one["bits_per_char"] is not None]
        for one in known:
            spent = [_count(one["steps"]), _count(one["words"]), _flops(one["flops"])]
            rows.append([name, *spent, f"{one['bits_per_char']:.3f}"])
        for curves, cost in ((by_words, "words"), (by_flops, "flops")):
            # What costs nothing has no logarithm.
            if points := [Point(one[cost], one["bits_per_char"]) for one in known if one[cost]]:
                curves.append((name, points))
    if not rows:
        return Section(COURSE)
    value = "bits a masked character"
    charts = []
    for curves, cost in ((by_words, "words"), (by_flops, "FLOPs")):
        if curves:
            charts.append(Chart(f"Held-out {value}, by {cost}", cost, value, curves))
    head = ["system", "steps", "words", "FLOPs", value]
    blocks: list[Block] = [Charts(charts)] if charts else []
    return Section(COURSE, [*blocks, Table(BITS, head, rows)])


def scores_by_budget(view: View) -> Section:
    """Returns the scores of systems that were trained on several budgets, by what they have cost."""
    rows, curves = [], {}
    for names in view.results.get("budgets", []) if view.tasks else []:
        whole = [name for name in names if view.share(name) == 1] or names[-1:]
        title = view.named(whole[0])
        for name in names:
            one = view.systems[name]
            cells = [view.cell(view.columns[-1], name, noise, ranked=False) for noise in (CLEAN, NOISE)]
            rows.append([view.named(name), _count(one.get("words_all")), _flops(one.get("flops_all")), *cells])
            for noise in (CLEAN, NOISE):
                found = view.mean(name, noise)
                if found is None or found["value"] is None:
                    continue
                for cost in ("words", "flops"):
                    if spent := one.get(f"{cost}_all"):
                        at = Point(spent, *(100 * found[key] for key in ("value", "low", "high")))
                        curves.setdefault((noise, cost), {}).setdefault(title, []).append(at)
    if not curves:
        return Section(BUDGETS)
    said = {"words": "words", "flops": "FLOPs", CLEAN: "clean", NOISE: "under noise"}
    charts = [
        Chart(f"Score, {said[noise]}, by {said[cost]}", said[cost], "score", list(found.items()))
        for (noise, cost), found in curves.items()
    ]
    caption = (
        "Systems that differ in nothing but their share of the budget, each trained to its own end: mean over tasks, "
        "clean and over all noises, by words and operations of pre-training, with those of what a system starts from."
    )
    return Section(BUDGETS, [Charts(charts), Table(caption, ["system", "words", "FLOPs", "clean", "noise"], rows)])


def heldout(view: View) -> Section:
    """Returns the losses on held-out text of a league without tasks, each over the seeds of pre-training."""
    entries = [entry for entry in view.results.get("heldout", []) if entry["metrics"]]
    if not entries:
        return Section("Held-out text")
    measure, accuracies = measure_of(entries), sorted(name for name in entries[0]["metrics"][0] if "accuracy" in name)
    rows = []
    for entry in entries:
        one, runs = view.systems[entry["system"]], entry["metrics"]
        apart = minus_first(entries, entry, measure) if entry is not entries[0] else []
        rows.append([
            one["title"],
            _spread([metrics[measure] for metrics in runs], 4),
            _spread(apart, 4, signed=True) if apart else NOTHING,
            *(_spread([100 * metrics[name] for metrics in runs if name in metrics], 2) for name in accuracies),
            str(len(runs)), _count(one.get("steps")), _flops(one.get("flops")), _count(one.get("words")),
        ])  # fmt: skip
    first = view.named(entries[0]["system"])
    caption = (
        f"{measure} on held-out text after the last step, less is better: the mean over runs of different seeds and, "
        f"behind ±, their standard deviation; the difference from {first}, of runs with equal seeds, likewise; "
        "accuracies in hundredths; steps, operations and words of the first run."
    )
    head = ["system", measure, f"minus {first}", *accuracies, "runs", "steps", "FLOPs", "words"]
    return Section("Held-out text", [Table(caption, head, rows)])


def _spread(values: Sequence[float], digits: int, signed: bool = False) -> str:
    """Returns "3.4120 ± 0.0100" for values; a single one stands alone."""
    if not values:
        return NOTHING
    mean, apart = spread(values)
    sign = "+" if signed else ""
    return f"{mean:{sign}.{digits}f}" + ("" if apart is None else f" ± {apart:.{digits}f}")


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{round(value):,}"


def _flops(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2e}"


def _hours(value: float | None) -> str:
    return NOTHING if not value else f"{value / 3600:.2f}"
