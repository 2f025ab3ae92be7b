"""Builds the detailed sections of a report: pairs of models, groups of words, segmentation, sensitivity, attacks.

`render_sections` puts them into the report; open this module to change one of these tables.
"""

from __future__ import annotations

from charlm.core.types import JsonObject
from charlm.robustness.render_parts import NOTHING, Name, PageBlock, RichText, Strong, Table
from charlm.robustness.render_view import View, fixed, noise_name, score_name, share, unique


def comparisons(view: View) -> list[PageBlock]:
    """Returns a table of all pairs of models, and one for each pair."""
    rows = [row for row in view.results["comparisons"] if row["difference"] is not None]
    if not rows:
        if len(view.models) < 2:
            return ["Fewer than two models were measured: there is nothing to compare."]
        return ["The models were not compared on the same draws of the examples."]
    pairs = unique((row["a"], row["b"], row["metric"]) for row in rows)
    of_pairs = [[row for row in rows if (row["a"], row["b"], row["metric"]) == pair] for pair in pairs]
    summary = [_counts(view, pair, mine) for pair, mine in zip(pairs, of_pairs, strict=True)]
    header = ["first", "second", "score", "clean", "noise: first better", "second better", "within noise"]
    caption = "All pairs: the difference on clean text, and how many conditions of noise each of the two is better in."
    tables = [_pair(view, number, pairs[number], mine) for number, mine in enumerate(of_pairs)]
    return [
        "The first model minus the second, with its bootstrap interval; turned, where lower is better, so that positive"
        " always means that the first is better. Where the interval excludes 0, the cell is bold; where it does not,"
        " the difference is within noise. One in twenty intervals of 95 % excludes 0 by chance alone: a few bold cells"
        " among many prove nothing.",
        Table("table-pairs", caption, header, summary, row_headers=2, texts=3),
        *(table for table in tables if table),
    ]


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
    text = view.interval(gap, metric, signed=True)
    return Strong(text) if gap.excludes_zero else text


def groups(view: View) -> list[PageBlock]:
    """Returns the scores of groups of words, with a column for each model."""
    rows = view.results["groups"]
    if not any(row["score"] is not None for row in rows):
        return ["Groups of words were not measured."]
    models = _models(view, rows)
    cells = {(_noise(row), row["group"], row["model"]): row for row in rows}
    places = unique((_noise(row), row["group"]) for row in rows)

    def table(score: str, count: str) -> list[list[RichText]]:
        found = [(place, [cells.get((*place, model)) for model in models]) for place in places]
        return [[noise, str(group), *(_group(view, row, score, count) for row in of)] for (noise, group), of in found]

    header: list[RichText] = ["noise", "group", *(Name(model) for model in models)]
    if view.by_word:
        caption = "Share of right tags in each group of words; in brackets, how many words were scored."
    else:
        caption = f"{view.metric_name} of each group of examples by their words; in brackets, how many were scored."
    blocks: list[PageBlock] = [
        "Every draw of a noise counts anew. Scores of small groups mean little: mind the counts.",
        Table("table-groups", caption, header, table("score", "count"), row_headers=2),
    ]
    if any(row.get("entity_f1") is not None for row in rows):
        caption = "F1 of the entities with a word of the group; in brackets, how many there are."
        blocks.append(Table("table-entities", caption, header, table("entity_f1", "entities"), row_headers=2))
    return blocks


def _group(view: View, row: JsonObject | None, score: str, count: str) -> str:
    if row is None or row.get(score) is None:
        return NOTHING
    return view.number(row[score]) + ("" if row[count] is None else f" ({row[count]})")


def segmentation(view: View) -> list[PageBlock]:
    """Returns the section on how words are cut into units."""
    rows = view.results["segmentation"]
    columns = ("units_per_word", "split", "unknown", "cut")
    if not any(row[column] is not None for row in rows for column in columns):
        return ["How the models cut words into units was not measured."]
    table = _by_noise(view, rows, columns)
    header = ["noise", "model", "units a word", "words split", "units unknown", "words cut"]
    caption = (
        "Units a word on average; share of words of more than one unit; share of units (of an HLM: characters) that the"
        " vocabulary lacks; share of words that lose characters because they are too long."
    )
    return [
        "Typos break words into more pieces, and rarer ones. An HLM has no pieces: a word is one unit, whatever happens"
        " to it.",
        Table("table-segmentation", caption, header, table, row_headers=2),
    ]


def sensitivity(view: View) -> list[PageBlock]:
    """Returns the section on how far the hidden states of words move under noise."""
    rows = view.results["sensitivity"]
    if not any(row[column] is not None for row in rows for column in ("all", "changed")):
        return ["Sensitivity was not measured."]
    table = _by_noise(view, rows, ("all", "changed"))
    header = ["noise", "model", "of all words", "of changed words"]
    return [
        "How far noise moves what a model makes of a word: (1 - cos) / 2 of its last states with and without noise,"
        " from 0 (the same direction) to 1 (the opposite one), as in CharBERT (Ma et al., 2020, Eq. 8). Models spread"
        " their states differently, so a difference between two models is a weaker sign than one between two kinds of"
        " noise. Kinds that merge or cut words have no such distance.",
        Table("table-sensitivity", "Mean distance of the states of words.", header, table, row_headers=2),
    ]


def adversarial(view: View) -> list[PageBlock]:
    """Returns the section on the effect of adversarial edits on each model."""
    if not view.results["adversarial"]:
        return ["No edits were chosen against the models."]
    return [*_searched(view), *_recipes(view)]


def _searched(view: View) -> list[PageBlock]:
    """Returns the table of the search for the worst edits; nothing if there was none."""
    rows = [row for row in view.results["adversarial"] if not row.get("recipe")]
    if not rows:
        return []
    table: list[list[RichText]] = []
    for row in rows:
        scores = [view.number(row["clean"]), view.number(row["attacked"]), share(row["flipped"])]
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


def _recipes(view: View) -> list[PageBlock]:
    """Returns the table of published attacks; nothing if there was none."""
    rows = [row for row in view.results["adversarial"] if row.get("recipe")]
    if not rows:
        return []
    table: list[list[RichText]] = []
    for row in rows:
        scores = [view.number(row["clean"]), view.number(row["attacked"]), share(row["success"])]
        queries = NOTHING if row["queries"] is None else fixed(row["queries"], 1)
        counts = [str(row["examples"]), str(row["skipped"])]
        table.append([row["recipe"], Name(row["model"]), *counts, *scores, queries, share(row["words"])])
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


def _by_noise(view: View, rows: list[JsonObject], columns: tuple[str, ...]) -> list[list[RichText]]:
    """Returns a row of shares for each noise and model, grouped by noise; clean text occurs once."""
    models = _models(view, rows)
    cells = {}
    for row in rows:
        cells.setdefault((_noise(row), row["model"]), row)
    found: list[list[RichText]] = []
    for noise in unique(noise for noise, _ in cells):
        for model in models:
            if row := cells.get((noise, model)):
                found.append([noise, Name(model), *(share(row[column]) for column in columns)])
    return found


def _models(view: View, rows: list[JsonObject]) -> list[str]:
    there = {row["model"] for row in rows}
    return [model for model in view.models if model in there]


def _noise(row: JsonObject) -> str:
    return noise_name(row["kind"], row["level"])
