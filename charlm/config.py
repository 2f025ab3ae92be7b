"""Every configuration key of pre-training, once, with its meaning and unit; fine-tuning: `charlm.finetune.config`.

`get_config()` returns the defaults. The files in `configs/` start from it and change only what their experiment
changes; the command line changes single keys on top (`--config.optim.learning_rate=1e-4`). An unknown key fails with
the nearest valid name. `validate()` checks what types cannot.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ml_collections

from charlm.finetune import config as finetuning

PRE_TRAINING = "masked_lm"
CHOICES = {
    "task": (PRE_TRAINING, *finetuning.TASKS),
    "family": ("hlm",),
    "text.splitter": ("spacy", "rules", "reference"),
    "text.normalize": ("none", "nfc"),
    "data.masking": ("paper", "reference"),
    "model.wiring": ("paper", "reference"),
    "model.aggregation": ("word_cls", "mean", "max"),
    "model.initializer": ("bert", "torch", "lecun"),
    "model.dtype": ("float32", "bfloat16"),
    "model.attention_kernel": ("auto", "einsum", "cudnn"),
    "optim.schedule": ("linear", "constant"),
}

# What a run may change when it is started again in its workdir: how long, how often, how fast, never what is computed.
LISTS = (("data", "train"), ("data", "heldout"), ("optim", "freeze"))
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


def get_config() -> ml_collections.ConfigDict:
    """Returns the default configuration: HLM-Base pre-training as in the paper (section 3.5)."""
    config = ml_collections.ConfigDict()
    config.task = PRE_TRAINING  # what is learned: "masked_lm", pre-training; the tasks have keys of their own
    config.family = "hlm"  # which model family: "hlm"
    config.seed = 0  # seeds initialisation, dropout, shuffling and masking, each through its own stream
    config.resume = ""  # workdir of an earlier run whose whole state (step and data position too) starts this one
    config.init_from = ""  # checkpoint whose parameters alone start this run

    config.text = text = ml_collections.ConfigDict()
    text.splitter = "spacy"  # how text becomes words: "spacy" (the paper, section 3.5), "rules", "reference"
    text.language = "en"  # language code of the spacy splitter's blank pipeline
    text.normalize = "none"  # Unicode form of the characters the model reads: "none" or "nfc"; offsets stay the text's
    text.char_vocab = ""  # JSON file of the vocabulary; "released": the released code's; empty: of the training corpora

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
    data.max_words = 512  # words of a sequence, [CLS] and [SEP] included (section 3.5)
    data.batch_size = 16  # sequences of an optimizer step, over all devices and micro-batches (section 3.4)
    data.accumulation = 1  # micro-batches whose gradients are summed before one update
    data.table_shards = 0  # word tables of a micro-batch, a multiple of the devices it is spread over; 0: one a device
    data.unique_words = True  # True: each distinct word of a table is encoded once; False: the paper's plain reshape
    data.bucket_slots = ()  # character slots of the length buckets, ascending; empty: measured on the corpus
    data.bucket_words = ()  # distinct words per bucket that are read through slot 0; empty: measured
    data.bucket_masked = ()  # distinct words per bucket at masked positions; empty: measured
    data.bucket_labels = ()  # masked positions per bucket; empty: measured
    data.masking = "paper"  # "paper" (section 3.4) or "reference" (the released code: floor(rate * words), ids 8..127)
    data.mask_rate = 0.15  # share of the words to predict
    data.mask_share = 0.8  # of those: every character becomes [MASK]
    data.random_share = 0.1  # of those: every character becomes a random one; the rest stay as they are

    config.model = model = ml_collections.ConfigDict()
    model.wiring = "paper"  # how word vectors and character states meet before the head: "paper" or "reference"
    model.vocab_size = 1024  # rows of the character table, the 8 reserved ids included
    model.hidden = 768  # width D of every state
    model.heads = 12  # attention heads
    model.intra_layers = 4  # layers of the intra-word encoder
    model.inter_layers = 12  # layers of the inter-word encoder
    model.head_layers = 1  # intra-word layers of the prediction head
    model.intra_ffn = 1536  # feed-forward width inside words
    model.inter_ffn = 3072  # feed-forward width between words
    model.char_slots = 20  # character slots of a word, [WORD_CLS] included; longer words are cut
    model.position_buckets = 256  # relative-position buckets of each direction (He et al., 2021)
    model.max_relative_words = 512  # word distance at which the logarithmic buckets end
    model.aggregation = "word_cls"  # word vector: "word_cls" (section 3.1), "mean" or "max" (ablation, Table 6)
    model.word_residual = False  # add r_i to w_i (appendix A.3)
    model.head_transform = (
        True  # fully connected layer (Linear, GELU, LayerNorm) before the softmax layer (section 3.3)
    )
    model.dropout = 0.1  # of embeddings, relative positions and residual branches
    model.attention_dropout = 0.1  # of attention probabilities
    model.initializer = "bert"  # "bert" (normal, 0.02), "torch" (the released code) or "lecun" (good for narrow models)
    model.dtype = "float32"  # matmul inputs: "float32" or "bfloat16"
    model.remat = False  # recompute layer activations in the backward pass: less memory, about a third more time
    model.attention_kernel = "auto"  # "auto": the best there is; "einsum": ours; "cudnn": NVIDIA's, at inference

    config.optim = optim = ml_collections.ConfigDict()
    optim.learning_rate = 5e-5  # peak, after warm-up (section 3.5)
    optim.warmup_steps = 10_000  # optimizer steps of linear warm-up from 0 (section 3.5)
    optim.schedule = "linear"  # after warm-up: "linear" to 0 at the last step, or "constant"
    optim.b1 = 0.9  # AdamW: decay of the first moment
    optim.b2 = 0.999  # AdamW: decay of the second moment
    optim.eps = 1e-8  # AdamW: added to the root of the second moment
    optim.weight_decay = 0.01  # of matrices; LayerNorm and biases are spared (section 3.5)
    optim.clip_norm = 1.0  # global gradient norm is cut to this; 0: never
    optim.freeze = ()  # parameters that stay as they are: regular expressions found in their names, e.g. hlm/intra_word

    config.train = train = ml_collections.ConfigDict()
    train.steps = 3_900_000  # optimizer steps (section 3.4)
    train.log_every = 100  # steps between progress lines
    train.eval_every = 10_000  # steps between evaluations on held-out text
    train.eval_words = 0  # held-out words of an evaluation; 0: all of them
    train.checkpoint_every = 10_000  # steps between checkpoints
    train.keep_checkpoints = 3  # newest checkpoints kept, beside the best one
    train.examples = 3  # masked and misspelled held-out words shown at the end; 0: none

    config.mesh = mesh = ml_collections.ConfigDict()
    mesh.data = -1  # devices over which the batch is spread; -1: all that are left
    mesh.fsdp = 1  # devices over which batch, parameters and optimizer state are spread
    mesh.model = 1  # devices over which single matrices are spread
    return config


def defaults_of(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Returns the defaults of all keys that there are for the task of a config."""
    task = config.get("task", PRE_TRAINING)
    return finetuning.get_config(task) if task in finetuning.TASKS else get_config()


def is_fine_tuning(config: ml_collections.ConfigDict) -> bool:
    """Says whether a config is one of `charlm.finetune.config`."""
    return config.get("task", PRE_TRAINING) in finetuning.TASKS


def load_config_file(spec: str) -> ml_collections.ConfigDict:
    """Returns the config that --config=path/to/file.py[:variant] names on the command line.

    Raises:
      ValueError: there is no such file, it defines no get_config, or it has no such variant.
    """
    path, _, variant = spec.partition(":")
    module_spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    if module_spec is None or not Path(path).is_file():
        raise ValueError(f"--config: no Python file {path}")
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise ValueError(f"--config: {path} defines no get_config()")
    return module.get_config(variant) if variant else module.get_config()


def _nearest(name: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.0)
    return f"; did you mean {close[0]}?" if close else ""


def flatten(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns {"model.hidden": 768, ...}."""

    def walk(node: ml_collections.ConfigDict, prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in node.items():
            if isinstance(value, ml_collections.ConfigDict):
                yield from walk(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value

    return dict(walk(config, ""))


def unknown_key(name: str, known: ml_collections.ConfigDict | None = None) -> str:
    """Returns the message for a key that does not exist, with the nearest that does (of pre-training, if not given)."""
    return f"unknown config key {name}{_nearest(name, flatten(get_config() if known is None else known))}"


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks values that types cannot.

    Raises:
      ValueError: naming key, value and what is expected.
    """
    flat, defaults = flatten(config), defaults_of(config)
    known = flatten(defaults)
    for key in flat:
        if key not in known:
            raise ValueError(unknown_key(key, defaults))
    for key, choices in (finetuning.CHOICES if is_fine_tuning(config) else CHOICES).items():
        if flat[key] not in choices:
            raise ValueError(
                f"{key}={flat[key]!r} is not one of {', '.join(choice or 'empty' for choice in choices)}"
                f"{_nearest(str(flat[key]), choices)}"
            )
    if is_fine_tuning(config):
        finetuning.validate(flat)
    else:
        _validate_pre_training(config, flat)


def _validate_pre_training(config: ml_collections.ConfigDict, flat: dict[str, Any]) -> None:
    positive = [
        "data.max_words", "data.batch_size", "data.accumulation", "model.hidden", "model.heads",
        "model.vocab_size", "model.intra_layers", "model.inter_layers", "model.head_layers", "model.intra_ffn",
        "model.inter_ffn", "model.position_buckets", "model.max_relative_words", "train.steps", "train.log_every",
        "train.eval_every", "train.checkpoint_every", "train.keep_checkpoints",
    ]  # fmt: skip
    for key in positive:
        if flat[key] < 1:
            raise ValueError(f"{key}={flat[key]} must be at least 1")
    not_negative = [
        "optim.learning_rate", "optim.warmup_steps", "optim.eps", "optim.weight_decay", "optim.clip_norm",
        "data.prefetch", "data.reader_threads", "data.encode_processes", "data.table_shards", "train.eval_words",
        "train.examples",
    ]  # fmt: skip
    for key in not_negative:
        if flat[key] < 0:
            raise ValueError(f"{key}={flat[key]} must not be negative")
    for key in ("model.dropout", "model.attention_dropout", "optim.b1", "optim.b2"):
        if not 0 <= flat[key] < 1:
            raise ValueError(f"{key}={flat[key]} must lie in [0, 1)")
    for key in ("optim.learning_rate", "optim.weight_decay", "optim.clip_norm", "optim.eps"):
        if not math.isfinite(flat[key]):
            raise ValueError(f"{key}={flat[key]} must be finite")
    if config.seed < 0:
        raise ValueError(f"seed={config.seed} must not be negative")
    if config.model.position_buckets < 2:
        raise ValueError(f"model.position_buckets={config.model.position_buckets} must be at least 2")
    if config.data.masking == "reference" and config.model.vocab_size < 128:
        raise ValueError(
            f"data.masking=reference draws random characters from ids 8 to 127, but model.vocab_size is "
            f"{config.model.vocab_size}; expected at least 128"
        )
    if not 3 <= config.model.char_slots <= 256:
        raise ValueError(f"model.char_slots={config.model.char_slots} must lie in [3, 256]")
    if config.model.hidden % config.model.heads:
        raise ValueError(f"model.hidden={config.model.hidden} is not a multiple of model.heads={config.model.heads}")
    weights = config.data.weights
    numbers = all(isinstance(weight, int | float) for weight in weights)
    usable = numbers and all(0 < weight < math.inf for weight in weights)
    if weights and not (usable and len(weights) == len(config.data.train)):
        raise ValueError(
            f"data.weights={weights} must be positive, one for each corpus of data.train={config.data.train}"
        )


def split_lists(config: ml_collections.ConfigDict) -> None:
    """Turns "a.txt,b.txt" inside `data.train`, `optim.freeze` and the like into two, as people type it."""
    if config.get("task", PRE_TRAINING) not in CHOICES["task"]:
        raise ValueError(f"task={config.task!r} is not one of {', '.join(CHOICES['task'])}")
    for section, key in finetuning.LISTS if is_fine_tuning(config) else LISTS:
        if key not in config.get(section, {}):  # a file of one task, set to another: `validate` says so
            continue
        parts = (part.strip() for entry in config[section][key] for part in entry.split(","))
        config[section][key] = tuple(part for part in parts if part)
    if not is_fine_tuning(config) and not config.data.train:
        raise ValueError("data.train names no corpus")


def from_dict(values: dict[str, Any]) -> ml_collections.ConfigDict:
    """Returns the config stored with a run or checkpoint; keys that are new since then have their defaults."""
    given = ml_collections.ConfigDict(values)
    config = defaults_of(given)
    known = flatten(config)
    for key, value in flatten(given).items():
        if key not in known:
            raise ValueError(unknown_key(key, config))
        *folders, leaf = key.split(".")
        node = config
        for folder in folders:
            node = node[folder]
        node[leaf] = tuple(value) if isinstance(node[leaf], tuple) else value
    return config


def to_json(config: ml_collections.ConfigDict) -> str:
    """Returns the config as JSON text."""
    return json.dumps(config.to_dict(), indent=2) + "\n"


def check_resumable(
    config: ml_collections.ConfigDict, saved: ml_collections.ConfigDict, where: str, among: tuple[str, ...] = ("",)
) -> None:
    """Takes measured values over from the run found in `where` and checks that nothing else differs.

    Raises:
      ValueError: listing the keys that differ, with both values.
    """
    differing = []
    old = flatten(saved)
    for key, value in flatten(config).items():
        if (key.startswith("data.bucket_") and value == ()) or (key == "data.table_shards" and value == 0):
            config.data[key.removeprefix("data.")] = old[key]
        elif value != old[key] and key.startswith(among) and not key.startswith(RESUMABLE):
            differing.append(f"{key} is {value}, there {old[key]}")
    if differing:
        raise ValueError(f"{where} holds a run of another config: {'; '.join(differing)}; choose another --workdir")
