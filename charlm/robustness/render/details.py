"""Builds the detailed sections of a report: pairs of models, groups of words, segmentation, sensitivity, attacks.

`report` puts them in order; open this module to change one of these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from charlm.core.types import JsonObject
from charlm.robustness.render.numbers import NOTHING, fixed, percent, score_name
from charlm.robustness.render.parts import Block, Folded, Grid, Name, RichText, Strong, Table
from charlm.robustness.render.view import View, mean, noise_name, unique


def comparisons(view: View) -> list[Block]:
    """Returns a table of all pairs of models, and those of each pair; nothing if none were compared."""
    rows = [row for row in view.results["comparisons"] if row["difference"] is not None]
    if not rows:
        return []
    pairs = unique((row["a"], row["b"], row["metric"]) for row in rows)
    of_pairs = [[row for row in rows if (row["a"], row["b"], row["metric"]) == pair] for pair in pairs]
    summary = [_counts(view, pair, mine) for pair, mine in zip(pairs, of_pairs, strict=True)]
    header = ["first", "second", "score", "clean", "noise: first better", "second better", "within noise"]
    caption = "All pairs: the difference on clean text, and how many conditions of noise each of the two is better in."
    tables = [table for number, mine in enumerate(of_pairs) if (table := _pair(view, number, pairs[number], mine))]
    turned = " turned, where lower is better, so that positive always means that the first is better;"
    text = (
        f"The first model minus the second{view.numbers.in_points}, with its bootstrap interval;"
        f"{turned if view.lower_is_better else ''} bold, where the interval excludes 0; where it does not, the"
        " difference is within noise. One in twenty intervals of 95 % excludes 0 by chance alone: a few bold cells"
        " among many prove nothing."
    )
    found: list[Block] = [text, Table("table-pairs", caption, header, summary, row_headers=2, texts=3)]
    return [*found, Folded("Each pair, noise by noise", tables)] if tables else found


def _counts(view: View, pair: tuple[str, str, str], rows: list[JsonObject]) -> list[RichText]:
    """Returns the row of a pair: the clean difference, and how often each of the two is better under noise."""
    a, b, metric = pair
    clean = next((row for row in rows if not row["level"]), None)
    gaps = [view.oriented(row, metric) for row in rows if row["level"]]
    better = [sum(gap.excludes_zero and (gap.value > 0) == first for gap in gaps) for first in (True, False)]
    counts = [str(count) for count in (*better, len(gaps) - sum(better))]
    return [Name(a), Name(b), score_name(metric), _gap(view, clean, metric), *counts]


def _pair(view: View, number: int, pair: tuple[str, str, str], rows: list[JsonObject]) -> Table | None:
    """Returns the table of differences under noise: a row for each kind, a column for each level."""
    a, b, metric = pair
    cells = {(row["kind"], row["level"]): row for row in rows if row["level"]}
    if not cells:
        return None
    levels = sorted({level for _, level in cells})
    kinds = unique(kind for kind, _ in cells)
    table = [[kind, *(_gap(view, cells.get((kind, level)), metric) for level in levels)] for kind in kinds]
    header: list[RichText] = ["noise", *(f"level {level:g}" for level in levels)]
    return Table(f"table-pair-{number}", (f"{score_name(metric)}: ", Name(a), " minus ", Name(b), "."), header, table)


def _gap(view: View, row: JsonObject | None, metric: str) -> RichText:
    if row is None:
        return NOTHING
    gap = view.oriented(row, metric)
    text = view.numbers.interval(gap, metric, signed=True)
    return Strong(text) if gap.excludes_zero else text


def groups(view: View) -> list[Block]:
    """Returns the scores of groups of words, averaged over noise, and one by one; nothing if there are none."""
    rows = view.results["groups"]
    if not any(row["score"] is not None for row in rows):
        return []
    if view.by_word:
        what = "Share of right tags (of 100) in each group of words"
    else:
        what = f"{view.metric_name} of each group of examples"
    single = [_each_group(view, "table-groups", f"{what}; in brackets, how many were scored.", "score", "count")]
    found = [
        _mean_group(view, "table-groups-mean", f"{what}: on clean text, and mean over all measured noise.", "score")
    ]
    if any(row.get("entity_f1") is not None for row in rows):
        what = "F1 of the entities with a word of the group"
        caption = f"{what}; in brackets, how many there are."
        single.append(_each_group(view, "table-entities", caption, "entity_f1", "entities"))
        caption = f"{what}: on clean text, and mean over all measured noise."
        found.append(_mean_group(view, "table-entities-mean", caption, "entity_f1"))
    small = "Every draw of a noise counts anew. Scores of small groups mean little: mind the counts."
    return [Grid(found), Folded("Each noise, with counts", [small, *single])]


def _mean_group(view: View, key: str, caption: str, score: str) -> Table:
    """Returns a row for each group, with two columns for each model: clean, and the mean over noise."""
    rows = [row for row in view.results["groups"] if row.get(score) is not None]
    models = _models(view, rows)
    table: list[list[RichText]] = []
    for group in unique(str(row["group"]) for row in rows):
        cells: list[RichText] = [group]
        for model in models:
            mine = [row for row in rows if row["model"] == model and row["group"] == group]
            for noisy in (False, True):
                values = [row[score] for row in mine if bool(row["kind"] and row["level"]) == noisy]
                cells.append(view.numbers.score(mean(values)) if values else NOTHING)
        table.append(cells)
    header: list[RichText] = ["group"]
    for model in models:
        header += [(Name(model), ", clean"), (Name(model), ", noise")]
    return Table(key, caption, header, table)


def _each_group(view: View, key: str, caption: str, score: str, count: str) -> Table:
    """Returns a row for each noise and group, with a column for each model."""
    rows = view.results["groups"]
    models = _models(view, rows)
    cells = {(_noise(row), row["group"], row["model"]): row for row in rows}
    table: list[list[RichText]] = []
    for noise, group in unique((_noise(row), row["group"]) for row in rows):
        found = (cells.get((noise, group, model)) for model in models)
        table.append([noise, str(group), *(_group(view, row, score, count) for row in found)])
    header: list[RichText] = ["noise", "group", *(Name(model) for model in models)]
    return Table(key, caption, header, table, row_headers=2)


def _group(view: View, row: JsonObject | None, score: str, count: str) -> str:
    if row is None or row.get(score) is None:
        return NOTHING
    return view.numbers.score(row[score]) + ("" if row[count] is None else f" ({row[count]})")


def segmentation(view: View) -> list[Block]:
    """Returns the section on how words are cut into units; nothing if that was not measured."""
    columns = {"units_per_word": _two_digits, "split": percent, "unknown": percent, "cut": percent}
    header = ["units a word", "words split", "units unknown", "words cut"]
    caption = (
        "Units a word on average; share of words of more than one unit; share of units (of an HLM: characters) that the"
        " vocabulary lacks; share of words that lose characters because they are too long."
    )
    text = (
        "Typos break words into more pieces, and rarer ones. An HLM has no pieces: a word is one unit, whatever happens"
        " to it."
    )
    return _by_noise(view, "segmentation", columns, header, caption, text)


def sensitivity(view: View) -> list[Block]:
    """Returns the section on how far the hidden states of words move under noise; nothing if that was not measured."""
    text = (
        "How far noise moves what a model makes of a word: (1 - cos) / 2 of its last states with and without noise,"
        " from 0 (the same direction) to 1 (the opposite one), as in CharBERT (Ma et al., 2020, Eq. 8). Models spread"
        " their states differently, so a difference between two models is a weaker sign than one between two kinds of"
        " noise. Kinds that merge or cut words have no such distance."
    )
    columns = {"all": _three_digits, "changed": _three_digits}
    header = ["of all words", "of changed words"]
    return _by_noise(view, "sensitivity", columns, header, "Mean distance of the states of words.", text)


def adversarial(view: View) -> list[Block]:
    """Returns the section on the effect of adversarial edits on each model; nothing if there were none."""
    return [*_searched(view), *_recipes(view)]


def _searched(view: View) -> list[Block]:
    """Returns the table of the search for the worst edits; nothing if there was none."""
    rows = [row for row in view.results["adversarial"] if not row.get("recipe")]
    if not rows:
        return []
    table: list[list[RichText]] = []
    for row in rows:
        scores = [view.numbers.score(row["clean"]), view.numbers.score(row["attacked"]), percent(row["flipped"])]
        counts = [NOTHING if row[key] is None else f"{row[key]:g}" for key in ("edits", "examples")]
        used = NOTHING if row["edits_used"] is None else fixed(row["edits_used"], 2)
        table.append([Name(row["model"]), *counts, *scores, used])
    metric = view.metric_name
    header = ["model", "edits allowed", "examples", f"{metric} clean", f"{metric} attacked", "flipped", "edits used"]
    caption = "Edits chosen one by one to mislead each model; flipped: share of examples whose prediction they changed."
    return [
        "A greedy search (after DeepWordBug, Gao et al., 2018): each model meets the edits that raise its own loss"
        " most, so this is worse than random noise, and still no worst case. The clean score is that of the attacked"
        " examples alone.",
        Table("table-adversarial", caption, header, table),
    ]


def _recipes(view: View) -> list[Block]:
    """Returns the table of published attacks; nothing if there was none."""
    rows = [row for row in view.results["adversarial"] if row.get("recipe")]
    if not rows:
        return []
    table: list[list[RichText]] = []
    for row in rows:
        scores = [view.numbers.score(row["clean"]), view.numbers.score(row["attacked"]), percent(row["success"])]
        queries = NOTHING if row["queries"] is None else fixed(row["queries"], 1)
        counts = [str(row["examples"]), str(row["skipped"])]
        table.append([row["recipe"], Name(row["model"]), *counts, *scores, queries, percent(row["words"])])
    metric = view.metric_name
    header = ["attack", "model", "examples", "skipped", f"{metric} clean", f"{metric} attacked", "success", "queries"]
    caption = (
        "Skipped: examples whose class was wrong before. Success: share of the others whose answer the attack changed."
        " Queries: texts that the model was asked about, mean of these. Words: share of words changed, of successes."
    )
    return [
        "Published attacks with the budgets of TextAttack's recipes: each stops at the first text with another answer.",
        Table("table-attacks", caption, [*header, "words"], table, row_headers=2),
    ]


def _by_noise(
    view: View,
    part: str,
    columns: Mapping[str, Callable[[float | None], str]],
    header: Sequence[str],
    caption: str,
    text: str,
) -> list[Block]:
    """Returns a table of the means over all noise beside clean text, and one of each noise; nothing if all is null.

    Args:
      part: the part of the results.
      columns: the columns of the results, and how each is written.
      header: what they are called.
    """
    rows = view.results[part]
    if not any(row[column] is not None for row in rows for column in columns):
        return []
    cells = {}
    for row in rows:
        cells.setdefault((_noise(row), row["model"]), row)
    models = _models(view, rows)
    means: list[list[RichText]] = []
    single: list[list[RichText]] = []
    for noise in unique(noise for noise, _ in cells):
        found = [(model, cells[noise, model]) for model in models if (noise, model) in cells]
        single += [[noise, Name(model), *(say(row[name]) for name, say in columns.items())] for model, row in found]
    clean = noise_name(None, None)
    for name, noisy in ((clean, False), ("noise, mean", True)):
        for model in models:
            mine = [row for (noise, of), row in cells.items() if of == model and (noise != clean) == noisy]
            values = [[row[column] for row in mine if row[column] is not None] for column in columns]
            shown = [say(mean(v) if v else None) for v, say in zip(values, columns.values(), strict=True)]
            means += [[name, Name(model), *shown]] if any(values) else []
    titles = ["noise", "model", *header]
    return [
        text,
        Table(f"table-{part}-mean", caption, titles, means, row_headers=2),
        Folded("Each noise", [Table(f"table-{part}", caption, titles, single, row_headers=2)]),
    ]


def _two_digits(value: float | None) -> str:
    return NOTHING if value is None else fixed(value, 2)


def _three_digits(value: float | None) -> str:
    return NOTHING if value is None else fixed(value, 3)


def _models(view: View, rows: list[JsonObject]) -> list[str]:
    there = {row["model"] for row in rows}
    return [model for model in view.models if model in there]


def _noise(row: JsonObject) -> str:
    return noise_name(row["kind"], row["level"])
