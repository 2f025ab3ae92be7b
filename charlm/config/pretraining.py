"""Declares every config key that all families share in pre-training, once, with its meaning, unit and rule.

Open it to add such a key or to change its default. The keys of a single family are in the family's `keys` module (see
`charlm.families.family`). That module has `KEYS` and `validate`, and these where the family needs them:
  VALUES: other defaults for shared keys.
  CHOICES: fewer allowed values for shared keys.
  MEASURED: keys that are measured when they are unset, and taken over by a resumed run.
  RESUMABLE: keys that may change when a run is resumed.
  SET_BY: for each stage that has keys of its own, a map from a shared key to the stage's key that sets it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TypeVar

import ml_collections

from charlm.config.shared import (
    ACCUMULATION,
    ADAM,
    ATTENTION_DROPOUT,
    BATCH_SIZE,
    CHECKPOINT_EVERY,
    CLIP_NORM,
    COMPUTING,
    DROPOUT,
    EVAL_EVERY,
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
    WARMUP_STEPS,
    WEIGHT_DECAY,
)
from charlm.core.keys import Key, count, defaults, natural, put, share, whole_share
from charlm.core.types import JsonObject
from charlm.families.family import UNNAMED
from charlm.families.family import family as family_named
from charlm.nn.choices import INITIALIZERS
from charlm.text.words import SPLITTERS

T = TypeVar("T")

PRE_TRAINING = "masked_lm"

KEYS: dict[str, Key] = {
    "task": TASK_NAME.but(PRE_TRAINING, '{}: "masked_lm", pre-training; the tasks have keys of their own'),
    "family": Key(UNNAMED, "which model family: one of those that `charlm.families.family` can pre-train"),
    "seed": SEED.but(meaning="{} initialisation, dropout, shuffling, noise and masking, each through its own stream"),
    "resume": Key("", "workdir of an earlier run whose whole state (step and data position too) starts this one"),
    "init_from": INIT_FROM.but(
        meaning="checkpoint from which only the parameters are taken; for families that build on a BERT, RoBERTa, "
        "RoFormer or GPT-2 also one of those"),
    "text.splitter": Key("spacy",
        'how text becomes words: one of SPLITTERS of charlm.text.words; "spacy": HLM, section 3.5', SPLITTERS),
    "text.language": Key("en", "language code of the spacy splitter's blank pipeline"),
    "data.train": TRAIN.but(("builtin",),
        'corpora: "builtin", a file or glob (.txt .jsonl .parquet .wet, .gz too), "tfds:NAME:SPLIT"'),
    "data.weights": Key((), "sampling weight of each corpus of `train`, in words; empty: in proportion to their sizes"),
    "data.heldout": Key((), "corpora to evaluate on; empty: a part of `train` set aside by document"),
    "data.heldout_fraction": share(0.02, "share of documents set aside when `heldout` is empty"),
    "data.text_key": Key("text", "field or column that holds the text (JSONL, Parquet, TFDS)"),
    "data.cache_dir": Key("", "where encoded corpora are kept; empty: $CHARLM_CACHE, else ~/.cache/charlm"),
    "data.encode_processes": natural(0, "processes that encode a corpus; 0: one per CPU core"),
    "data.reader_threads": natural(0,
        "threads that read records; 0: none, best on local disks; some 16 for network storage"),
    "data.prefetch": PREFETCH,
    "data.shuffle": Key(True, "shuffle the records anew in every epoch"),
    "data.batch_size": BATCH_SIZE.but(
        meaning="sequences of an optimizer step, over all devices and micro-batches (HLM, section 3.4)"),
    "data.accumulation": ACCUMULATION,
    "data.table_shards": natural(0,
        "parts S of a micro-batch, a multiple of the devices it is spread over; 0: one a device"),
    "data.masking": Key("paper",
        'how to mask: as the "paper" describes it, or as the family\'s released code does ("reference")',
        ("paper", "reference")),
    "data.mask_share": whole_share(0.8, "of what is to be predicted: becomes [MASK]"),
    "data.random_share": whole_share(0.1,
        "of what is to be predicted: becomes something random; the rest stay as they are"),
    "model.hidden": count(768, "width D of every state"),
    "model.heads": count(12, "attention heads"),
    "model.dropout": DROPOUT,
    "model.attention_dropout": ATTENTION_DROPOUT,
    "model.initializer": Key("bert",
        '"bert" (normal, 0.02), "torch" (its defaults) or "lecun" (good for narrow models)', INITIALIZERS),
    **COMPUTING,
    "optim.learning_rate": LEARNING_RATE.but(meaning="{} (HLM, section 3.5; CharBERT, section 4.1)"),
    "optim.warmup_steps": WARMUP_STEPS.but(meaning="{} (HLM, section 3.5)"),
    **ADAM,
    "optim.weight_decay": WEIGHT_DECAY.but(
        meaning="{}; LayerNorm and biases are spared (HLM, section 3.5; Devlin et al., 2019)"),
    "optim.clip_norm": CLIP_NORM,
    "optim.freeze": FREEZE.but(meaning="{} hlm/intra_word"),
    "train.steps": count(3_900_000, "optimizer steps (HLM, section 3.4)"),
    "train.log_every": LOG_EVERY,
    "train.eval_every": EVAL_EVERY,
    "train.eval_words": natural(0,
        "held-out words of an evaluation, or subwords or positions, as the family counts its text; 0: all of them"),
    "train.stall_minutes": STALL_MINUTES,
    **SPIKES,
    **LOCAL,
    "train.checkpoint_every": CHECKPOINT_EVERY,
    "train.keep_checkpoints": count(3, "newest checkpoints kept, beside the best one"),
    "train.examples": natural(3, "masked and misspelled held-out words shown at the end; 0: none"),
    **MESH,
}  # fmt: skip
MEASURED = ("data.table_shards",)

# What a run may change when it is resumed in its workdir: how long, how often and how fast, never what is computed. The
# one exception is what is done about spikes: whoever sees one begins to.
RESUMABLE = (
    "train.",
    "data.reader_threads",
    "data.prefetch",
    "data.encode_processes",
    "data.cache_dir",
    "model.attention_kernel",
    "model.scan_layers",
    "mesh.",
    "resume",
    "init_from",
)
LISTS = (
    "data.train",
    "data.heldout",
    "optim.freeze",
    "stages",
    "alignment.noise",
    "data.spelling_noise",
    "spelling.noise",
    "spelling.lists",
)  # tuples of names that people type with commas


def get_config(family: str = UNNAMED) -> ml_collections.ConfigDict:
    """Returns the default config of a family: the base model of its paper."""
    config = ml_collections.ConfigDict()
    put(config, defaults(keys_of(family)) | {"family": family})
    return config


def keys_of(family: str) -> dict[str, Key]:
    """Returns every key of a family by full name: the shared keys, then its own."""
    values, fewer = _of(family, "VALUES", {}), _of(family, "CHOICES", {})
    return {
        name: key.but(values.get(name), choices=fewer.get(name, key.choices))
        for name, key in (KEYS | family_named(family).get_keys().KEYS).items()
    }


def own_keys(family: str) -> dict[str, Key]:
    """Returns the keys that only this family has."""
    return {name: key for name, key in keys_of(family).items() if name not in KEYS}


def _of(family: str, what: str, otherwise: T) -> T:
    """Returns a variable of a family's `keys` module, or `otherwise` where the module does not have it."""
    return getattr(family_named(family).get_keys(), what, otherwise)


def choices(family: str) -> dict[str, Collection[str]]:
    """Returns the allowed values of those keys of a family that have a fixed choice."""
    return {name: key.choices for name, key in keys_of(family).items() if key.choices}


def measured(family: str) -> tuple[str, ...]:
    """Returns the keys of a family that are measured when they are unset."""
    return MEASURED + _of(family, "MEASURED", ())


def unstated(family: str) -> JsonObject:
    """Returns the values of keys, by full name, that runs had which were saved before these keys existed."""
    return _of(family, "UNSTATED", {})


def resumable(family: str) -> tuple[str, ...]:
    """Returns prefixes of full names: a key that begins with one of them may change when a run is resumed."""
    return RESUMABLE + _of(family, "RESUMABLE", ())


def set_by(config: ml_collections.ConfigDict, key: str) -> str:
    """Returns the key that the user sets to change `key`: `key` itself, or the key by which the stage sets it.

    For example, in Char2Subword's contextual stage the user sets a key of the section `contextual`. In a config of no
    family, such as that of a word recogniser, every key is set by itself.
    """
    if "family" not in config:
        return key
    return _of(config.family, "SET_BY", {}).get(config.get("stage", ""), {}).get(key, key)


def validate(config: ml_collections.ConfigDict, flat: JsonObject) -> None:
    """Checks what types alone cannot.

    Args:
      flat: keys and values as `charlm.config.flatten` returns them.

    Raises:
      ValueError: a wrong value; names key, value and what is expected.
    """
    for key, told in keys_of(config.family).items():
        told.check(key, flat[key])
    if config.model.hidden % config.model.heads:
        raise ValueError(f"model.hidden={config.model.hidden} is not a multiple of model.heads={config.model.heads}")
    if (shares := config.data.mask_share + config.data.random_share) > 1 + 1e-9:
        raise ValueError(f"data.mask_share + data.random_share = {shares:g} must lie in [0, 1]")
    weights = config.data.weights
    numbers = all(isinstance(weight, int | float) for weight in weights)
    usable = numbers and all(0 < weight < math.inf for weight in weights)
    if weights and not (usable and len(weights) == len(config.data.train)):
        raise ValueError(
            f"data.weights={weights} must be positive, one for each corpus of data.train={config.data.train}"
        )
    family_named(config.family).get_keys().validate(config)
