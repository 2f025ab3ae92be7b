"""Declares every config key of fine-tuning once, with its meaning, unit and rule, and checks of several keys.

Open it to add a key of fine-tuning or to change its default. The shape of the model comes from `init_from`; the files
in `configs/` set what their task changes. A task may bring keys of its own (see `charlm.tasks.table.TaskEntry`), which
a config of that task has as well. The keys `model.NAME` that only some families' models have are declared by these
families (`charlm.families.family.Family`): every config has those of charlm's own families, and those of an added
family if they are set, or if `get_config` is asked for them. `charlm.config.pretraining` is the counterpart for
pre-training.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import ml_collections

from charlm.config import pretraining
from charlm.config.shared import (
    ACCUMULATION,
    ADAM,
    ATTENTION_DROPOUT,
    BATCH_SIZE,
    CHECKPOINT_EVERY,
    CLIP_NORM,
    COMPUTING,
    DROPOUT,
    FREEZE,
    INIT_FROM,
    LEARNING_RATE,
    LOCAL,
    LOG_EVERY,
    MESH,
    PREFETCH,
    SEED,
    SPIKES,
    STALL_MINUTES,
    TASK_NAME,
    TRAIN,
    WEIGHT_DECAY,
)
from charlm.core.keys import Key, amount, count, defaults, natural, put, share, whole_share
from charlm.core.types import JsonObject
from charlm.families.family import Family, families, model_options, own_families
from charlm.families.family import family as family_named
from charlm.families.options import joined
from charlm.tasks.table import OF_PASSAGES, SECTION, TASKS, TaskEntry
from charlm.text.noise import KINDS, Noise

TASK = "tagging"  # the task of a config that names none
AS_PRE_TRAINED = "as the model was pre-trained"
LABEL_HEAD = "model.label_head"


def _family_keys(among: Iterable[Family]) -> dict[str, Key]:
    """Returns the keys of families by full name: those of their models' fields, then that of their label heads."""
    among = list(among)
    keys = {f"model.{name}": option.key for name, option in model_options(among).items() if option.key is not None}
    if heads := [one.label_head for one in among if one.label_head is not None]:
        choices = tuple(dict.fromkeys(choice for head in heads for choice in head.choices))
        keys[LABEL_HEAD] = Key("", joined(head.meaning for head in heads), choices)
    return keys


KEYS: dict[str, Key] = {
    "task": TASK_NAME.but(TASK, "{}: a name of the table of tasks below", choices=TASKS),
    "seed": SEED.but(meaning="{} the head's first parameters, dropout, the order of examples and noise"),
    "seeds": count(1, "runs, with seeds `seed`, `seed` + 1, ...: mean and standard deviation of all"),
    "init_from": INIT_FROM.but(
        meaning="workdir, checkpoint, or folder of PyTorch weights of a pre-trained or fine-tuned model"),
    "data.train": TRAIN.but(meaning="files to learn from: tables, CoNLL columns, CoNLL-U, SQuAD's JSON; .gz too"),
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
    "data.skip_labels": Key((),
        'rows of tables with these labels are left out ("-" in SNLI); words with these tags are only read'),
    "data.metric": Key("",
        'classes and tags: score of the best epoch, such as "weighted_f1"; empty: accuracy, or "f1" of entities',
        ("", "accuracy", "macro_f1", "weighted_f1", "f1", "matthews")),
    "data.target": Key("", "tagging: column of the word to tag in each passage of a table; empty: columns of words"),
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
    "data.noise_share": whole_share(1.0, "share of the examples of an epoch that get noise"),
    "data.noise_context": Key(False, "question answering: noise in the context, too"),
    "data.noise_dev": Key(False, "the same noise in the development examples"),
    "data.misspellings": Key("", 'noise: list of misspellings for the kind "misspelling"'),
    "data.max_length": natural(0, "units of the longest row, special ones included; 0: as many as the model reads"),
    "data.batch_size": BATCH_SIZE,
    "data.accumulation": ACCUMULATION,
    "data.eval_batch_size": count(32, "rows predicted at a time"),
    "data.share_rows": Key("auto",
        'whether short texts lie end to end in rows, each read as if alone: "yes", "no", or "auto": on processors',
        ("auto", "yes", "no")),
    "data.prefetch": PREFETCH.but(2),
    **_family_keys(own_families()),
    "model.dropout": DROPOUT.but(-1.0,
        f"of embeddings, residual branches and heads; -1: {AS_PRE_TRAINED}", minus_one=AS_PRE_TRAINED),
    "model.attention_dropout": ATTENTION_DROPOUT.but(-1.0, f"{{}}; -1: {AS_PRE_TRAINED}", minus_one=AS_PRE_TRAINED),
    **COMPUTING,
    "optim.learning_rate": LEARNING_RATE.but(2e-5),
    "optim.head_learning_rate": amount(0.0, "of what was not pre-trained; 0: the same"),
    "optim.warmup_share": share(0.1, "share of all steps in which the learning rate rises from 0"),
    **ADAM,
    "optim.weight_decay": WEIGHT_DECAY.but(0.0),
    "optim.clip_norm": CLIP_NORM,
    "optim.freeze": FREEZE.but(meaning="{} embed"),
    "train.epochs": count(5, "passes over the training examples"),
    "train.patience": natural(0,
        "epochs without a better score on development data after which training ends; 0: never"),
    "train.log_every": LOG_EVERY.but(50),
    "train.stall_minutes": STALL_MINUTES,
    **SPIKES,
    **LOCAL,
    "train.checkpoint_every": CHECKPOINT_EVERY.but(1000, "{} to go on from, beside one after each epoch"),
    **MESH,
}  # fmt: skip
# What a run may change when it is resumed in its workdir, as in `charlm.config.pretraining`.
RESUMABLE = (
    "train.log_every",
    "train.checkpoint_every",
    "train.stall_minutes",
    "train.spike_",
    "train.local_",
    "data.prefetch",
    "data.eval_batch_size",
    "model.attention_kernel",
    "model.scan_layers",
    "mesh.",
    "seeds",
)
LISTS = ("data.train", "data.dev", "data.test", "data.noise", "data.skip_labels", "optim.freeze")  # typed with commas


def get_config(task: str = TASK, family: str = "") -> ml_collections.ConfigDict:
    """Returns the defaults of a task, including the keys that the task brings.

    Args:
      family: an added family whose keys the config has, too.

    Raises:
      ValueError: the package that brings the task or the family is broken, there is no such family, or one of the
        task's own keys is a charlm key.
    """
    config = ml_collections.ConfigDict()
    put(config, defaults(KEYS) | {"task": task})
    if task in TASKS:
        add_task_keys(config, task)
    if family:
        add_family_keys(config, _family_keys([family_named(family)]))
    return config


def added_keys(among: Iterable[Family] | None = None) -> dict[str, Key]:
    """Returns the keys that only families of packages, or families added by code, bring, by full name.

    Args:
      among: the families to look at; None: all.
    """
    return {key: told for key, told in _family_keys(families() if among is None else among).items() if key not in KEYS}


def keys_of(config: ml_collections.ConfigDict) -> dict[str, Key]:
    """Returns the keys of a config by full name, but for those of its task; added families may add choices to some."""
    added = _family_keys(families())
    return KEYS | {key: told for key, told in added.items() if key in KEYS or key.split(".")[1] in config.model}


def add_family_keys(config: ml_collections.ConfigDict, names: Collection[str]) -> None:
    """Adds to a config those keys of added families that are among `names` and that it lacks."""
    if unknown := [name for name in names if name.startswith("model.") and name.split(".")[1] not in config.model]:
        put(config, {key: told.default for key, told in added_keys().items() if key in unknown})


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
    """Checks that the task's own keys are in no section of charlm's but `SECTION`, and are no keys of charlm there.

    In `model.`, families of other packages may have keys that are not known yet.

    Raises:
      ValueError: a key is taken, or may be; names it.
    """
    taken = KEYS.keys() | pretraining.KEYS.keys()  # functions for both kinds of training look for keys of both
    sections = {key.partition(".")[0] for key in KEYS if "." in key} - {SECTION}
    for key in map(str, entry.keys if isinstance(entry.keys, Mapping) else ()):  # `TASKS` checks their types
        section = key.partition(".")[0]
        if key in taken or section in taken:
            raise ValueError(f"task {task!r}: its key {key} is taken by charlm; choose another name")
        if section in sections:
            raise ValueError(
                f"task {task!r}: its key {key}: the section {section} is charlm's, expected {SECTION} or one of its own"
            )


def validate(flat: JsonObject) -> None:
    """Checks what types alone cannot.

    Args:
      flat: keys and values as `charlm.config.flatten` returns them; the values have the types of the defaults.

    Raises:
      ValueError: a wrong value; names key, value and what is expected.
    """
    of_families = {key: told for key, told in _family_keys(families()).items() if key in flat}
    for key, told in {**KEYS, **task_keys(flat["task"]), **of_families}.items():
        told.check(key, flat[key])
    for one in families():
        for name, option in one.options.items():
            if option.key is not None and flat.get(f"model.{name}", option.key.default) != option.key.default:
                one.check_option(name, flat[f"model.{name}"])
    if not 0 < flat["data.dev_share"] < 1:
        raise ValueError(f"data.dev_share={flat['data.dev_share']} must lie between 0 and 1")
    kinds = [Noise.parse(spec) for spec in flat["data.noise"]]
    if needy := [noise.kind for noise in kinds if KINDS[noise.kind].listed and not flat["data.misspellings"]]:
        raise ValueError(f"data.noise: {needy[0]} needs a list; data.misspellings names none")
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
        raise ValueError("data.train names no file to learn from (charlm finetune --train FILE)")
    if not flat["init_from"]:
        raise ValueError(
            "init_from names no model to fine-tune (charlm finetune --model MODEL): "
            "a workdir, a checkpoint, or a folder of weights"
        )
    if (flat["data.folds"] or flat["data.fold_column"]) and (flat["data.dev"] or flat["data.test"]):
        raise ValueError("data.folds: cross-validation splits data.train itself; leave data.dev and data.test empty")
    if "data.target" in entry.reads:
        _check_target(flat)
    for key, tasks in _readers():
        if key not in entry.reads and flat[key] != KEYS[key].default:
            raise ValueError(f"{key}={flat[key]!r} is of {' and '.join(tasks)}, but the task is {flat['task']}")


def _check_target(flat: JsonObject) -> None:
    """Checks that the keys of tables and those of columns of words are not mixed; raises ValueError as `validate`."""
    target = flat["data.target"]
    for key in ("data.word", "data.tag") if target else OF_PASSAGES:
        if flat[key] != KEYS[key].default:
            reads = (
                f"tables of passages (data.target={target!r})" if target else "columns of words: data.target is empty"
            )
            raise ValueError(f"{key}={flat[key]!r}, but the files are {reads}")


def _readers() -> Iterator[tuple[str, list[str]]]:
    """Yields each key that only some tasks read, with charlm's tasks that read it.

    Setting such a key to anything but its default is a mistake in a task that does not read it.
    """
    own = {name: entry for name, entry in TASKS.own.items() if isinstance(entry, TaskEntry)}
    for key in dict.fromkeys(key for entry in own.values() for key in entry.reads):
        yield key, [name for name, entry in own.items() if key in entry.reads]
