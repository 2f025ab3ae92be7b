"""Tiny HLMs with random weights, large enough that everything depends on everything it may depend on."""

from __future__ import annotations

import functools
import string
from pathlib import Path
from typing import Any

from flax import traverse_util
from small_run import small_config
from tiny_models import _weight

from charlm.families.hlm.config import model_config
from charlm.families.hlm.conversion import target
from charlm.families.hlm.predictor import HLMPredictor
from charlm.text.chars import CharVocab


@functools.cache
def hlm(**changes: Any) -> HLMPredictor:
    """Returns the predictor of an HLM of two layers inside words and one between them.

    Args:
      changes: keys of `config.model`.
    """
    config = small_config(Path("none.txt"), Path("none"))
    vocab = CharVocab(string.ascii_letters + string.punctuation)
    config.model.update({"vocab_size": vocab.size, "intra_layers": 2} | changes)
    flat = traverse_util.flatten_dict(target(model_config(config), "masked_lm").params, sep="/")
    params = {path: _weight(path, leaf) for path, leaf in flat.items()}
    return HLMPredictor(config, vocab, traverse_util.unflatten_dict(params, sep="/"))
