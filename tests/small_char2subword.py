"""Tiny Char2Subwords: random weights in front of the tiny BERTs and RoBERTas of `tiny_models`."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from tiny_models import _weight, release

from charlm.convert.model import Model
from charlm.core.reading import read_object
from charlm.families.char2subword.conversion import Char2SubwordConverter
from charlm.families.char2subword.model import Char2SubwordBertConfig
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.text.chars import CharVocab

SLOTS = 14
WORDS = 48  # that `vectors` takes


@functools.cache
def spelled(backbone: str = "bert", head: str = "masked_lm", mode: str = "hybrid", labels: int = 0) -> Path:
    """Returns a checkpoint as training writes them: the tiny transformer, a module, characters, a tokenizer."""
    source = from_pretrained(release(backbone))
    tokenizer = source.tokenizer()
    looks = [tokenizer.surface(index) for index in tokenizer.ids()]
    chars = CharVocab(sorted({char for look in looks if look and look.whole for char in "#" + look.chars}))
    sizes = {"char_vocab_size": chars.size + 3, "hidden": 8, "layers": 1, "heads": 2, "output": 24}
    shape = Char2SubwordConfig(**sizes, char_slots=SLOTS, gate=mode == "gated")
    bert = {name: getattr(source.config, name) for name in source.config.__dataclass_fields__}
    pooler = head == "sequence_classification" and backbone == "bert"
    config = Char2SubwordBertConfig(**bert | {"pooler": pooler}, characters=shape, mode=mode)
    metadata: dict[str, Any] = {"family": "char2subword", "backbone": backbone, "model": config_to_dict(config)}
    metadata |= {
        "head": head,
        "char_vocab": chars.to_dict(),
        "hf_config": read_object(release(backbone) / "config.json"),
    }
    if labels:
        metadata["labels"] = labels
    converter = Char2SubwordConverter()
    flat = traverse_util.flatten_dict(converter.target(metadata, "here").params, sep="/")
    params = traverse_util.unflatten_dict({path: _weight(path, leaf) for path, leaf in flat.items()}, sep="/")
    folder = Path(tempfile.mkdtemp()) / "spelled"
    converter.save(Model(params, metadata, release(backbone), folder), folder)
    return folder


def vectors(model: Any, words: list[str]) -> np.ndarray:
    """Returns what the module makes of at most `WORDS` words, spelled as they are."""
    ids_UC = np.zeros((WORDS, SLOTS), np.uint16)
    for row, word in zip(ids_UC, words, strict=False):
        row[: len(word) + 2] = [model.vocab().ids.get(char, 4) for char in f"##{word}"[:SLOTS]]
    return np.asarray(_module(model.config.characters)(model.params["char2subword"], ids_UC))[: len(words)]


@functools.cache
def _module(config: Char2SubwordConfig) -> Any:
    return jax.jit(lambda params, ids_UC: Char2Subword(config).apply({"params": params}, ids_UC))
