"""Builds the sections of a report on how it was measured, what was left out, and how to reproduce it.

Open it to change what a report says about models, noise and settings, or the command that it prints.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from charlm.core.types import Json
from charlm.robustness.render.numbers import NOTHING, percent
from charlm.robustness.render.parts import Block, Bullets, Code, Command, Name, RichText, Table
from charlm.robustness.render.view import View, kind_of, mean, unique

_COMMAND = "command"


def how(view: View) -> list[Block]:
    """Returns the section on how it was measured: with which models, kinds of noise and settings."""
    examples = view.results["examples"]
    if not view.models:
        return []
    blocks: list[Block] = [_done(view)] if view.conditions else []
    if view.conditions:
        blocks.append(
            "A level is a probability: each of the things that a kind of noise can hit is hit with it, independently of"
            " the others. What these are depends on the kind (below), so levels of different kinds are not comparable;"
            " the share of words changed is. A model has seen a noise when its fine-tuning read text with noise of that"
            " kind, at whatever level; all other noise is unseen."
        )
    blocks.append(
        f"The score of the report is {view.metric_name}, of {examples or 0} examples. Intervals are bootstrap"
        " intervals: the examples are drawn anew with replacement, again and again, and models are scored on the same"
        " draws."
    )
    blocks += [*_models(view), *_kinds(view), *_settings(view)]
    return blocks


def notes(view: View) -> list[Block]:
    """Returns the list of what was left out, and why; nothing if that is nothing."""
    found = [str(note) for note in view.results["notes"]]
    return [Bullets(found)] if found else []


def _done(view: View) -> RichText:
    seeds = unique(str(seed) for row in view.noise for seed in row["seeds"] or ())
    levels = unique(f"{level:g}" for _, level in sorted(view.conditions, key=lambda condition: condition[1]))
    drawn = f" Each is drawn with {len(seeds)} seeds ({', '.join(seeds)})." if len(seeds) > 1 else ""
    drawn = drawn or (f" Each is drawn once (seed {seeds[0]}), so there is no spread over seeds." if seeds else "")
    return (
        f"The same text is read as it is and with noise of {len(view.levels)} kinds at levels {', '.join(levels)};"
        f" all models read the very same noisy text.{drawn}"
    )


def _models(view: View) -> list[Block]:
    rows: list[list[RichText]] = []
    for model in view.results["models"]:
        noise = ", ".join(str(spec) for spec in model["trained_with"] or ()) or "none"
        seed = NOTHING if model["seed"] is None else str(model["seed"])
        rows.append([Name(model["name"]), str(model["family"]), noise, seed, Code(str(model["path"]))])
    if not rows:
        return []
    header: list[RichText] = ["model", "family", "noise in training", "seed of training", "path"]
    defences = [str(model.get("defence") or "none") for model in view.results["models"]]
    said: list[Block] = []
    if any(defence != "none" for defence in defences):
        header.append("defence")
        rows = [[*row, defence] for row, defence in zip(rows, defences, strict=True)]
        said.append(
            "A model behind a defence reads text that was corrected before, clean and noisy text alike. Defences work"
            " one after the other, in the order of their names."
        )
    return [Table("table-models", "The models.", header, rows, texts=len(header)), *said]


def _kinds(view: View) -> list[Block]:
    """Returns a table of the kinds of noise, with the share of words that each changed at each level."""
    levels = sorted({level for _, level in view.conditions})
    if not levels:
        return []
    rows: list[list[RichText]] = []
    for kind in view.levels:
        known = kind_of(kind)
        about = [known.line, known.share_of] if known else [NOTHING, NOTHING]
        rows.append([kind, *about, *(percent(_changed(view, kind, level)) for level in levels)])
    header = ["kind", "what it does", "a level is the share of", *(f"changed at {level:g}" for level in levels)]
    caption = "The kinds of noise, and the share of all words that each changes at each level, mean over models."
    return [Table("table-kinds", caption, header, rows, texts=3)]


def _changed(view: View, kind: str, level: float) -> float | None:
    rows = [view.row(model, (kind, level)) for model in view.models]
    found = [row["changed"] for row in rows if row and row["changed"] is not None]
    return mean(found) if found else None


def _settings(view: View) -> list[Block]:
    rows: list[list[RichText]] = [
        [Code(str(key)), Code(_shown(value))] for key, value in sorted(view.settings.items()) if key != _COMMAND
    ]
    if not rows:
        return []
    return [Table("table-settings", "The settings.", ["setting", "value"], rows, texts=2)]


def _shown(value: Json) -> str:
    """Returns a setting in readable form."""
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(str(item) for item in value) or "none"
    return (value or "none") if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def reproduce(view: View) -> list[Block]:
    """Returns the section with the command that made the report; nothing if it is not known."""
    command: str | Sequence[str] | None = view.settings.get(_COMMAND)
    if not command:
        return []
    text = command if isinstance(command, str) else shlex.join(str(part) for part in command)
    return [
        "All numbers are in report.json, beside this report; the same measurements give the same report, byte for"
        " byte. This command measured them:",
        Command(text),
    ]
