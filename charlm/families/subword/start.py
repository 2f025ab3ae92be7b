"""Starts a run of another family from the parameters of a BERT, RoBERTa, RoFormer or GPT-2.

Families that are built on such a model use it when `init_from` names one. Open it when parameters of the
backbone are not taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jax
import ml_collections
import numpy as np
from flax import traverse_util

from charlm.core.trees import flat
from charlm.core.types import Json, JsonObject, Params
from charlm.families.pretrained import Pretrained
from charlm.families.subword.bert import Bert
from charlm.families.subword.gpt2 import GPT2
from charlm.families.subword.kinds import BACKBONE_KIND, BERT_KINDS

# Fields of a backbone's config, by how a run sets them (each has a key `model.*` of the same name, but for the kind):
BACKBONE_SHAPE = ("hidden", "heads", "layers", "ffn")  # the run's config sets these, so that it is complete by itself
BACKBONE_OPEN = ("backbone", "vocab_size", "max_positions", "activation", "epsilon")  # unset: those of `init_from`


def is_measured(config: ml_collections.ConfigDict) -> bool:
    """Returns whether a config has all sizes of the backbone that `init_from` names, as that of a resumed run has."""
    return all(config.model[name] for name in BACKBONE_OPEN)


def sizes_of(backbone: Pretrained, title: str) -> JsonObject:
    """Returns a backbone's values of the keys in `BACKBONE_OPEN`; ValueError as for `check_kind`."""
    theirs = backbone.config
    check_kind(backbone.family, vars(theirs), backbone.folder, title)
    return {"backbone": backbone.family} | {name: getattr(theirs, name) for name in BACKBONE_OPEN if name != "backbone"}


def check_kind(kind: str, theirs: Mapping[str, Json], where: Path | None, title: str) -> None:
    """Raises ValueError if a BERT differs in `BACKBONE_KIND` from the others of its kind; other kinds have no such set.

    Args:
      kind: the family of the backbone.
      theirs: the fields of its config.
      where: its folder, and `title` the family that is built on it, for messages.
    """
    for name in BACKBONE_KIND if kind in BERT_KINDS else ():
        # Checkpoints that were written before there were others do not state that their positions are absolute.
        if (said := theirs.get(name, "absolute" if name == "position" else None)) != BERT_KINDS[kind][name]:
            raise ValueError(f"init_from: {where}: {name}={said}, but {title} on a {kind} has {BERT_KINDS[kind][name]}")


def check_room(config: ml_collections.ConfigDict, subwords: int, resolved: JsonObject) -> None:
    """Checks that a model has a row for each subword and a position for each of a sequence; ValueError if it has not.

    Args:
      subwords: number of subwords.
      resolved: the values of the keys in `BACKBONE_OPEN`.
    """
    if resolved["vocab_size"] < subwords:
        raise ValueError(
            f"model.vocab_size={resolved['vocab_size']}, but there are {subwords} subwords; set text.tokenizer to "
            "those of the model"
        )
    longest = resolved["max_positions"] - BERT_KINDS.get(resolved["backbone"], {}).get("position_offset", 0)
    if config.data.max_length > longest:
        raise ValueError(f"data.max_length={config.data.max_length}, but the model has {longest} positions")


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
