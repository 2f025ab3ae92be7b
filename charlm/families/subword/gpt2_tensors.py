"""Maps Hugging Face's tensor names and config keys of GPT-2 ("theirs") to charlm's.

Open it when a GPT-2's folder is not read because of its tensor names or its config. Their Conv1D stores matrices as we
do, [in, out]; one matrix holds query, key and value side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

from charlm.convert.heads import CAUSAL_LM, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.convert.rules import Leave, Rule, dense_rules, norm_rules
from charlm.core.types import Json, JsonObject, ModelConfig
from charlm.families.labels import label_heads
from charlm.families.subword.gpt2 import GPT2Config, GPT2LMHeadModel
from charlm.families.subword.labels import GPT2ForLabels
from charlm.families.subword.layout import ARCHITECTURES, MOST_LAYERS, Head, Layout, TheirKey

_LAYER = "transformer.h.{n}."
_OUR_LAYER = "gpt2/decoder/layer_{n}/"
_DENSE = {"attn.c_proj": "attention/output", "mlp.c_fc": "ffn_in", "mlp.c_proj": "ffn_out"}
_BUILD = label_heads(GPT2ForLabels)
_QKV = ("query", "key", "value")
LABELLED_KEY = "charlm_labelled"  # in configs that charlm exports
_FOURFOLD = 4  # ffn / hidden if the config does not state ffn (Radford et al., 2018, section 4.1: 3072 / 768)


def _rules() -> list[Rule]:
    rules = [
        Rule("transformer.wte.weight", "gpt2/embed/token/embedding"),
        Rule("transformer.wpe.weight", "gpt2/embed/position/embedding"),
        *norm_rules("transformer.ln_f", "gpt2/final_norm"),
        *norm_rules(f"{_LAYER}ln_1", f"{_OUR_LAYER}attention_norm"),
        *norm_rules(f"{_LAYER}ln_2", f"{_OUR_LAYER}ffn_norm"),
    ]
    for theirs, ours in (("weight", "kernel"), ("bias", "bias")):
        rules.append(Rule(f"{_LAYER}attn.c_attn.{theirs}", f"{_OUR_LAYER}attention/{{part}}/{ours}", parts=_QKV))
        rules += [Rule(f"{_LAYER}{part}.{theirs}", f"{_OUR_LAYER}{name}/{ours}") for part, name in _DENSE.items()]
    return rules


_LEAVE = [
    Leave("lm_head.weight", "the same tensor as transformer.wte.weight", same_as="transformer.wte.weight"),
    Leave(f"{_LAYER}attn.bias", "a constant: the causal mask"),
    Leave(f"{_LAYER}attn.masked_bias", "a constant: the score of masked positions"),
    *(
        Leave(name, "of a head for labels")
        for name in ("score.weight", "classifier.weight", "classifier.bias", "qa_outputs.weight", "qa_outputs.bias",
                     "multiple_choice_head.summary.weight", "multiple_choice_head.summary.bias")
    ),
]  # fmt: skip


def _for_labels(head: str, layer: str, ours: list[Rule] | None = None) -> Head:
    """Returns the head of a model with an output layer for labels.

    Args:
      layer: their name of the output layer.
      ours: its rules; None: those of a dense layer.
    """
    ours = ours or dense_rules(layer, "label")
    named = {rule.theirs for rule in ours}
    left, sign = [leave for leave in _LEAVE if leave.theirs not in named], f"{layer}.weight"
    return Head(ARCHITECTURES[head], sign, {}, _BUILD[head], _rules() + ours, left, labels=sign)


def _derive(theirs: Mapping[str, Json], ours: JsonObject) -> JsonObject:
    """Adds the feed-forward width, which older configs omit, and the labelled piece that our exports state."""
    labelled = {"labelled": theirs[LABELLED_KEY]} if LABELLED_KEY in theirs else {}
    return {"ffn": _FOURFOLD * ours["hidden"]} | ours | labelled


class GPT2Layout(Layout):
    """The layout of GPT-2, whose exported configs state which piece of a word is labelled if it is not the last."""

    def to_theirs(self, config: ModelConfig, head: str, original: Mapping[str, Json]) -> JsonObject:
        """Returns their config for ours; see `Layout.to_theirs`."""
        kept = {key: value for key, value in original.items() if key != LABELLED_KEY}
        stated = {LABELLED_KEY: config.labelled} if config.labelled != "last" else {}
        return super().to_theirs(config, head, kept) | stated


GPT2_LAYOUT = GPT2Layout(
    name="gpt2",
    model_types={"gpt2": "GPT2"},
    prefix="transformer.",
    outside=("lm_head.", "score.", "classifier.", "qa_outputs.", "multiple_choice_head."),
    config=GPT2Config,
    keys={
        "vocab_size": TheirKey("vocab_size"),
        "n_embd": TheirKey("hidden"),
        "n_layer": TheirKey("layers", most=MOST_LAYERS),
        "n_head": TheirKey("heads"),
        "n_inner": TheirKey("ffn", None),
        "n_positions": TheirKey("max_positions", 1024),
        "layer_norm_epsilon": TheirKey("epsilon", 1e-5, 0.0),
        "resid_pdrop": TheirKey("dropout", 0.1, 0.0),
        "embd_pdrop": TheirKey("embed_dropout", 0.1, 0.0),
        "attn_pdrop": TheirKey("attention_dropout", 0.1, 0.0),
    },
    activation="activation_function",
    activations={"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"},
    fixed={
        "scale_attn_weights": (True, "our attention divides scores by the square root of the head's width"),
        "scale_attn_by_inverse_layer_idx": (False, "our attention is the same in every layer"),
        "add_cross_attention": (False, "our model has no second input"),
        "tie_word_embeddings": (True, "our output layer is the token table"),
        "pruned_heads": ({}, "our layers have all heads"),
    },
    heads={
        SEQUENCE_CLASSIFICATION: _for_labels(
            SEQUENCE_CLASSIFICATION, "score", [Rule("score.weight", "label/kernel", transpose=True)]
        ),
        TOKEN_CLASSIFICATION: _for_labels(TOKEN_CLASSIFICATION, "classifier"),
        QUESTION_ANSWERING: _for_labels(QUESTION_ANSWERING, "qa_outputs"),
        CAUSAL_LM: Head("LMHeadModel", "", {}, GPT2LMHeadModel, _rules(), _LEAVE),
    },
    derive=_derive,
)
