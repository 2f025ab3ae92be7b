"""The table of tasks: what configs and help texts must know of each task before its code is imported.

Open it to add a task to charlm or to change the config keys that a task reads; a task of another package is added by
`charlm.register.task`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from charlm.convert.heads import FINE_TUNED
from charlm.core.entries import check_fields, is_line, problem_of, problem_of_methods, takes
from charlm.core.keys import Key, problem_of_key, problem_of_name
from charlm.core.registry import Registry, load
from charlm.core.types import Option
from charlm.tasks.rows import PASSAGES, QUESTIONS, TEXTS, WORDS, RowFormat

SECTION = "data"  # the section of a config that holds the keys of charlm's own tasks
TEXT_KEYS = ("data.text", "data.pair", "data.label", "data.id", "data.header")
TABLE_COLUMNS = (*TEXT_KEYS, "data.multi_label", "data.separator", "data.fold_column", "data.skip_labels")

OF_PASSAGES = ("data.text", "data.label", "data.id", "data.header", "data.fold_column")  # read with data.target


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """What must be known of a task before its code is imported.

    Attributes:
      line: a line for users that says what the task predicts.
      task: the class, or its place as "module:Class".
      reads: which of the config keys that only some tasks read this task reads, see `charlm.config.finetuning`.
      keys: config keys of the task's own, by full name ("data.sign"): in a section of its own, or in `SECTION`.
      unlabelled: whether the task can read files without labels.
      rows: how `charlm.finetune` writes rows of Python for the task; None: it takes files alone.
      config: the config file of charlm whose sizes suit the task, for `charlm.finetune(..., task=NAME)`.
    """

    line: str
    task: str | type
    reads: tuple[str, ...] = ()
    keys: Mapping[str, Key] = dataclasses.field(default_factory=dict)
    unlabelled: bool = True
    rows: RowFormat | None = None
    config: str = "classify"


_OWN = {
    "classification": TaskEntry(
        "one of several classes for a text or pair",
        "charlm.tasks.classification:Classification",
        reads=(*TABLE_COLUMNS, "data.metric"),
        rows=TEXTS,
    ),
    "regression": TaskEntry(
        "a number for a text or pair",
        "charlm.tasks.classification:Regression",
        reads=TABLE_COLUMNS,
        rows=TEXTS,
        config="regress",
    ),
    "tagging": TaskEntry(
        "a tag for every word: entities, parts of speech, languages",
        "charlm.tasks.tagging:Tagging",
        reads=("data.word", "data.tag", "data.scheme", "data.metric", "data.skip_labels", "data.target", *OF_PASSAGES),
        rows=WORDS,
        config="tag",
    ),
    "question_answering": TaskEntry(
        "a span of a context that answers a question, or none",
        "charlm.tasks.question_answering:QuestionAnswering",
        reads=("data.stride", "data.max_question", "data.max_answer", "data.n_best", "data.noise_context"),
        rows=QUESTIONS,
        config="answer",
    ),
    "ranking": TaskEntry(
        "passages by how well they answer a query",
        "charlm.tasks.ranking:Ranking",
        reads=(*TEXT_KEYS, "data.group"),
        unlabelled=False,
        rows=PASSAGES,
        config="rank",
    ),
}  # fmt: skip


def _checked(name: str, thing: object) -> TaskEntry:
    """Returns the checked entry of a task that a package adds.

    Args:
      thing: the class of the task, or a `TaskEntry`.

    Raises:
      ValueError: the task or its entry lacks a part, or a part is wrong.
    """
    entry = thing if isinstance(thing, TaskEntry) else entry_of(thing)
    kinds = {
        "line": str,
        "reads": tuple,
        "keys": Mapping,
        "unlabelled": bool,
        "rows": (RowFormat, type(None)),
        "config": str,
    }
    check_fields(f"task {name!r}", entry, kinds)
    if not entry.line:
        raise ValueError(f"task {name!r}: it lacks a line that says what is predicted")
    if not is_line(entry.line):
        raise ValueError(f"task {name!r}: line={entry.line!r}, expected one line of text")
    for key, told in entry.keys.items():
        section, dot, leaf = str(key).partition(".")
        if not (dot and section.isidentifier() and leaf.isidentifier()):
            raise ValueError(f"task {name!r}: its key {key!r} is no SECTION.NAME, such as data.sign")
        if problem := problem_of_name(key) or problem_of_key(told):
            raise ValueError(f"task {name!r}: its key {key!r}: {problem}")
    known = tuple(dict.fromkeys(key for own in _OWN.values() for key in own.reads))
    if unknown := [key for key in entry.reads if key not in known]:
        raise ValueError(f"task {name!r}: reads={unknown[0]!r}, expected some of {', '.join(known)}")
    if not isinstance(entry.task, str):
        _check_class(name, entry.task)
    elif problem := problem_of(entry.task):
        raise ValueError(f"task {name!r}: task={entry.task!r}: {problem}")
    return entry


def class_of(name: str) -> type:
    """Returns the class of a task, a subclass of `charlm.tasks.base.Task`.

    Raises:
      KeyError: the task does not exist.
      ValueError: the class cannot be loaded, or lacks a part.
    """
    task = TASKS.load(name, TASKS[name].task)
    _check_class(name, task)
    return task


def entry_of(task: Any, **fields: Option) -> TaskEntry:  # of whatever a package adds; `_check_class` checks it
    """Returns the entry of a class.

    Fields that are not given have defaults: `line` is the first line of the docstring; `reads`, `unlabelled`, `rows`
    and `config` are those of the first task of charlm that the class is derived from.

    Args:
      task: the class.
      fields: fields of `TaskEntry`; None: not given.
    """
    bases = [f"{base.__module__}:{base.__qualname__}" for base in getattr(task, "__mro__", ())]
    like = next((entry for base in bases for entry in _OWN.values() if entry.task == base), TaskEntry("", ""))
    said = (getattr(task, "__doc__", None) or "").strip().partition("\n")[0].rstrip(".")
    # Each value has the type of its field.
    usual: dict[str, Any] = {name: getattr(like, name) for name in ("reads", "unlabelled", "rows", "config")}
    usual["line"] = said
    return TaskEntry(task=task, **usual | {name: value for name, value in fields.items() if value is not None})


def _check_class(name: str, task: Any) -> None:  # anything, until it is checked here
    base = load("charlm.tasks.base:Task")
    if not (isinstance(task, type) and issubclass(task, base)):
        raise ValueError(f"task {name!r}: expected a subclass of charlm.tasks.base.Task, got {task!r}")
    if missing := sorted(getattr(task, "__abstractmethods__", ())):
        raise ValueError(f"task {name!r}: {task.__name__} lacks {', '.join(missing)}")
    if problem := problem_of_methods(task, base):
        raise ValueError(f"task {name!r}: {problem}")
    if inspect.getattr_static(task, "from_config") is vars(base)["from_config"] and not takes(task, 0):
        raise ValueError(f"task {name!r}: {task.__name__} lacks from_config, since making one takes arguments")
    if getattr(task, "head", None) not in FINE_TUNED:
        head = getattr(task, "head", None)
        raise ValueError(f"task {name!r}: {task.__name__}.head={head!r}, expected one of {', '.join(FINE_TUNED)}")
    if not hasattr(task, "metric") and task.__init__ is object.__init__:
        raise ValueError(f"task {name!r}: {task.__name__} lacks metric, the score that says which model is better")
    if not isinstance(getattr(task, "metric", ""), str | property):
        raise ValueError(f"task {name!r}: {task.__name__}.metric={task.metric!r}, expected the name of a score")
    if "name" in vars(task) and task.name != name:
        raise ValueError(f"task {name!r}: {task.__name__}.name={task.name!r}, expected {name!r}")
    task.name = name


TASKS: Registry[TaskEntry] = Registry("task", "charlm.tasks", _OWN, _checked, reserved=("masked_lm",))
