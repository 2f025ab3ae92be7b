"""The task that something is of: a config, what a checkpoint stores, a model from elsewhere. Open it to ask for one."""

from __future__ import annotations

from typing import Any

import ml_collections

from charlm.convert.heads import FINE_TUNED, QUESTION_ANSWERING, TOKEN_CLASSIFICATION
from charlm.data.tag_schemes import is_iob
from charlm.families.pretrained import Pretrained
from charlm.tasks.base import Task
from charlm.tasks.classification import Classification, Regression
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.table import TASKS, class_of
from charlm.tasks.tables import Columns
from charlm.tasks.tagging import Tagging


def task_named(name: str) -> type[Task[Any, Any]]:
    """Returns the class of a task.

    Raises:
      ValueError: when there is none of that name, naming the nearest, or the package that brings it is broken.
    """
    if name not in TASKS:
        raise ValueError(f"task {TASKS.unknown(name)}")
    return class_of(name)


def task_of(config: ml_collections.ConfigDict) -> Task[Any, Any]:
    """Returns the task of a fine-tuning config, which has seen no data yet."""
    return task_named(config.task).from_config(config)


def from_settings(settings: dict[str, Any]) -> Task[Any, Any]:
    """Returns the task that a checkpoint was fine-tuned for.

    Raises:
      ValueError: when there is no such task, or it does not have these settings.
    """
    named = dict(settings)
    name = named.pop("name", "")
    task = task_named(name)
    try:
        return task.from_settings(named)
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
