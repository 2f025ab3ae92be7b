"""Declares the config of a word recogniser's training: every key once, and the checks of a whole config.

configs/wordrec.py starts from `get_config`, and `python -m charlm.wordrec train` reads it by `load`. Open it to add a
key. "Released" is the code of Pruthi et al. (2019).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import ml_collections

from charlm.config import LARGEST_SEED, flatten, named_config
from charlm.config.pretraining import KEYS as SHARED
from charlm.config.pretraining import RESUMABLE
from charlm.core.keys import Key, count, defaults, put, set_typed
from charlm.core.local_paths import check_path
from charlm.core.nearest import did_you_mean
from charlm.core.types import JsonObject
from charlm.text.noise import KINDS, Noise

TASK = "word_recognition"  # in place of the task of a config that trains a model of a family

_OWN: dict[str, Key] = {
    "task": Key(TASK, "what is learned"),
    "text.splitter": SHARED["text.splitter"].but("rules", "how text becomes words; the defence reads texts so, too"),
    "text.words": count(9999, "words that can be recognised: the most frequent ones, in lower case (released)"),
    "text.characters": count(100, "characters that are told apart: the most frequent ones of these words"),
    "data.max_length": count(64, "words of a row: whole sentences of a text, as many as fit; longer ones are cut"),
    "data.noise": Key(
        ("charbert:1",),
        "kinds of noise in what is read, one drawn for each row; the default is as released: one edit of four, each "
        "as likely, in every word of four characters or more",
    ),
    "data.batch_size": count(32, "rows of an optimizer step (released)"),
    "model.hidden": count(50, "units of the LSTM in each direction (released)"),
    "optim.learning_rate": SHARED["optim.learning_rate"].but(1e-3, "peak, after warm-up (released: Adam's default)"),
    "optim.warmup_steps": SHARED["optim.warmup_steps"].but(0, "optimizer steps of linear warm-up from 0 (released: 0)"),
    "optim.weight_decay": SHARED["optim.weight_decay"].but(0.0, "of matrices (released: 0)"),
    "optim.schedule": SHARED["optim.schedule"].but("constant"),
    "train.steps": count(20_000, "optimizer steps, ours: the paper trains on some 10,000 sentences, for 100 epochs"),
    "train.eval_every": count(2000, "steps between evaluations on held-out text"),
    "train.checkpoint_every": count(2000, "steps between checkpoints"),
    "train.eval_words": SHARED["train.eval_words"].but(meaning="held-out words of an evaluation; 0: all of them"),
    "train.examples": SHARED["train.examples"].but(meaning="held-out rows shown at the end, as read and recognised"),
}  # fmt: skip
_ALSO = (
    *("seed", "init_from", "resume", "text.language", "data.train", "data.weights", "data.heldout"),
    *("data.heldout_fraction", "data.text_key", "data.cache_dir", "data.encode_processes", "data.reader_threads"),
    *("data.prefetch", "data.shuffle", "data.accumulation", "data.table_shards", "model.dtype"),
    *("optim.cooldown_share", "optim.b1", "optim.b2", "optim.eps", "optim.clip_norm", "optim.freeze"),
    *("train.log_every", "train.stall_minutes", "train.keep_checkpoints"),
    *(key for key in SHARED if key.startswith(("mesh.", "train.spike", "train.local"))),
)
KEYS: dict[str, Key] = _OWN | {key: SHARED[key] for key in _ALSO if key not in ("init_from", "resume")}
# What a shared module reads of every config, and a recogniser has no other value for.
_FIXED: JsonObject = {"init_from": "", "resume": "", "model.remat": False}


def get_config() -> ml_collections.ConfigDict:
    """Returns the default config."""
    config = ml_collections.ConfigDict()
    put(config, defaults(KEYS) | _FIXED)
    return config


def load(spec: str, settings: Sequence[str] = ()) -> ml_collections.ConfigDict:
    """Returns the checked config of a recogniser.

    Args:
      spec: a name of a config that charlm carries, or a path; with a variant behind a colon.
      settings: "key=value" each.

    Raises:
      ValueError: there is no such config, it is of something else, or a value is wrong.
    """
    config = named_config(spec)
    if config.get("task") != TASK:
        raise ValueError(f"{spec}: expected the config of a word recogniser, got task={config.get('task')!r}")
    for setting in settings:
        set_key(config, setting)
    validate(config)
    return config


def set_key(config: ml_collections.ConfigDict, setting: str) -> None:
    """Sets a key of a recogniser; see `charlm.core.keys.set_typed`."""
    set_typed(config, setting, KEYS, "a recogniser", floats=("data.weights",))


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of a config.

    Raises:
      ValueError: an unknown key, or a wrong value; names key, value and what is expected.
    """
    flat = flatten(config)
    for key in flat:
        if key not in KEYS and key not in _FIXED:
            raise ValueError(f"unknown config key {key}{did_you_mean(key, KEYS)}")
    for key, told in KEYS.items():
        if key not in flat:
            raise ValueError(f"{key} is missing: charlm.wordrec.config.get_config() has it")
        told.check(key, flat[key])
        for one in flat[key] if isinstance(flat[key], tuple) else (flat[key],):
            if isinstance(one, str):
                check_path(key, one)
    if not 0 <= config.seed <= LARGEST_SEED:
        raise ValueError(f"seed={config.seed}: expected a whole number from 0 to {LARGEST_SEED}")
    weights = config.data.weights
    usable = all(isinstance(one, int | float) and 0 < one < math.inf for one in weights)
    if weights and not (usable and len(weights) == len(config.data.train)):
        expected = f"expected a positive number for each of data.train={config.data.train}"
        raise ValueError(f"data.weights={weights}: {expected}")
    noises_of(config)


def noises_of(config: ml_collections.ConfigDict) -> tuple[Noise, ...]:
    """Returns the noises of `data.noise`.

    Raises:
      ValueError: there is none, or one is not valid, needs a list, or may change the number of words.
    """
    if not config.data.noise:
        raise ValueError("data.noise is empty: expected at least one kind of noise, such as charbert:1")
    noises = tuple(map(Noise.parse, config.data.noise))
    for noise in noises:
        kind = KINDS[noise.kind]
        if kind.resizes or kind.listed:
            why = "may join or cut words" if kind.resizes else "needs a list of misspellings"
            raise ValueError(f"data.noise={noise}: it {why}; expected a kind that changes the words themselves")
    return noises


def check_resumable(config: ml_collections.ConfigDict, path: Path, where: str) -> None:
    """Checks that the run whose config is stored at `path` goes on with `config`; takes its measured values over.

    Raises:
      ValueError: the file is damaged, or other keys differ; names them with both values.
    """
    try:
        saved = flatten(ml_collections.ConfigDict(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error}") from error
    if saved.get("task") != TASK:
        raise ValueError(f"{where} holds a run of the task {saved.get('task')}; choose another --workdir")
    if not config.data.table_shards:
        config.data.table_shards = saved["data.table_shards"]
    listed = lambda value: list(value) if isinstance(value, tuple) else value
    differing = [
        f"{key} is {value}, there {saved.get(key)}"
        for key, value in flatten(config).items()
        if listed(value) != listed(saved.get(key)) and not key.startswith(RESUMABLE)
    ]
    if differing:
        raise ValueError(f"{where} holds a run of another config: {'; '.join(differing)}; choose another --workdir")
