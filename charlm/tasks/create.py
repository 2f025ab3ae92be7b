"""Creates the task object for a config, for the settings in a checkpoint, or for a model from elsewhere.

Use it in code that gets a task by config or checkpoint; the table itself is `charlm.tasks.table`.
"""

from __future__ import annotations

import ml_collections

from charlm.convert.heads import FINE_TUNED, QUESTION_ANSWERING, TOKEN_CLASSIFICATION
from charlm.core.types import JsonObject
from charlm.data.tag_schemes import is_iob
from charlm.families.pretrained import Pretrained
from charlm.tasks.base import AnyTask
from charlm.tasks.classification import Classification, Regression
from charlm.tasks.columns import Columns
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.table import TASKS, class_of
from charlm.tasks.tagging import Tagging


def task_named(name: str) -> type[AnyTask]:
    """Returns the class of a task.

    Raises:
      ValueError: no task has that name (the message names the nearest one), or the package of the task is broken.
    """
    if name not in TASKS:
        raise ValueError(f"task {TASKS.unknown(name)}")
    return class_of(name)


def task_of(config: ml_collections.ConfigDict) -> AnyTask:
    """Returns the task of a fine-tuning config, before it has seen any data."""
    return task_named(config.task).from_config(config)


def from_settings(settings: JsonObject) -> AnyTask:
    """Returns the task that a checkpoint was fine-tuned for.

    Raises:
      ValueError: the task does not exist, or it does not have these settings.
    """
    named = dict(settings)
    name = named.pop("name", "")
    task = task_named(name)
    try:
        return task.from_settings(named)
    except TypeError as error:
        raise ValueError(f"task {name}: its settings cannot be read: {error}") from None


def task_of_model(model: Pretrained) -> AnyTask:
    """Returns the task that a model was fine-tuned for, by charlm or by other code.

    Raises:
      ValueError: the model has no head of a fine-tuning task.
    """
    if settings := model.metadata.get("task"):
        return from_settings(settings)
    if model.head not in FINE_TUNED:
        raise ValueError(f"{model.folder}: this {model.title} was fine-tuned for no task; charlm finetune does that")
    number = model.metadata["labels"]
    names = (model.metadata.get("hf_config") or {}).get("id2label") or {}
    labels = [str(names.get(str(n), f"LABEL_{n}")) for n in range(number)]
    if model.head == TOKEN_CLASSIFICATION:
        return Tagging(labels=labels, entities=is_iob(labels))
    if model.head == QUESTION_ANSWERING:
        return QuestionAnswering(impossible=False)
    return Regression(Columns()) if number == 1 else Classification(Columns(), labels)
