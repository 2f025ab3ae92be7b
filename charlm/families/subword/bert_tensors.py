"""Maps Hugging Face's tensor names and config keys of BERT, multilingual BERT, RoBERTa and RoFormer ("theirs") to ours.

Open it when a BERT's folder is not read because of its tensor names or its config.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from charlm.convert.heads import (
    ENCODER,
    MASKED_LM,
    PRETRAINING,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)
from charlm.convert.rules import Leave, Rule, dense_rules, norm_rules
from charlm.core.types import Json, JsonObject
from charlm.families.labels import label_heads
from charlm.families.subword.bert import Bert, BertConfig, BertForMaskedLM
from charlm.families.subword.labels import BertForLabels
from charlm.families.subword.layout import ARCHITECTURES, MOST_LAYERS, Head, Layout, TheirKey
from charlm.nn.embed import sinusoids

POOLED_ENCODER = "pooled_encoder"

_LAYER_DENSE = {
    "attention.self.query": "attention/query",
    "attention.self.key": "attention/key",
    "attention.self.value": "attention/value",
    "attention.output.dense": "attention/output",
    "intermediate.dense": "ffn_in",
    "output.dense": "ffn_out",
}
_LAYER_NORM = {"attention.output.LayerNorm": "attention_norm", "output.LayerNorm": "ffn_norm"}
_ANGLES = "encoder.embed_positions.weight"  # RoFormer's: the sine and cosine of every angle
_TABLES = {"word": "token", "position": "position", "token_type": "type"}

THEIR_KEYS = {
    "vocab_size": TheirKey("vocab_size"),
    "hidden_size": TheirKey("hidden"),
    "num_hidden_layers": TheirKey("layers", most=MOST_LAYERS),
    "num_attention_heads": TheirKey("heads"),
    "intermediate_size": TheirKey("ffn"),
    "max_position_embeddings": TheirKey("max_positions", 512),
    "type_vocab_size": TheirKey("type_vocab", 2),
    "layer_norm_eps": TheirKey("epsilon", 1e-12, 0.0),
    "hidden_dropout_prob": TheirKey("dropout", 0.1, 0.0),
    "attention_probs_dropout_prob": TheirKey("attention_dropout", 0.1, 0.0),
}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new",
                "relu": "relu"}  # fmt: skip
FIXED = {
    "position_embedding_type": ("absolute", "our model has a table of positions"),
    "is_decoder": (False, "our model reads both ways"),
    "add_cross_attention": (False, "our model has no second input"),
    "tie_word_embeddings": (True, "our prediction head reads the token table"),
    "pruned_heads": ({}, "our layers have all heads"),
}
_LABELS = ("classifier", "qa_outputs", "logits_proj", "classifier.dense", "classifier.out_proj")  # their label layers
_BUILD = label_heads(BertForLabels)


def encoder_rules(theirs: str, ours: str, pooler: bool) -> list[Rule]:
    """Returns the rules of the encoder; the prefixes `theirs` and `ours` are empty or end in a dot and in a slash.

    A model with rotary positions has no table of them, so it leaves that rule unused.
    """
    rules = [
        Rule(f"{theirs}embeddings.{part}_embeddings.weight", f"{ours}embed/{name}/embedding")
        for part, name in _TABLES.items()
    ]
    rules += norm_rules(f"{theirs}embeddings.LayerNorm", f"{ours}embed/norm")
    for part, name in _LAYER_DENSE.items():
        rules += dense_rules(f"{theirs}encoder.layer.{{n}}.{part}", f"{ours}encoder/layer_{{n}}/{name}")
    for part, name in _LAYER_NORM.items():
        rules += norm_rules(f"{theirs}encoder.layer.{{n}}.{part}", f"{ours}encoder/layer_{{n}}/{name}")
    return rules + (dense_rules(f"{theirs}pooler.dense", f"{ours}pooler/dense") if pooler else [])


def _left(prefix: str, pooler: bool, heads: tuple[str, ...], aliases: Mapping[str, str], instead: str) -> list[Leave]:
    """Returns the tensors that a file may hold and that are not imported: constants, aliases, and other heads.

    Args:
      prefix: the prefix of the encoder's tensors.
      pooler: whether the model reads the pooler.
      heads: tensors of the heads that `instead`, an option, imports.
      aliases: second name -> first name of a tensor.
    """
    constants = ("embeddings.position_ids", "embeddings.token_type_ids", _ANGLES)
    leave = [Leave(f"{prefix}{name}", "a constant") for name in constants]
    leave += [Leave(alias, f"the same tensor as {name}", same_as=name) for alias, name in aliases.items()]
    leave += [Leave(name, f"of a head; {instead} imports it") for name in heads]
    if not pooler:
        reason = f"this head does not read the pooler; --head={POOLED_ENCODER} imports it"
        leave += [Leave(f"{prefix}pooler.dense.{part}", reason) for part in ("weight", "bias")]
    return leave + [
        Leave(f"{layer}.{part}", "of a head for labels") for layer in _LABELS for part in ("weight", "bias")
    ]


def _for_labels(prefix: str, head: str, pooled: bool, layer: str, ours: list[Rule] | None = None) -> Head:
    """Returns the head of a model with an output layer for labels.

    Args:
      pooled: whether it reads the encoder's pooler.
      layer: their name of the output layer.
      ours: rules of all its layers outside the encoder; None: the output layer is the only one.
    """
    left = _left(prefix, pooled, (), {}, "")
    for other in ("cls.predictions", "cls.seq_relationship", "lm_head"):
        left += [Leave(f"{other}.{part}", "of the head of pre-training") for part in _PRETRAINING_PARTS]
    ours = ours or dense_rules(layer, "label")
    named = {rule.theirs for rule in ours}
    left = [leave for leave in left if leave.theirs not in named]
    rules, sign = encoder_rules(prefix, "bert/", pooled) + ours, f"{layer}.weight"
    return Head(ARCHITECTURES[head], sign, {"pooler": pooled}, _BUILD[head], rules, left, labels=sign)


_PRETRAINING_PARTS = (
    "transform.dense.weight", "transform.dense.bias", "transform.LayerNorm.weight", "transform.LayerNorm.bias",
    "decoder.weight", "decoder.bias", "dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias", "weight",
    "bias",
)  # fmt: skip


def _encoder_alone(prefix: str, pooler: bool, heads: tuple[str, ...]) -> Head:
    """Returns the head of a model without output layer; `heads`: tensors of pre-training heads that a file may hold."""
    left = _left(prefix, pooler, heads, {}, f"--head={MASKED_LM}")
    sign = f"{prefix}pooler.dense.weight" if pooler else ""
    return Head("Model", sign, {"pooler": pooler}, Bert, encoder_rules(prefix, "", pooler), left)


# ---- BERT and multilingual BERT ----

_BERT_NEXT = ("cls.seq_relationship.weight", "cls.seq_relationship.bias")
_BERT_HEAD = tuple(
    f"cls.predictions.{name}"
    for name in ("transform.dense.weight", "transform.dense.bias", "transform.LayerNorm.weight",
                 "transform.LayerNorm.bias", "bias")
)  # fmt: skip
_BERT_ALIASES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


_BERT_PREDICTIONS = [
    *dense_rules("cls.predictions.transform.dense", "head/transform"),
    *norm_rules("cls.predictions.transform.LayerNorm", "head/transform_norm"),
    Rule("cls.predictions.bias", "head/output_bias"),
]


def _bert_head(pooler: bool) -> list[Rule]:
    return [*encoder_rules("bert.", "bert/", pooler), *_BERT_PREDICTIONS]


BERT_LAYOUT = Layout(
    name="bert",
    model_types={"bert": "Bert"},
    prefix="bert.",
    outside=("cls.", "classifier.", "qa_outputs."),
    config=BertConfig,
    keys=THEIR_KEYS,
    activation="hidden_act",
    activations=THEIR_ACTIVATIONS,
    fixed=FIXED,
    heads={
        PRETRAINING: Head(
            "ForPreTraining",
            _BERT_NEXT[0],
            {"pooler": True},
            lambda config: BertForMaskedLM(config, next_sentence=True),
            _bert_head(pooler=True) + dense_rules("cls.seq_relationship", "label"),
            _left("bert.", True, (), _BERT_ALIASES, ""),
        ),
        MASKED_LM: Head(
            "ForMaskedLM",
            _BERT_HEAD[0],
            {"pooler": False},
            BertForMaskedLM,
            _bert_head(pooler=False),
            _left("bert.", False, _BERT_NEXT, _BERT_ALIASES, f"--head={PRETRAINING}"),
        ),
        SEQUENCE_CLASSIFICATION: _for_labels("bert.", SEQUENCE_CLASSIFICATION, True, "classifier"),
        TOKEN_CLASSIFICATION: _for_labels("bert.", TOKEN_CLASSIFICATION, False, "classifier"),
        QUESTION_ANSWERING: _for_labels("bert.", QUESTION_ANSWERING, False, "qa_outputs"),
        POOLED_ENCODER: _encoder_alone("bert.", True, (*_BERT_HEAD, *_BERT_NEXT, *_BERT_ALIASES)),
        ENCODER: _encoder_alone("bert.", False, (*_BERT_HEAD, *_BERT_NEXT, *_BERT_ALIASES)),
    },
)


# ---- RoBERTa ----

_ROBERTA_HEAD = tuple(f"lm_head.{name}" for name in ("dense.weight", "dense.bias", "layer_norm.weight",
                                                     "layer_norm.bias", "bias"))  # fmt: skip
_DENSE_AND_OUTPUT = dense_rules("classifier.dense", "pooler/dense") + dense_rules("classifier.out_proj", "label")
_ROBERTA_ALIASES = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


def roberta_positions(theirs: Mapping[str, Json], ours: JsonObject) -> JsonObject:
    """Adds the padding id and the row of the first position, which is the one after padding's."""
    pad = 1 if theirs.get("pad_token_id") is None else theirs["pad_token_id"]
    if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
        raise ValueError(f"pad_token_id={pad!r}, expected a whole number from 0 on")
    if ours["activation"] != "gelu":
        raise ValueError(f"hidden_act={theirs['hidden_act']!r} cannot be imported: RoBERTa's head always has gelu")
    return ours | {"pad_id": pad, "position_offset": pad + 1}


ROBERTA_LAYOUT = Layout(
    name="roberta",
    model_types={"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
    prefix="roberta.",
    outside=("lm_head.", "classifier.", "qa_outputs."),
    config=BertConfig,
    keys=THEIR_KEYS,
    activation="hidden_act",
    activations=THEIR_ACTIVATIONS,
    fixed=FIXED,
    heads={
        MASKED_LM: Head(
            "ForMaskedLM",
            _ROBERTA_HEAD[0],
            {"pooler": False},
            BertForMaskedLM,
            [
                *encoder_rules("roberta.", "bert/", pooler=False),
                *dense_rules("lm_head.dense", "head/transform"),
                *norm_rules("lm_head.layer_norm", "head/transform_norm"),
                Rule("lm_head.bias", "head/output_bias"),
            ],
            _left("roberta.", False, (), _ROBERTA_ALIASES, ""),
        ),
        SEQUENCE_CLASSIFICATION: _for_labels(
            "roberta.", SEQUENCE_CLASSIFICATION, False, "classifier.out_proj", _DENSE_AND_OUTPUT
        ),
        TOKEN_CLASSIFICATION: _for_labels("roberta.", TOKEN_CLASSIFICATION, False, "classifier"),
        QUESTION_ANSWERING: _for_labels("roberta.", QUESTION_ANSWERING, False, "qa_outputs"),
        POOLED_ENCODER: _encoder_alone("roberta.", True, (*_ROBERTA_HEAD, *_ROBERTA_ALIASES)),
        ENCODER: _encoder_alone("roberta.", False, (*_ROBERTA_HEAD, *_ROBERTA_ALIASES)),
    },
    derive=roberta_positions,
)


# ---- RoFormer ----

_ROFORMER_ALIASES = _BERT_ALIASES | {
    "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
}


def _roformer_fields(theirs: Mapping[str, Json], ours: JsonObject) -> JsonObject:
    """Adds that positions are rotary; ValueError for tokens that are narrower than the states."""
    width = theirs.get("embedding_size")
    if width not in (None, ours["hidden"]):
        raise ValueError(f"embedding_size={width!r} cannot be imported, only {ours['hidden']}, the hidden_size")
    return ours | {"position": "rotary"}


def _roformer_angles(config: BertConfig) -> dict[str, np.ndarray]:
    """Returns the sines of every position's angles and, behind them, the cosines."""
    table_LK = sinusoids(config.max_positions, config.hidden // config.heads)
    return {f"roformer.{_ANGLES}": np.concatenate([table_LK[:, 0::2], table_LK[:, 1::2]], axis=1)}


ROFORMER_LAYOUT = Layout(
    name="roformer",
    model_types={"roformer": "RoFormer"},
    prefix="roformer.",
    outside=("cls.", "classifier.", "qa_outputs."),
    config=BertConfig,
    keys=THEIR_KEYS | {"max_position_embeddings": TheirKey("max_positions", 1536)},
    activation="hidden_act",
    activations=THEIR_ACTIVATIONS,
    # Its positions are of one kind.
    fixed={key: only for key, only in FIXED.items() if key != "position_embedding_type"}
    | {"rotary_value": (False, "our layers turn queries and keys alone")},
    heads={
        MASKED_LM: Head(
            "ForMaskedLM",
            _BERT_HEAD[0],
            {"pooler": False},
            BertForMaskedLM,
            encoder_rules("roformer.", "bert/", pooler=False) + _BERT_PREDICTIONS,
            _left("roformer.", True, (), _ROFORMER_ALIASES, ""),
        ),
        SEQUENCE_CLASSIFICATION: _for_labels(
            "roformer.", SEQUENCE_CLASSIFICATION, False, "classifier.out_proj", _DENSE_AND_OUTPUT
        ),
        TOKEN_CLASSIFICATION: _for_labels("roformer.", TOKEN_CLASSIFICATION, False, "classifier"),
        QUESTION_ANSWERING: _for_labels("roformer.", QUESTION_ANSWERING, False, "qa_outputs"),
        ENCODER: Head(
            "Model",
            "",
            {"pooler": False},
            Bert,
            encoder_rules("roformer.", "", pooler=False),
            _left("roformer.", True, (*_BERT_HEAD, *_ROFORMER_ALIASES), {}, f"--head={MASKED_LM}"),
        ),
    },
    derive=_roformer_fields,
    constants=_roformer_angles,
)
