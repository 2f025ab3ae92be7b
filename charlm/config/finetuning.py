"""Declares every config key of fine-tuning once, with its meaning, unit and rule, and checks of several keys.

The shape of the model comes from `init_from`; the files in `configs/` set what their task changes. A task may bring
keys of its own (see `charlm.tasks.table.TaskEntry`), which a config of that task has as well.
`charlm.config.pretraining` is the counterpart for pre-training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_collections

from charlm.config.shared import ACCUMULATION, ADAM, CLIP_NORM, COMPUTING, LOG_EVERY, MESH, PREFETCH, STALL_MINUTES
from charlm.core.keys import Key, amount, count, defaults, natural, put, share
from charlm.families.family import families_with_option
from charlm.tasks.table import TASKS, TaskEntry
from charlm.text.noise import KINDS, Noise
from charlm.text.words import SPLITTERS

TASK = "tagging"  # the task of a config that names none
KEYS: dict[str, Key] = {
    "task": Key(TASK, "what is learned: a name of the table of tasks below", TASKS),
    "seed": natural(0, "seeds the head's first parameters, dropout, the order of examples and noise"),
    "seeds": count(1, "runs, with seeds `seed`, `seed` + 1, ...: mean and standard deviation of all"),
    "init_from": Key("", "workdir, checkpoint, or folder of PyTorch weights of a pre-trained or fine-tuned model"),
    "data.train": Key((), "files to learn from: tables, CoNLL columns, CoNLL-U, SQuAD's JSON; .gz too"),
    "data.dev": Key((), "files to choose the best epoch by; empty: a part of `train` set aside"),
    "data.test": Key((), "files to predict at the end, with the best epoch's parameters"),
    "data.test_labels": Key(True,
        "the test files hold what is to be predicted; False: predictions are written, not scored"),
    "data.dev_share": Key(0.1, "share of the training examples set aside when `dev` is empty"),
    "data.folds": natural(0, "k of k-fold cross-validation over `train`; 0: none"),
    "data.fold_column": Key("", "column of a table that names the fold of each row; empty: dealt by number"),
    "data.text": Key("sentence", "tables: column of the text, by name, or by number where there is no header"),
    "data.pair": Key("", "tables: column of the second text; empty: there is none"),
    "data.label": Key("label", "tables: column of class, number or relevance"),
    "data.group": Key("", "tables: column of the query's id (ranking)"),
    "data.id": Key("", "tables: column of the id that predictions carry; empty: file and line"),
    "data.header": Key("auto",
        'tables: whether the first row names the columns: "yes", "no", or "auto"', ("auto", "yes", "no")),
    "data.multi_label": Key("error",
        'a cell with several labels: "error", "first" or "skip"', ("error", "first", "skip")),
    "data.separator": Key("", 'what parts several labels of a cell, such as ","; empty: a cell is one label'),
    "data.skip_labels": Key((), 'rows of tables with these labels are left out, such as "-" in SNLI'),
    "data.metric": Key("",
        'classification: score that is best: "accuracy", "macro_f1", "f1" (of two classes), "matthews"',
        ("", "accuracy", "macro_f1", "f1", "matthews")),
    "data.word": Key("", "tagging: number of the words' column; empty: the format's usual one"),
    "data.tag": Key("auto",
        'tagging: the tags\' column: a number, or "upos", "xpos", "misc:KEY", "feats:KEY" of CoNLL-U'),
    "data.scheme": Key("auto",
        'tagging: how tags spell entities: "auto", "iob1", "iob2", "iobes", or "none": no entities',
        ("auto", "iob1", "iob2", "iobes", "none")),
    "data.stride": count(128, "question answering: units (words or pieces) from window to window"),
    "data.max_question": count(64, "question answering: units of a question that are read"),
    "data.max_answer": count(30, "question answering: units of the longest answer"),
    "data.n_best": count(20, "question answering: candidates kept"),
    "data.noise": Key((),
        'kinds of noise put into training examples, such as "drop:0.1"; one is drawn for each example'),
    "data.noise_share": Key(1.0, "share of the examples of an epoch that get noise"),
    "data.noise_context": Key(False, "question answering: noise in the context, too"),
    "data.noise_dev": Key(False, "the same noise in the development examples"),
    "data.misspellings": Key("", 'noise: list of misspellings for the kind "misspelling"'),
    "data.max_length": natural(0, "units of the longest row, special ones included; 0: as many as the model reads"),
    "data.batch_size": count(16, "rows of an optimizer step"),
    "data.accumulation": ACCUMULATION,
    "data.eval_batch_size": count(32, "rows predicted at a time"),
    "data.prefetch": PREFETCH._replace(default=2),
    "model.mode": Key("",
        'Char2Subword: what words become, "full" or "hybrid"; empty: as the model says', ("", "full", "hybrid")),
    "model.splitter": Key("",
        "models of whole words: how text is cut, as in `text.splitter`; empty: as the model says", ("", *SPLITTERS)),
    "model.policy": Key("",
        'XRayEmb: words read as characters, e.g. "none", "stochastic:0.1"; empty: as the model says'),
    "model.eval_policy": Key("",
        'XRayEmb: the same for all but training; empty: `policy`, or "none" where that one draws'),
    "model.label_head": Key("",
        'HLM: "paper" reads [r_i; w_i] (section 3.3; the default), "reference" as the released code',
        ("", "paper", "reference")),
    "model.dropout": Key(-1.0, "of embeddings, residual branches and heads; -1: as the model was pre-trained"),
    "model.attention_dropout": Key(-1.0, "of attention probabilities; -1: as the model was pre-trained"),
    **COMPUTING,
    "optim.learning_rate": amount(2e-5, "peak, after warm-up"),
    "optim.head_learning_rate": amount(0.0, "of what was not pre-trained; 0: the same"),
    "optim.warmup_share": share(0.1, "share of all steps in which the learning rate rises from 0"),
    **ADAM,
    "optim.weight_decay": amount(0.0, "of matrices"),
    "optim.clip_norm": CLIP_NORM,
    "optim.freeze": Key((), "parameters that stay as they are: regular expressions found in their names, e.g. embed"),
    "train.epochs": count(5, "passes over the training examples"),
    "train.patience": natural(0,
        "epochs without a better score on development data after which training ends; 0: never"),
    "train.log_every": LOG_EVERY._replace(default=50),
    "train.stall_minutes": STALL_MINUTES,
    "train.checkpoint_every": count(1000, "steps between checkpoints to go on from, beside one after each epoch"),
    **MESH,
}  # fmt: skip
LISTS = ("data.train", "data.dev", "data.test", "data.noise", "data.skip_labels", "optim.freeze")  # typed with commas


def get_config(task: str = TASK) -> ml_collections.ConfigDict:
    """Returns the defaults of a task, including the keys that the task brings.

    Raises:
      ValueError: the package that brings the task is broken, or one of the task's own keys is a charlm key.
    """
    config = ml_collections.ConfigDict()
    put(config, defaults(KEYS) | {"task": task})
    if task in TASKS:
        add_task_keys(config, task)
    return config


def add_task_keys(config: ml_collections.ConfigDict, task: str) -> None:
    """Adds to a config the task's own keys that it lacks; raises ValueError as `get_config` does."""
    held = {key for key in task_keys(task) if key.split(".")[1] in config.get(key.split(".")[0], {})}
    put(config, {key: value for key, value in defaults(task_keys(task)).items() if key not in held})


def task_keys(task: str) -> Mapping[str, Key]:
    """Returns the task's own keys by full name; raises ValueError when charlm already has one of them."""
    entry = TASKS[task]
    check_keys_are_free(task, entry)
    return entry.keys


def check_keys_are_free(task: str, entry: TaskEntry) -> None:
    """Raises ValueError when one of the task's own keys is a key of every fine-tuning config."""
    for key in entry.keys:
        if key in KEYS or key.partition(".")[0] in KEYS:
            raise ValueError(f"task {task!r}: its key {key} is taken by charlm; choose another name")


def validate(flat: dict[str, Any]) -> None:
    """Checks what types alone cannot.

    Args:
      flat: keys and values as `charlm.config.flatten` returns them; the values have the types of the defaults.

    Raises:
      ValueError: a wrong value; names key, value and what is expected.
    """
    for key, told in {**KEYS, **task_keys(flat["task"])}.items():
        told.check(key, flat[key])
    for key in ("model.dropout", "model.attention_dropout"):
        if not (flat[key] == -1 or 0 <= flat[key] < 1):
            raise ValueError(f"{key}={flat[key]} must lie in [0, 1), or be -1: as the model was pre-trained")
    for key, value in flat.items():
        name = key.removeprefix("model.")
        if value and name != key and (owners := families_with_option(name)):
            owners[0].check_option(name, value)  # the option means the same in all families
    if not 0 < flat["data.dev_share"] < 1:
        raise ValueError(f"data.dev_share={flat['data.dev_share']} must lie between 0 and 1")
    kinds = [Noise.parse(spec) for spec in flat["data.noise"]]
    if needy := [noise.kind for noise in kinds if KINDS[noise.kind].listed and not flat["data.misspellings"]]:
        raise ValueError(f"data.noise: {needy[0]} needs a list; data.misspellings names none")
    if not 0 <= flat["data.noise_share"] <= 1:
        raise ValueError(f"data.noise_share={flat['data.noise_share']} must lie in [0, 1]")
    if not kinds:
        for key in ("data.noise_share", "data.noise_context", "data.noise_dev", "data.misspellings"):
            if flat[key] != KEYS[key].default:
                raise ValueError(f"{key}={flat[key]!r}, but data.noise names no kind of noise")
    if flat["data.dev"] and flat["data.dev_share"] != KEYS["data.dev_share"].default:
        raise ValueError(f"data.dev_share={flat['data.dev_share']}, but data.dev names files: nothing is set aside")
    if flat["data.folds"] and flat["data.fold_column"]:
        raise ValueError("data.folds deals rows to folds, data.fold_column has them dealt already: choose one")
    entry = TASKS[flat["task"]]
    if not (flat["data.test_labels"] or entry.unlabelled):
        raise ValueError(f"data.test_labels=False: the files of {flat['task']} always hold what there is to predict")
    if flat["data.folds"] == 1:
        raise ValueError("data.folds=1: cross-validation needs at least 2")
    if not flat["data.train"]:
        raise ValueError("data.train names no file")
    if not flat["init_from"]:
        raise ValueError("init_from names no model to fine-tune; a workdir, a checkpoint, or a folder of weights")
    if (flat["data.folds"] or flat["data.fold_column"]) and (flat["data.dev"] or flat["data.test"]):
        raise ValueError("data.folds: cross-validation splits data.train itself; leave data.dev and data.test empty")
    for key, tasks in _readers():
        if key not in entry.reads and flat[key] != KEYS[key].default:
            raise ValueError(f"{key}={flat[key]!r} is of {' and '.join(tasks)}, but the task is {flat['task']}")


def _readers() -> Iterator[tuple[str, list[str]]]:
    """Yields each key that only some tasks read, with charlm's tasks that read it.

    Setting such a key to anything but its default is a mistake in a task that does not read it.
    """
    own = {name: entry for name, entry in TASKS.own.items() if isinstance(entry, TaskEntry)}
    for key in dict.fromkeys(key for entry in own.values() for key in entry.reads):
        yield key, [name for name, entry in own.items() if key in entry.reads]
