"""How a run of another family starts from a BERT, RoBERTa or GPT-2: what these differ in, and what is taken over."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from flax import traverse_util

from charlm.core.trees import flat
from charlm.families.pretrained import Pretrained

# What the two backbones differ in, as released.
BACKBONES = {
    "bert": {"max_positions": 512, "type_vocab": 2, "position_offset": 0, "pad_id": 0, "epsilon": 1e-12},
    "roberta": {"max_positions": 514, "type_vocab": 1, "position_offset": 2, "pad_id": 1, "epsilon": 1e-5},
}


def started_from(backbone: Pretrained, fresh: Any) -> tuple[Any, list[str]]:
    """Returns fresh parameters with those of a backbone in their places, and the names of the ones that stay fresh.

    All of the backbone's encoder must fit; its prediction head is taken where it does (without noisy language modelling
    the first layer of CharBERT's is wider), and what it knows of pairs or labels is left.

    Raises:
      ValueError: naming what of the encoder is missing or of another shape.
    """
    ours = flat(fresh)
    encoder = next(name for name in ("charbert", "bert", "gpt2") if name in fresh)
    theirs = flat(backbone.params)
    named = "gpt2" if encoder == "gpt2" else "bert"
    prefix = "" if "embed" in backbone.params else f"{named}/"  # an encoder alone has none
    taken = {}
    for name, value in theirs.items():
        target = f"{encoder}/{name.removeprefix(prefix)}" if name.startswith(prefix) else name
        if target in ours and ours[target].shape == value.shape:
            taken[target] = value
        elif target.startswith(f"{encoder}/") and "pooler" not in target:
            wanted = ours[target].shape if target in ours else "nothing"
            raise ValueError(f"init_from: {backbone.folder}: {name} is {value.shape}, expected {wanted}")
    placed = {name: jax.device_put(np.asarray(value), ours[name].sharding) for name, value in taken.items()}
    return traverse_util.unflatten_dict(ours | placed, sep="/"), sorted(ours.keys() - placed.keys())
