"""The kinds of BERT that other families are built on: BERT itself, RoBERTa and RoFormer; imports no JAX.

They are one model (`charlm.families.subword.bert`) whose configs differ in a few fields. Open it to add a kind, or to
see what tells the kinds apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from charlm.core.types import Json, JsonObject

# The config fields in which the released models differ.
BERT_KINDS: dict[str, JsonObject] = {
    "bert": {
        "max_positions": 512, "type_vocab": 2, "position": "absolute", "position_offset": 0, "pad_id": 0,
        "epsilon": 1e-12,
    },
    "roberta": {
        "max_positions": 514, "type_vocab": 1, "position": "absolute", "position_offset": 2, "pad_id": 1,
        "epsilon": 1e-5,
    },
    "roformer": {
        "max_positions": 512, "type_vocab": 2, "position": "rotary", "position_offset": 0, "pad_id": 0,
        "epsilon": 1e-12,
    },
}  # fmt: skip
BACKBONE_KIND = ("type_vocab", "position", "position_offset", "pad_id")  # the same in all models of a kind of BERT
SUBWORDS = {"bert": "bert", "roberta": "roberta", "roformer": "bert", "gpt2": "gpt2"}  # family of a model's tokenizer


def kind_of(fields: Mapping[str, Json]) -> str:
    """Returns the kind of a BERT by the fields of its config.

    RoBERTa's positions have an offset, which differs between the models derived from it. Configs that were written when
    there was no other kind of positions do not state theirs.
    """
    if fields.get("position") == "rotary":
        return "roformer"
    return "roberta" if fields.get("position_offset") else "bert"
