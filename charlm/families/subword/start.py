"""Starts a run of another family from the parameters of a BERT, RoBERTa or GPT-2.

Families that are built on such a model use it when `init_from` names one. Open it when parameters of the
backbone are not taken over.
"""

from __future__ import annotations

import jax
import numpy as np
from flax import traverse_util

from charlm.core.trees import flat
from charlm.core.types import Params
from charlm.families.pretrained import Pretrained
from charlm.families.subword.bert import Bert
from charlm.families.subword.gpt2 import GPT2

# The config fields in which the released BERT and RoBERTa differ.
BERT_KINDS = {
    "bert": {"max_positions": 512, "type_vocab": 2, "position_offset": 0, "pad_id": 0, "epsilon": 1e-12},
    "roberta": {"max_positions": 514, "type_vocab": 1, "position_offset": 2, "pad_id": 1, "epsilon": 1e-5},
}
# Fields of a backbone's config, by how a run sets them (each has a key `model.*` of the same name, but for the kind):
BACKBONE_SHAPE = ("hidden", "heads", "layers", "ffn")  # the run's config sets these, so that it is complete by itself
BACKBONE_OPEN = ("backbone", "vocab_size", "max_positions", "activation", "epsilon")  # unset: those of `init_from`
BACKBONE_KIND = ("type_vocab", "position_offset", "pad_id")  # the same in all models of a kind of BERT


def merge_backbone(backbone: Pretrained, fresh: Params, scope: str) -> tuple[Params, list[str]]:
    """Replaces fresh parameters by those of a backbone; returns all, and the names of those that are still fresh.

    The backbone's encoder must fit completely. Its prediction head is taken over where shapes agree, since the head of
    the run may be wider. Its heads for pairs and labels are ignored.

    Args:
      scope: the name in `fresh` of the parameters that those of the backbone's encoder replace.

    Raises:
      ValueError: naming a parameter of the encoder that is missing or has another shape.
    """
    ours = flat(fresh)
    theirs = flat(backbone.params)
    # An encoder without head has no prefix.
    prefix = next((f"{kind.scope_name}/" for kind in (Bert, GPT2) if kind.scope_name in backbone.params), "")
    taken = {}
    for name, value in theirs.items():
        target = f"{scope}/{name.removeprefix(prefix)}" if name.startswith(prefix) else name
        if target in ours and ours[target].shape == value.shape:
            taken[target] = value
        elif target.startswith(f"{scope}/") and "pooler" not in target:
            wanted = ours[target].shape if target in ours else "nothing"
            raise ValueError(f"init_from: {backbone.folder}: {name} is {value.shape}, expected {wanted}")
    placed = {name: jax.device_put(np.asarray(value), ours[name].sharding) for name, value in taken.items()}
    return traverse_util.unflatten_dict(ours | placed, sep="/"), sorted(ours.keys() - placed.keys())
