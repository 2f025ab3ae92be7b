"""The tasks by name: made from a config, or from what a fine-tuned checkpoint stores."""

from __future__ import annotations

from typing import Any

import ml_collections

from charlm.convert.heads import FINE_TUNED, QUESTION_ANSWERING, TOKEN_CLASSIFICATION
from charlm.data.tag_schemes import is_iob
from charlm.families.pretrained import Pretrained
from charlm.tasks.base import Task
from charlm.tasks.classification import Classification, Regression
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.ranking import Ranking
from charlm.tasks.tables import Columns
from charlm.tasks.tagging import Tagging

TASKS: dict[str, type[Task[Any, Any]]] = {
    task.name: task for task in (Classification, Regression, Tagging, QuestionAnswering, Ranking)
}


def task_of(config: ml_collections.ConfigDict) -> Task[Any, Any]:
    """Returns the task of a fine-tuning config, which has seen no data yet."""
    data = config.data
    if config.task == "tagging":
        return Tagging(data.word, data.tag, data.scheme)
    if config.task == "question_answering":
        names = ("stride", "max_question", "max_answer", "n_best", "noise_context")
        return QuestionAnswering(**{name: data[name] for name in names})
    group = data.fold_column or data.group
    names = ("header", "multi_label", "separator", "skip_labels")
    columns = Columns(data.text, data.pair, data.label, group, data.id, **{name: data[name] for name in names})
    if config.task == "classification":
        return Classification(columns, metric=data.metric or "accuracy")
    return Regression(columns) if config.task == "regression" else Ranking(columns)


def from_settings(settings: dict[str, Any]) -> Task[Any, Any]:
    """Returns the task that a checkpoint was fine-tuned for.

    Raises:
      ValueError: when there is no such task, or it does not have these settings.
    """
    named = dict(settings)
    name, columns, labels = named.pop("name", ""), named.pop("columns", None), named.pop("labels", ())
    if name not in TASKS:
        raise ValueError(f"task {name!r} is not one of {', '.join(TASKS)}")
    try:
        if columns is not None:
            named["columns"] = Columns(**{**columns, "skip_labels": tuple(columns.get("skip_labels", ()))})
        if name in ("classification", "tagging"):
            named["labels"] = tuple(labels)
        return TASKS[name](**named)
    except TypeError as error:
        raise ValueError(f"task {name}: its settings cannot be read: {error}") from None


def task_of_model(model: Pretrained) -> Task[Any, Any]:
    """Returns the task that a model was fine-tuned for, here or elsewhere.

    Raises:
      ValueError: when it has no head for labels.
    """
    if settings := model.metadata.get("task"):
        return from_settings(settings)
    if model.head not in FINE_TUNED:
        raise ValueError(f"{model.folder}: {model.family} with the head {model.head} was fine-tuned for no task")
    number = model.metadata["labels"]
    names = (model.metadata.get("hf_config") or {}).get("id2label") or {}
    labels = [str(names.get(str(n), f"LABEL_{n}")) for n in range(number)]
    if model.head == TOKEN_CLASSIFICATION:
        return Tagging(labels=labels, entities=is_iob(labels))
    if model.head == QUESTION_ANSWERING:
        return QuestionAnswering(impossible=False)
    return Regression(Columns()) if number == 1 else Classification(Columns(), labels)
