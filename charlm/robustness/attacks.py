"""Runs the adversarial search and published attacks for each model, caches them, and writes the attacked examples.

Open it to change what is written about each attacked example.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from charlm.core.durable import replacing
from charlm.core.types import Json, JsonObject
from charlm.robustness.adversarial import Attacked, attack
from charlm.robustness.cells import Cell, Cells
from charlm.robustness.recipe_search import search
from charlm.robustness.recipes import RECIPES_VERSION
from charlm.robustness.settings import ReportSettings
from charlm.robustness.subjects import Subject
from charlm.tasks.base import AnyExample, AnyTask

log = logging.getLogger("charlm")

ADVERSARIAL_FOLDER = "adversarial"
# Examples that are attacked and cached together; an interrupted run loses no more than these.
EXAMPLES_AT_ONCE = 16


def attacked(
    subject: Subject, examples: Sequence[AnyExample], depends_on: Json, settings: ReportSettings, cells: Cells
) -> tuple[JsonObject, list[JsonObject]]:
    """Returns the entry of a model in the results, and a row for each example.

    Args:
      depends_on: digests of the model and the examples, for the names of the cells.
    """
    rows: list[JsonObject] = []
    for start in range(0, len(examples), EXAMPLES_AT_ONCE):
        block = list(examples[start : start + EXAMPLES_AT_ONCE])
        key = [depends_on, len(block), settings.adversarial, settings.language]
        compute = lambda block=block: _cell(subject, block, settings)
        rows += cells.get(f"adversarial-{subject.family}-{start}", key, compute).values["rows"]
        log.info("%s  adversarial  %d of %d examples", subject.name, len(rows), len(examples))
    return _entry(subject, examples, rows, settings.adversarial), rows


def _cell(subject: Subject, examples: Sequence[AnyExample], settings: ReportSettings) -> Cell:
    found = attack(subject.task, subject.batches, examples, settings.adversarial, settings.language)
    return Cell({"rows": [_row(subject.task, *pair) for pair in zip(examples, found, strict=True)]}, {})


def attacked_by_recipe(
    subject: Subject, examples: Sequence[AnyExample], depends_on: Json, recipe: str, cells: Cells
) -> tuple[JsonObject, list[JsonObject]]:
    """Returns the entry of a model under a published attack, and a row for each example; see `attacked`."""
    rows: list[JsonObject] = []
    for start in range(0, len(examples), EXAMPLES_AT_ONCE):
        block = list(examples[start : start + EXAMPLES_AT_ONCE])
        compute = lambda block=block: _recipe_cell(subject, block, recipe)
        name = f"attack-{recipe}-{subject.family}-{start}"
        rows += cells.get(name, [depends_on, len(block), recipe, RECIPES_VERSION], compute).values["rows"]
        log.info("%s  %s  %d of %d examples", subject.name, recipe, len(rows), len(examples))
    tried = [row for row in rows if not row["skipped"]]
    won = [row for row in tried if row["succeeded"]]
    mean = lambda name, of: sum(row[name] for row in of) / len(of) if of else None
    return _scored(subject, examples, rows) | {
        "recipe": recipe,
        "skipped": len(rows) - len(tried),
        "success": len(won) / len(tried) if tried else None,
        "queries": mean("queries", tried),
        "words": mean("words_changed", won),
    }, rows


def _recipe_cell(subject: Subject, examples: Sequence[AnyExample], recipe: str) -> Cell:
    found = search(subject.task, subject.batches, examples, recipe)
    rows = []
    for example, one in zip(examples, found, strict=True):
        counts = {"skipped": one.skipped, "succeeded": one.succeeded, "queries": one.queries}
        share = len(one.attacked.edits) / max(one.words, 1)
        rows.append(_row(subject.task, example, one.attacked) | counts | {"words_changed": share})
    return Cell({"rows": rows}, {})


def _row(task: AnyTask, example: AnyExample, attacked: Attacked) -> JsonObject:
    return {
        "id": example.id,
        "place": example.place,
        "original": _shown(task, example),
        "attacked": _shown(task, attacked.example),
        "edits": [edit._asdict() for edit in attacked.edits],
        "loss": attacked.loss,
        "attacked_loss": attacked.attacked_loss,
        "prediction": task.encoded(attacked.prediction),
        "attacked_prediction": task.encoded(attacked.attacked_prediction),
    }


def _shown(task: AnyTask, example: AnyExample) -> Json:
    """Returns the texts of an example as a list, or the text itself if there is only one."""
    texts = [text if isinstance(text, str) else list(text) for text in task.texts(example).values()]
    return texts[0] if len(texts) == 1 else texts


def _entry(subject: Subject, examples: Sequence[AnyExample], rows: list[JsonObject], edits: int) -> JsonObject:
    task = subject.task
    before, after = ([task.decoded(row[name]) for row in rows] for name in ("prediction", "attacked_prediction"))
    said = [
        (task.scored_answer(example, a), task.scored_answer(example, b))
        for example, a, b in zip(examples, before, after, strict=True)
    ]
    flipped = None if said[0][0] is None else sum(a != b for a, b in said) / len(said)
    return _scored(subject, examples, rows) | {
        "edits": edits,
        "flipped": flipped,
        "edits_used": sum(len(row["edits"]) for row in rows) / len(rows),
    }


def _scored(subject: Subject, examples: Sequence[AnyExample], rows: list[JsonObject]) -> JsonObject:
    task = subject.task
    before, after = ([task.decoded(row[name]) for row in rows] for name in ("prediction", "attacked_prediction"))
    return {
        "model": subject.name,
        "examples": len(rows),
        "clean": task.scores(examples, before)[task.metric],
        "attacked": task.scores(examples, after)[task.metric],
    }


def write(folder: Path, name: str, task: AnyTask, rows: Sequence[JsonObject]) -> Path:
    """Writes attacked examples as JSON lines into a file of that name; returns the file."""
    name = quote(name, safe=" ")  # models a/b and a_b have files of their own
    path = folder / ADVERSARIAL_FOLDER / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in rows:
            shown = dict(row)
            for name in ("prediction", "attacked_prediction"):
                answer = task.answer(task.decoded(row[name]))
                shown[name] = row[name] if answer is None else answer
            file.write(json.dumps(shown, ensure_ascii=False) + "\n")
    return path
