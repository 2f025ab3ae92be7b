"""Heads for labels that transformers and CharBERT's code lack: `charlm.convert.heads.READ_BY`.

They are those of XRayEmb's paper (section 4.2), for BERT, RoBERTa, RoFormer and GPT-2, of CharBERT's taggers on
features (section 5.3), and the one over the mean of all positions.

The families that offer them build their models and tables of names through `varied`. Open it to add such a head: the
layers are in `charlm.families.labels`, and the names of the heads in `charlm.convert.heads`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from charlm.convert.heads import FINE_TUNED, LINEAR, MEAN, PERCEPTRON, check_label_head
from charlm.convert.rules import Rule, dense_rules
from charlm.core.types import Json, JsonObject
from charlm.families.labels import LSTMS
from charlm.families.subword.layout import Layout

_OF_LABELS = ("label/", "pooler/", "bert/pooler/")  # the layers that these heads stand in for
_LSTM = [f"{side}/{part}" for side in ("forward", "backward")
         for part in ("input_kernel", "state_kernel", "input_bias", "state_bias")]  # fmt: skip
# No other code has these tensors, so they keep charlm's names.
_LSTM_RULES = [Rule(f"lstm.layer_{{n}}.{part.replace('/', '.')}", f"lstm/layer_{{n}}/{part}") for part in _LSTM]
_LAYERS = {PERCEPTRON: dense_rules("transform", "transform"), MEAN: [], **dict.fromkeys(LSTMS, _LSTM_RULES)}


def label_head_of(metadata: Mapping[str, Json]) -> str:
    """Returns the head for labels of a model with that metadata; `LINEAR` for one without labels."""
    return str(metadata.get("label_head", LINEAR)) if metadata.get("head") in FINE_TUNED else LINEAR


def varied(layout: Layout, metadata: Mapping[str, Json], where: str) -> Layout:
    """Returns the layout of a model's family with the model's head for labels in place of the linear one.

    Args:
      layout: the layout of the family, which is returned as it is for a model with a linear head or without labels.
      where: beginning of the message.

    Raises:
      ValueError: there is no such head for labels.
    """
    label_head = label_head_of(metadata)
    if label_head == LINEAR:
        return layout
    kind = str(metadata["head"])
    check_label_head(label_head, kind, f"{where}: ")
    head = layout.heads[kind]
    inner = [rule for rule in head.rules if not rule.ours.startswith(_OF_LABELS)]
    own = dataclasses.replace(
        head,
        fields=head.fields | ({"pooler": False} if "pooler" in head.fields else {}),
        build=functools.partial(head.build, label_head=label_head),
        rules=[*inner, *_LAYERS[label_head], *dense_rules("label", "label")],
        labels="label.weight",
    )
    return dataclasses.replace(layout, heads=layout.heads | {kind: own})


def with_label_head(metadata: Mapping[str, Json], label_head: str) -> JsonObject:
    """Returns the metadata of a model with that head for labels; only the linear one reads a pooler."""
    model = metadata["model"]
    if label_head in (MEAN, PERCEPTRON) and "pooler" in model:
        model = {**model, "pooler": False}
    return {**metadata, "label_head": label_head, "model": model}


def check_exportable(metadata: Mapping[str, Json], source: object) -> None:
    """Checks that other code can read a model's head for labels.

    Raises:
      ValueError: only charlm has such a head.
    """
    if (label_head := label_head_of(metadata)) != LINEAR:
        raise ValueError(
            f"{source} cannot be exported to PyTorch: transformers has no class with label_head={label_head}; "
            f"fine-tune with model.label_head={LINEAR}"
        )
