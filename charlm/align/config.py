"""Declares the config of alignment: every key once, and the checks of a whole config.

configs/student.py starts from `get_config`, and `python -m charlm.align` reads it by `load`. Open it to add a key.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_collections

from charlm.config import apart
from charlm.config.pretraining import KEYS as SHARED
from charlm.config.shared import BATCH_SIZE, CHECKPOINT_EVERY, COMPUTING, EVAL_EVERY, FREEZE, INIT_FROM, SEED
from charlm.core.keys import Key, count, natural
from charlm.families.alignment_keys import ALIGNMENT_KEYS, check_alignment
from charlm.families.family import model_options, own_families

TASK = "alignment"  # in place of the task of a config that trains a model of a family

_OWN: dict[str, Key] = {
    "task": Key(TASK, "what is learned"),
    "seed": SEED.but(meaning="{} noise and the order of texts"),
    "init_from": INIT_FROM.but(
        meaning="the student, of any family: a workdir, a checkpoint, a folder of PyTorch weights, or a name"),
    "teacher": Key("", "the model whose vectors of clean text are learned: like `init_from`; it stays as it is"),
    "text.splitter": SHARED["text.splitter"].but("rules", "how text becomes words, whose vectors are compared"),
    "data.max_length": Key(64, "positions of a text on both sides, special ones included", least=8),
    "data.batch_size": BATCH_SIZE.but(64, "texts of an optimizer step"),
    "data.table_shards": SHARED["data.table_shards"],
    **ALIGNMENT_KEYS,
    "alignment.pooling": ALIGNMENT_KEYS["alignment.pooling"].but(
        "", 'the vector of a text: the "mean" of its positions or its first, "cls"; empty: as the teacher\'s files say',
        choices=("", "mean", "cls")),
    "alignment.projection": Key("auto",
        'a linear layer behind the student: "auto": where its states have another width than the teacher\'s; "always"',
        ("auto", "always")),
    **{
        f"model.{name}": option.key
        for name, option in model_options(own_families()).items()
        if option.key is not None
    },
    **COMPUTING,
    "optim.learning_rate": SHARED["optim.learning_rate"].but(1e-4, "peak, after warm-up"),
    "optim.warmup_steps": SHARED["optim.warmup_steps"].but(500, "optimizer steps of linear warm-up from 0"),
    "optim.weight_decay": SHARED["optim.weight_decay"].but(0.0, "of matrices"),
    "optim.freeze": FREEZE.but(meaning="{} ^bert/"),
    "train.steps": count(20_000, "optimizer steps"),
    "train.eval_every": EVAL_EVERY.but(1000),
    "train.checkpoint_every": CHECKPOINT_EVERY.but(1000),
    "train.eval_words": natural(2000, "held-out texts of an evaluation, half of them with noise; 0: all"),
    "train.keep_checkpoints": count(1, "newest checkpoints kept to go on from, beside the one of the best model"),
    "train.examples": natural(3, "noisy held-out texts shown at the end, with their cosines; 0: none"),
}  # fmt: skip
_ALSO = (
    *("text.language", "data.train", "data.weights", "data.heldout", "data.heldout_fraction", "data.text_key"),
    *("data.cache_dir", "data.encode_processes", "data.reader_threads", "data.prefetch", "data.shuffle"),
    *("data.accumulation", "optim.schedule", "optim.cooldown_share", "optim.b1", "optim.b2", "optim.eps"),
    *("optim.clip_norm", "train.log_every", "train.stall_minutes"),
    *(key for key in SHARED if key.startswith(("mesh.", "train.spike", "train.local"))),
)
KEYS: dict[str, Key] = _OWN | {key: SHARED[key] for key in _ALSO}


def get_config() -> ml_collections.ConfigDict:
    """Returns the default config."""
    return apart.default_config(STUDENT)


def load(spec: str, settings: Sequence[str] = ()) -> ml_collections.ConfigDict:
    """Returns the checked config of a student; see `charlm.config.apart.load`."""
    return apart.load(STUDENT, spec, settings)


def check(config: ml_collections.ConfigDict) -> None:
    """Checks what the rules of single keys cannot; ValueError names key, value and what is expected."""
    check_alignment(config)
    if not config.init_from:
        raise ValueError("init_from is empty: expected the student, a model of any family")
    if not config.teacher:
        raise ValueError("teacher is empty: expected the model that made the vectors of the index")


STUDENT = apart.Apart(
    task=TASK,
    name="an aligned student",
    home=__name__,
    keys=KEYS,
    fixed={"resume": ""},
    check=check,
    may_change=("teacher",),  # a moved one; `charlm.align.run` compares what it is
)
