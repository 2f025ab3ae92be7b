"""Every configuration key of fine-tuning, once, with its meaning and unit; those of pre-training:
`charlm.config.pretraining`.

The shape of the model is that of `init_from`. The files in `configs/` change what their task changes. A task that is
added brings keys of its own, see `charlm.tasks.table.TaskEntry`: a config of that task has them, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import ml_collections

from charlm.families.family import families_with_option
from charlm.tasks.table import TASKS, Key, TaskEntry
from charlm.text.noise import KINDS, Noise
from charlm.text.words import SPLITTERS

CHOICES: dict[str, Collection[str]] = {
    "task": TASKS,
    "data.header": ("auto", "yes", "no"),
    "data.scheme": ("auto", "iob1", "iob2", "iobes", "none"),
    "data.multi_label": ("error", "first", "skip"),
    "data.metric": ("", "accuracy", "macro_f1", "f1", "matthews"),
    "model.label_head": ("", "paper", "reference"),
    "model.mode": ("", "full", "hybrid"),
    "model.splitter": ("", *SPLITTERS),
    "model.dtype": ("float32", "bfloat16"),
    "model.attention_kernel": ("auto", "einsum", "cudnn"),
    "optim.schedule": ("linear", "cosine", "constant"),
}
LISTS = (
    ("data", "train"), ("data", "dev"), ("data", "test"), ("data", "noise"), ("data", "skip_labels"),
    ("optim", "freeze"),
)  # fmt: skip


def get_config(task: str = "tagging") -> ml_collections.ConfigDict:
    """Returns the defaults of a task, with the keys of its own if it has some.

    Raises:
      ValueError: when a package that brings the task is broken, or a key of its own is one of charlm's.
    """
    config = _shared_keys(task)
    if task in TASKS:
        add_task_keys(config, task)
    return config


def add_task_keys(config: ml_collections.ConfigDict, task: str) -> None:
    """Adds the keys of a task's own that a config does not have; ValueError as `get_config`."""
    keys = task_keys(task)
    with config.unlocked():
        for key, told in keys.items():
            section, leaf = key.split(".")
            if section not in config:
                config[section] = ml_collections.ConfigDict()
            if leaf not in config[section]:
                config[section][leaf] = told.default


def task_keys(task: str) -> Mapping[str, Key]:
    """Returns the keys of a task's own, by full name; ValueError when one of them is charlm's already."""
    entry = TASKS[task]
    check_keys_are_free(task, entry)
    return entry.keys


def check_keys_are_free(task: str, entry: TaskEntry) -> None:
    """Raises ValueError when a key of a task's own is one that every fine-tuning config has."""
    taken = _shared_keys(task)
    for key in entry.keys:
        section, _, leaf = key.partition(".")
        if section in taken and (not isinstance(taken[section], ml_collections.ConfigDict) or leaf in taken[section]):
            raise ValueError(f"task {task!r}: its key {key} is taken by charlm; choose another name")


def _shared_keys(task: str) -> ml_collections.ConfigDict:
    """Returns the keys of every task."""
    config = ml_collections.ConfigDict()
    config.task = task  # what is learned: a name of the table of tasks below
    config.seed = 0  # seeds the head's first parameters, dropout, the order of examples and noise
    config.seeds = 1  # runs, with seeds `seed`, `seed` + 1, ...: mean and standard deviation of all
    config.init_from = ""  # workdir, checkpoint, or folder of PyTorch weights of a pre-trained or fine-tuned model
    _data_keys(config)
    _model_keys(config)
    _training_keys(config)
    return config


def _data_keys(config: ml_collections.ConfigDict) -> None:
    config.data = data = ml_collections.ConfigDict()
    data.train = ()  # files to learn from: tables, CoNLL columns, CoNLL-U, SQuAD's JSON; .gz too
    data.dev = ()  # files to choose the best epoch by; empty: a part of `train` set aside
    data.test = ()  # files to predict at the end, with the best epoch's parameters
    data.test_labels = True  # the test files hold what is to be predicted; False: predictions are written, not scored
    data.dev_share = 0.1  # share of the training examples set aside when `dev` is empty
    data.folds = 0  # k of k-fold cross-validation over `train`; 0: none
    data.fold_column = ""  # column of a table that names the fold of each row; empty: dealt by number
    data.text = "sentence"  # tables: column of the text, by name, or by number where there is no header
    data.pair = ""  # tables: column of the second text; empty: there is none
    data.label = "label"  # tables: column of class, number or relevance
    data.group = ""  # tables: column of the query's id (ranking)
    data.id = ""  # tables: column of the id that predictions carry; empty: file and line
    data.header = "auto"  # tables: whether the first row names the columns: "yes", "no", or "auto"
    data.multi_label = "error"  # a cell with several labels: "error", "first" or "skip"
    data.separator = ""  # what parts several labels of a cell, such as ","; empty: a cell is one label
    data.skip_labels = ()  # rows of tables with these labels are left out, such as "-" in SNLI
    data.metric = ""  # classification: score that is best: "accuracy", "macro_f1", "f1" (of two classes), "matthews"
    data.word = ""  # tagging: number of the words' column; empty: the format's usual one
    data.tag = "auto"  # tagging: the tags' column: a number, or "upos", "xpos", "misc:KEY", "feats:KEY" of CoNLL-U
    data.scheme = "auto"  # tagging: how tags spell entities: "auto", "iob1", "iob2", "iobes", or "none": no entities
    data.stride = 128  # question answering: units (words or pieces) from window to window
    data.max_question = 64  # question answering: units of a question that are read
    data.max_answer = 30  # question answering: units of the longest answer
    data.n_best = 20  # question answering: candidates kept
    data.noise = ()  # kinds of noise put into training examples, such as "drop:0.1"; one is drawn for each example
    data.noise_share = 1.0  # share of the examples of an epoch that get noise
    data.noise_context = False  # question answering: noise in the context, too
    data.noise_dev = False  # the same noise in the development examples
    data.misspellings = ""  # noise: list of misspellings for the kind "misspelling"
    data.max_length = 0  # units of the longest row, special ones included; 0: as many as the model reads
    data.batch_size = 16  # rows of an optimizer step
    data.accumulation = 1  # micro-batches whose gradients are summed before one update
    data.eval_batch_size = 32  # rows predicted at a time
    data.prefetch = 2  # batches prepared ahead of the step that needs them


def _model_keys(config: ml_collections.ConfigDict) -> None:
    config.model = model = ml_collections.ConfigDict()
    model.mode = ""  # Char2Subword: what words become, "full" or "hybrid"; empty: as the model says
    model.splitter = ""  # models of whole words: how text is cut, as in `text.splitter`; empty: as the model says
    model.policy = ""  # XRayEmb: words read as characters, e.g. "none", "stochastic:0.1"; empty: as the model says
    model.eval_policy = ""  # XRayEmb: the same for all but training; empty: `policy`, or "none" where that one draws
    model.label_head = ""  # HLM: "paper" reads [r_i; w_i] (section 3.3; the default), "reference" as the released code
    model.dropout = -1.0  # of embeddings, residual branches and heads; -1: as the model was pre-trained
    model.attention_dropout = -1.0  # of attention probabilities; -1: as the model was pre-trained
    model.dtype = "float32"  # matmul inputs: "float32" or "bfloat16"
    model.remat = False  # recompute layer activations in the backward pass: less memory, about a third more time
    model.attention_kernel = "auto"  # "auto": the best there is; "einsum": ours; "cudnn": NVIDIA's, at inference


def _training_keys(config: ml_collections.ConfigDict) -> None:
    config.optim = optim = ml_collections.ConfigDict()
    optim.learning_rate = 2e-5  # peak, after warm-up
    optim.head_learning_rate = 0.0  # of what was not pre-trained; 0: the same
    optim.warmup_share = 0.1  # share of all steps in which the learning rate rises from 0
    optim.schedule = "linear"  # after warm-up: "linear" or "cosine" to 0 at the last step, or "constant"
    optim.b1 = 0.9  # AdamW: decay of the first moment
    optim.b2 = 0.999  # AdamW: decay of the second moment
    optim.eps = 1e-8  # AdamW: added to the root of the second moment
    optim.weight_decay = 0.0  # of matrices
    optim.clip_norm = 1.0  # global gradient norm is cut to this; 0: never
    optim.freeze = ()  # parameters that stay as they are: regular expressions found in their names, e.g. embed

    config.train = train = ml_collections.ConfigDict()
    train.epochs = 5  # passes over the training examples
    train.patience = 0  # epochs without a better score on development data after which training ends; 0: never
    train.log_every = 50  # steps between progress lines
    train.checkpoint_every = 1000  # steps between checkpoints to go on from, beside one after each epoch

    config.mesh = mesh = ml_collections.ConfigDict()
    mesh.data = -1  # devices over which the batch is spread; -1: all that are left
    mesh.fsdp = 1  # devices over which batch, parameters and optimizer state are spread
    mesh.model = 1  # devices over which single matrices are spread


POSITIVE = (
    "seeds", "data.batch_size", "data.accumulation", "data.eval_batch_size", "data.stride", "data.max_question",
    "data.max_answer", "data.n_best", "train.epochs", "train.log_every", "train.checkpoint_every",
)  # fmt: skip
NOT_NEGATIVE = (
    "seed", "data.folds", "data.max_length", "data.prefetch", "train.patience", "optim.learning_rate",
    "optim.head_learning_rate", "optim.eps", "optim.weight_decay", "optim.clip_norm",
)  # fmt: skip
SHARES = ("optim.b1", "optim.b2", "optim.warmup_share")


def validate(flat: dict[str, Any]) -> None:
    """Checks what types cannot; `flat` as `charlm.config.flatten` gives it: values of the types of the defaults.

    Raises:
      ValueError: naming key, value and what is expected.
    """
    for key in POSITIVE:
        if flat[key] < 1:
            raise ValueError(f"{key}={flat[key]} must be at least 1")
    for key in NOT_NEGATIVE:
        if not 0 <= flat[key] < math.inf:
            raise ValueError(f"{key}={flat[key]} must not be negative, and finite")
    for key in SHARES:
        if not 0 <= flat[key] < 1:
            raise ValueError(f"{key}={flat[key]} must lie in [0, 1)")
    for key in ("model.dropout", "model.attention_dropout"):
        if not (flat[key] == -1 or 0 <= flat[key] < 1):
            raise ValueError(f"{key}={flat[key]} must lie in [0, 1), or be -1: as the model was pre-trained")
    for key, value in flat.items():
        name = key.removeprefix("model.")
        if value and name != key and (owners := families_with_option(name)):
            owners[0].check_option(name, value)  # it means the same in all of them
    if not 0 < flat["data.dev_share"] < 1:
        raise ValueError(f"data.dev_share={flat['data.dev_share']} must lie between 0 and 1")
    kinds = [Noise.parse(spec) for spec in flat["data.noise"]]
    if needy := [noise.kind for noise in kinds if KINDS[noise.kind].listed and not flat["data.misspellings"]]:
        raise ValueError(f"data.noise: {needy[0]} needs a list; data.misspellings names none")
    if not 0 <= flat["data.noise_share"] <= 1:
        raise ValueError(f"data.noise_share={flat['data.noise_share']} must lie in [0, 1]")
    if not kinds:
        for key in ("data.noise_share", "data.noise_context", "data.noise_dev", "data.misspellings"):
            if flat[key] != _default(key):
                raise ValueError(f"{key}={flat[key]!r}, but data.noise names no kind of noise")
    if flat["data.dev"] and flat["data.dev_share"] != _default("data.dev_share"):
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
    for key, told in task_keys(flat["task"]).items():
        told.check(key, flat[key])
    for key, tasks in _readers():
        if key not in entry.reads and flat[key] != _default(key):
            raise ValueError(f"{key}={flat[key]!r} is of {' and '.join(tasks)}, but the task is {flat['task']}")


def _readers() -> Iterator[tuple[str, list[str]]]:
    """Yields each key that not every task reads, with those of charlm's tasks that do.

    Anything but the default is a mistake where the task does not read it.
    """
    own = {name: entry for name, entry in TASKS.own.items() if isinstance(entry, TaskEntry)}
    for key in dict.fromkeys(key for entry in own.values() for key in entry.reads):
        yield key, [name for name, entry in own.items() if key in entry.reads]


def _default(key: str) -> object:
    section, name = key.split(".")
    return get_config()[section][name]
