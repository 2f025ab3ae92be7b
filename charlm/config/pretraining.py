"""Every configuration key that pre-training shares, once, with its meaning and unit, and the checks of their values.

The keys of one family alone are in its `keys` module, see `charlm.families.family`. Each such module says what it knows
of its keys in the same names: `CHOICES`, `POSITIVE`, `NOT_NEGATIVE`, `SHARES` (in [0, 1)), `MEASURED` (found out where
unset, and taken over by a resumed run), `RESUMABLE` (may change when a run goes on), `SET_BY` (of each stage that has
some, the keys of its own that stand in the places of others).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import ml_collections

from charlm.families.family import family as family_named
from charlm.text.words import SPLITTERS

PRE_TRAINING = "masked_lm"

CHOICES: dict[str, Collection[str]] = {
    "text.splitter": SPLITTERS,
    "data.masking": ("paper", "reference"),
    "model.initializer": ("bert", "torch", "lecun"),
    "model.dtype": ("float32", "bfloat16"),
    "model.attention_kernel": ("auto", "einsum", "cudnn"),
    "optim.schedule": ("linear", "cosine", "constant"),
}
POSITIVE = (
    "data.batch_size", "data.accumulation", "model.hidden", "model.heads", "train.steps", "train.log_every",
    "train.eval_every", "train.checkpoint_every", "train.keep_checkpoints",
)  # fmt: skip
NOT_NEGATIVE = (
    "seed", "optim.learning_rate", "optim.warmup_steps", "optim.eps", "optim.weight_decay", "optim.clip_norm",
    "data.prefetch", "data.reader_threads", "data.encode_processes", "data.table_shards", "train.eval_words",
    "train.examples",
)  # fmt: skip
SHARES = ("model.dropout", "model.attention_dropout", "optim.b1", "optim.b2")
FINITE = ("optim.learning_rate", "optim.weight_decay", "optim.clip_norm", "optim.eps")
MEASURED = ("data.table_shards",)

# What a run may change when it is started again in its workdir: how long, how often, how fast, never what is computed.
RESUMABLE = (
    "train.",
    "data.reader_threads",
    "data.prefetch",
    "data.encode_processes",
    "data.cache_dir",
    "model.attention_kernel",
    "mesh.",
    "resume",
    "init_from",
)
LISTS = (("data", "train"), ("data", "heldout"), ("optim", "freeze"), ("", "stages"))


def get_config(family: str = "hlm") -> ml_collections.ConfigDict:
    """Returns the default configuration of a family: its paper's base model."""
    config = ml_collections.ConfigDict()
    shared_keys(config)
    config.family = family
    family_named(family).get_keys().family_keys(config)
    return config


def shared_keys(config: ml_collections.ConfigDict) -> None:
    """Sets the keys of every family."""
    config.task = PRE_TRAINING  # what is learned: "masked_lm", pre-training; the tasks have keys of their own
    config.family = "hlm"  # which model family: one of those that `charlm.families.family` can pre-train
    config.seed = 0  # seeds initialisation, dropout, shuffling, noise and masking, each through its own stream
    config.resume = ""  # workdir of an earlier run whose whole state (step and data position too) starts this one
    config.init_from = (
        ""  # checkpoint whose parameters alone start this run; not of HLM: or a BERT, RoBERTa, of XRayEmb a GPT-2
    )
    _text_keys(config)
    _model_keys(config)
    _training_keys(config)


def _text_keys(config: ml_collections.ConfigDict) -> None:
    config.text = text = ml_collections.ConfigDict()
    text.splitter = "spacy"  # how text becomes words: one of SPLITTERS of charlm.text.words; "spacy": HLM, section 3.5
    text.language = "en"  # language code of the spacy splitter's blank pipeline

    config.data = data = ml_collections.ConfigDict()
    data.train = ("builtin",)  # corpora: "builtin", a file or glob (.txt .jsonl .parquet, .gz too), "tfds:NAME:SPLIT"
    data.weights = ()  # sampling weight of each corpus of `train`, in words; empty: in proportion to their sizes
    data.heldout = ()  # corpora to evaluate on; empty: a part of `train` set aside by document
    data.heldout_fraction = 0.02  # share of documents set aside when `heldout` is empty
    data.text_key = "text"  # field or column that holds the text (JSONL, Parquet, TFDS)
    data.cache_dir = ""  # where encoded corpora are kept; empty: $CHARLM_CACHE, else ~/.cache/charlm
    data.encode_processes = 0  # processes that encode a corpus; 0: one per CPU core
    data.reader_threads = 0  # threads that read records; 0: none, best on local disks; some 16 for network storage
    data.prefetch = 4  # batches prepared ahead of the step that needs them
    data.shuffle = True  # shuffle the records anew in every epoch
    data.batch_size = 16  # sequences of an optimizer step, over all devices and micro-batches (HLM, section 3.4)
    data.accumulation = 1  # micro-batches whose gradients are summed before one update
    data.table_shards = 0  # parts S of a micro-batch, a multiple of the devices it is spread over; 0: one a device
    data.masking = "paper"  # whose way to mask: "paper" or "reference" (the family's released code)
    data.mask_share = 0.8  # of what is to be predicted: becomes [MASK]
    data.random_share = 0.1  # of what is to be predicted: becomes something random; the rest stay as they are


def _model_keys(config: ml_collections.ConfigDict) -> None:
    config.model = model = ml_collections.ConfigDict()
    model.hidden = 768  # width D of every state
    model.heads = 12  # attention heads
    model.dropout = 0.1  # of embeddings, relative positions and residual branches
    model.attention_dropout = 0.1  # of attention probabilities
    model.initializer = "bert"  # "bert" (normal, 0.02), "torch" (its defaults) or "lecun" (good for narrow models)
    model.dtype = "float32"  # matmul inputs: "float32" or "bfloat16"
    model.remat = False  # recompute layer activations in the backward pass: less memory, about a third more time
    model.attention_kernel = "auto"  # "auto": the best there is; "einsum": ours; "cudnn": NVIDIA's, at inference


def _training_keys(config: ml_collections.ConfigDict) -> None:
    config.optim = optim = ml_collections.ConfigDict()
    optim.learning_rate = 5e-5  # peak, after warm-up (HLM, section 3.5; CharBERT, section 4.1)
    optim.warmup_steps = 10_000  # optimizer steps of linear warm-up from 0 (HLM, section 3.5)
    optim.schedule = "linear"  # after warm-up: "linear" or "cosine" to 0 at the last step, or "constant"
    optim.b1 = 0.9  # AdamW: decay of the first moment
    optim.b2 = 0.999  # AdamW: decay of the second moment
    optim.eps = 1e-8  # AdamW: added to the root of the second moment
    optim.weight_decay = 0.01  # of matrices; LayerNorm and biases are spared (HLM, section 3.5; Devlin et al., 2019)
    optim.clip_norm = 1.0  # global gradient norm is cut to this; 0: never
    optim.freeze = ()  # parameters that stay as they are: regular expressions found in their names, e.g. hlm/intra_word

    config.train = train = ml_collections.ConfigDict()
    train.steps = 3_900_000  # optimizer steps (HLM, section 3.4)
    train.log_every = 100  # steps between progress lines
    train.eval_every = 10_000  # steps between evaluations on held-out text
    train.eval_words = 0  # held-out words (CharBERT: subwords; XRayEmb: positions) of an evaluation; 0: all of them
    train.checkpoint_every = 10_000  # steps between checkpoints
    train.keep_checkpoints = 3  # newest checkpoints kept, beside the best one
    train.examples = 3  # masked and misspelled held-out words shown at the end; 0: none

    config.mesh = mesh = ml_collections.ConfigDict()
    mesh.data = -1  # devices over which the batch is spread; -1: all that are left
    mesh.fsdp = 1  # devices over which batch, parameters and optimizer state are spread
    mesh.model = 1  # devices over which single matrices are spread


def choices(family: str) -> dict[str, Collection[str]]:
    """Returns the values that keys of a family may have, of those that have a few."""
    return CHOICES | family_named(family).get_keys().CHOICES


def measured(family: str) -> tuple[str, ...]:
    """Returns the keys of a family that are found out where they are unset."""
    return MEASURED + family_named(family).get_keys().MEASURED


def resumable(family: str) -> tuple[str, ...]:
    """Returns the beginnings of the keys that a run may change when it is started again."""
    return RESUMABLE + family_named(family).get_keys().RESUMABLE


def set_by(config: ml_collections.ConfigDict, key: str) -> str:
    """Returns the key that a person sets for one that a run reads: some stages have keys of their own in its place."""
    return family_named(config.family).get_keys().SET_BY.get(config.get("stage", ""), {}).get(key, key)


def validate(config: ml_collections.ConfigDict, flat: dict[str, Any]) -> None:
    """Checks what types cannot; `flat` as `charlm.config.flatten` gives it.

    Raises:
      ValueError: naming key, value and what is expected.
    """
    family = family_named(config.family).get_keys()
    for key in POSITIVE + family.POSITIVE:
        if flat[key] < 1:
            raise ValueError(f"{key}={flat[key]} must be at least 1")
    for key in NOT_NEGATIVE + family.NOT_NEGATIVE:
        if flat[key] < 0:
            raise ValueError(f"{key}={flat[key]} must not be negative")
    for key in SHARES + family.SHARES:
        if not 0 <= flat[key] < 1:
            raise ValueError(f"{key}={flat[key]} must lie in [0, 1)")
    for key in FINITE:
        if not math.isfinite(flat[key]):
            raise ValueError(f"{key}={flat[key]} must be finite")
    if config.model.hidden % config.model.heads:
        raise ValueError(f"model.hidden={config.model.hidden} is not a multiple of model.heads={config.model.heads}")
    weights = config.data.weights
    numbers = all(isinstance(weight, int | float) for weight in weights)
    usable = numbers and all(0 < weight < math.inf for weight in weights)
    if weights and not (usable and len(weights) == len(config.data.train)):
        raise ValueError(
            f"data.weights={weights} must be positive, one for each corpus of data.train={config.data.train}"
        )
    family.validate(config)
