"""Scores one model on one version of the text, and stores the statistics for intervals and groups.

Open it to change what is stored of a score; `results` averages the scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from charlm.metrics.compare import Metric
from charlm.robustness.cells import Cell
from charlm.robustness.segmentation import segmentation
from charlm.robustness.subjects import Subject
from charlm.robustness.versions import Version, sentences_of
from charlm.tasks.base import AnyExample, AnyTask

MEANS_OF_CLASSES = ("macro_f1", "weighted_f1")  # metrics of the counts of each class
STATISTICS, RIGHT, CHANGED, ENTITIES = "statistics", "right", "changed", "entities"  # arrays of a cell


def score(subject: Subject, examples: Sequence[AnyExample], version: Version | None) -> Cell:
    """Returns the cell of a model that reads a version of the examples; None: the examples without noise.

    Predictions are scored against the labels of the original examples.

    Returns:
      a cell with the values "scores", "kind" (of the statistics), "changed" (share of words) and "segmentation", and
      the array `STATISTICS` [rows, sums]. For tagging it also has the arrays `RIGHT` and `CHANGED` [W]: for each scored
      word, whether its tag is right, and whether noise changed it; and `ENTITIES`, if tags mark entities (see
      `Task.word_scores`).
    """
    task = subject.task
    read = list(examples) if version is None else version.examples
    predictions = subject.batches.predict(read)
    if version is not None:
        predictions = [task.restored(p, trace) for p, trace in zip(predictions, version.traces, strict=True)]
    kind, rows = task.statistics(examples, predictions)
    arrays = {STATISTICS: summed(kind, rows, task.metric)}
    if words := task.word_scores(examples, predictions):
        arrays[RIGHT] = words.right
        scored = slice(None) if words.counted is None else words.counted
        arrays[CHANGED] = np.zeros(len(words.right), bool) if version is None else version.changed[scored]
        if words.entities is not None:
            arrays[ENTITIES] = words.entities
    cut = segmentation(subject.model.evaluator.units, sentences_of(task, subject.batches.read(read)))
    changed = 0.0 if version is None or not len(version.changed) else float(version.changed.mean())
    values = {"scores": task.scores(examples, predictions), "kind": kind, "changed": changed}
    return Cell(values | {"segmentation": cut._asdict()}, arrays)


def summed(kind: str, rows: np.ndarray, metric: str) -> np.ndarray:
    """Returns statistics without the columns that a metric does not need.

    For tags and entities, the columns of all classes are added up, unless the metric is a mean over classes. Counts are
    stored as int16 if they fit, since a hundred classes in hundreds of cells would fill the memory.
    """
    before = {"tags": 0, "entities": 2}.get(kind)
    if before is not None and metric not in MEANS_OF_CLASSES:
        of_classes = rows[:, before:].reshape(len(rows), 3, -1).sum(axis=2)
        rows = np.concatenate([rows[:, :before], of_classes], axis=1)
    with np.errstate(invalid="ignore"):  # values that do not fit are detected below
        counts = rows.astype(np.int16)
    return counts if (counts == rows).all() else rows


def metric_of(task: AnyTask, kind: str) -> Metric:
    """Returns the metric of the task as a function of sums of statistics [R, S]."""

    def metric(sums_RS: np.ndarray) -> np.ndarray:
        scores = task.scores_of_sums(kind, sums_RS)
        if task.metric not in scores:
            raise ValueError(f"score {task.metric!r} of {task.name}: expected one of {', '.join(scores)}")
        return scores[task.metric]

    return metric


def pooled(cells: Sequence[Cell]) -> np.ndarray:
    """Returns the statistics of each example, averaged over the draws of the noise."""
    return np.mean([cell.arrays[STATISTICS] for cell in cells], axis=0)
