"""Declares the config of a word recogniser's training: every key once, and the checks of a whole config.

configs/wordrec.py starts from `get_config`, and `python -m charlm.wordrec train` reads it by `load`. Open it to add a
key. "Released" is the code of Pruthi et al. (2019).
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_collections

from charlm.config import apart
from charlm.config.pretraining import KEYS as SHARED
from charlm.core.keys import Key, count
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


def get_config() -> ml_collections.ConfigDict:
    """Returns the default config."""
    return apart.default_config(RECOGNISER)


def load(spec: str, settings: Sequence[str] = ()) -> ml_collections.ConfigDict:
    """Returns the checked config of a recogniser; see `charlm.config.apart.load`."""
    return apart.load(RECOGNISER, spec, settings)


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


RECOGNISER = apart.Apart(
    task=TASK,
    name="a word recogniser",
    home=__name__,
    keys=KEYS,
    fixed={"init_from": "", "resume": "", "model.remat": False},
    check=noises_of,
)
