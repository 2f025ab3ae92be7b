"""The search for what misleads each model: kept block by block, counted, and its examples written."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from charlm.core.durable import replacing
from charlm.data.examples import TaggedExample
from charlm.data.squad import Candidate
from charlm.robustness.adversarial import Attacked, attack
from charlm.robustness.cells import Cell, Cells
from charlm.robustness.settings import Settings
from charlm.robustness.subjects import Subject
from charlm.tasks.base import Task
from charlm.tasks.classification import ClassPrediction
from charlm.tasks.question_answering import AnswerPrediction, QuestionAnswering

log = logging.getLogger("charlm")

FOLDER = "adversarial"
BLOCK = 16  # examples that are attacked together and kept together: what a kill may cost


def attacked(
    subject: Subject, examples: Sequence[Any], depends_on: Any, settings: Settings, cells: Cells
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns a model's entry of the results, and a row for each example.

    Args:
      depends_on: what the examples and the model are, for the cells.
    """
    rows: list[dict[str, Any]] = []
    for start in range(0, len(examples), BLOCK):
        block = list(examples[start : start + BLOCK])
        key = [depends_on, len(block), settings.adversarial, settings.language]
        compute = lambda block=block: _cell(subject, block, settings)
        rows += cells.get(f"adversarial-{subject.family}-{start}", key, compute).values["rows"]
        log.info("%s  adversarial  %d of %d examples", subject.name, len(rows), len(examples))
    return _entry(subject, examples, rows, settings.adversarial), rows


def _cell(subject: Subject, examples: Sequence[Any], settings: Settings) -> Cell:
    found = attack(subject.task, subject.batches, examples, settings.adversarial, settings.language)
    return Cell({"rows": [_row(before, after) for before, after in zip(examples, found, strict=True)]}, {})


def _row(example: Any, attacked: Attacked) -> dict[str, Any]:
    return {
        "id": example.id,
        "place": example.place,
        "original": _shown(example),
        "attacked": _shown(attacked.example),
        "edits": [edit._asdict() for edit in attacked.edits],
        "loss": attacked.loss,
        "attacked_loss": attacked.attacked_loss,
        "prediction": attacked.prediction,
        "attacked_prediction": attacked.attacked_prediction,
    }


def _shown(example: Any) -> Any:
    """Returns what may be edited of an example."""
    if isinstance(example, TaggedExample):
        return list(example.words)
    if hasattr(example, "question"):
        return example.question
    return example.text if example.pair is None else [example.text, example.pair]


def _entry(subject: Subject, examples: Sequence[Any], rows: list[dict[str, Any]], edits: int) -> dict[str, Any]:
    task = subject.task
    before, after = ([decoded(task, row[name]) for row in rows] for name in ("prediction", "attacked_prediction"))
    said = [(answer_of(task, a), answer_of(task, b)) for a, b in zip(before, after, strict=True)]
    flipped = None if said[0][0] is None else sum(a != b for a, b in said) / len(said)
    return {
        "model": subject.name,
        "edits": edits,
        "examples": len(rows),
        "clean": task.scores(examples, before)[task.metric],
        "attacked": task.scores(examples, after)[task.metric],
        "flipped": flipped,
        "edits_used": sum(len(row["edits"]) for row in rows) / len(rows),
    }


def decoded(task: Task[Any, Any], prediction: Any) -> Any:
    """Returns a prediction from what JSON makes of it."""
    if task.name == "tagging":
        return tuple(prediction)
    if task.name == "classification":
        return ClassPrediction(prediction[0], tuple(prediction[1]))
    if task.name == "question_answering":
        return AnswerPrediction(tuple(Candidate(*candidate) for candidate in prediction[0]), prediction[1])
    return float(prediction)


def answer_of(task: Task[Any, Any], prediction: Any) -> Any:
    """Returns the tags, class or answer of a prediction; None of a number, which moves with every edit."""
    if isinstance(task, QuestionAnswering):
        return task.answer(prediction)
    if task.name == "classification":
        return prediction.label
    return prediction if task.name == "tagging" else None


def write(folder: Path, subject: Subject, rows: Sequence[dict[str, Any]]) -> Path:
    """Writes the examples that were attacked as JSON lines; returns the file."""
    path = folder / FOLDER / f"{subject.name.replace('/', '_')}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    task = subject.task
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in rows:
            shown = dict(row)
            for name in ("prediction", "attacked_prediction"):
                prediction = decoded(task, row[name])
                answer = answer_of(task, prediction)
                shown[name] = prediction if answer is None else answer
            file.write(json.dumps(shown, ensure_ascii=False) + "\n")
    return path
