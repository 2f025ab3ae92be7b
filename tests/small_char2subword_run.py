"""A Char2Subword run in three stages small enough for tests: its config, and a BERT to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from small_charbert import LETTERS, SPECIALS
from small_run import WORDS

from charlm import checkpoint as checkpoints
from charlm.config import get_config
from charlm.convert.family import config_to_dict
from charlm.models.bert import Bert, BertConfig, BertForMaskedLM
from charlm.text.subwords import SubwordTokenizer

LENGTH = 24


def small_tokenizer(folder: Path) -> SubwordTokenizer:
    """Returns a WordPiece vocabulary of letters and of most words of the text, written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [word.lower() for word in WORDS[:-1] if word.isascii() and word.isalpha()]
    pieces = [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *words[:-4], "[unused1]", "##all", "."]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return SubwordTokenizer.load(folder, lowercase=False)


def small_backbone(folder: Path, head: bool = True) -> Path:
    """Writes an untrained BERT of one layer and its tokenizer; returns its folder. Its zeros are negative ones."""
    tokenizer = small_tokenizer(folder.parent / "small_tokenizer")
    shape = BertConfig(vocab_size=tokenizer.size, hidden=16, layers=1, heads=2, ffn=32, max_positions=32, pooler=False,
                       initializer="lecun")  # fmt: skip
    model = BertForMaskedLM(shape) if head else Bert(shape)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(5), np.ones((1, 4), np.int32))["params"])
    params = jax.tree.map(lambda x: np.where(x == 0, np.float32(-0.0), x), params)  # adding 0 would change these bits
    kind = "masked_lm" if head else "encoder"
    checkpoints.save_params(folder, params, {"family": "bert", "model": config_to_dict(shape), "head": kind})
    tokenizer.save(folder)
    return folder


def small_char2subword_config(text: Path, cache: Path, backbone: Path | None = None) -> Any:
    """Returns the config of three stages with a module of some 5,000 parameters; its batches divide among eight.

    Args:
      backbone: what it starts from; None: one that is written beside the text.
    """
    config = get_config("char2subword")
    backbone = backbone or text.parent / "backbone"
    config.init_from = str(backbone if backbone.exists() else small_backbone(backbone))
    config.data.train = (str(text),)
    config.data.heldout_fraction = 0.1
    config.data.cache_dir = str(cache)
    config.data.encode_processes = 1
    config.data.max_length = LENGTH
    config.data.batch_size = 32
    config.data.table_shards = 8
    config.model.hidden = 16
    config.model.heads = 2
    config.model.layers = 1
    config.model.char_slots = 24
    config.optim.learning_rate = 1e-2
    config.optim.warmup_steps = 2
    config.optim.schedule = "constant"  # so that a longer run begins as a shorter one
    config.train.steps = 8
    config.train.log_every = 4
    config.train.eval_every = 4
    config.train.checkpoint_every = 3
    config.train.examples = 0
    config.contextual.steps = 8
    config.contextual.batch_size = 16
    config.contextual.accumulation = 2
    config.contextual.learning_rate = 1e-2
    config.contextual.warmup_steps = 2
    config.contextual.log_every = 4
    config.contextual.eval_every = 4
    config.contextual.checkpoint_every = 3
    return config
