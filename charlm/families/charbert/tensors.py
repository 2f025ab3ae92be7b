"""Maps tensor names and configs of the released CharBERT code ("theirs") to charlm's ("ours"), on BERT and RoBERTa.

Open it when the authors' weights are not recognised, or a tensor is reported as missing. Their folders hold the config
of a BERT or RoBERTa, which does not mention characters. So whether a model has a character channel, and its sizes, are
found from the tensors. Files of CharBERT on BERT hold one copy of the single fusion convolution for each layer; their
code ends up using the last copy.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping

import flax.linen as nn
import numpy as np
from flax import traverse_util

from charlm.convert.files import Tensor
from charlm.convert.heads import ENCODER, MASKED_LM, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.convert.rules import Leave, Rule, dense_rules, group, norm_rules
from charlm.core.types import Json, JsonObject, Params
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.heads import CharBertForLabels, CharBertForMaskedLM
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.fusions import FUSIONS
from charlm.families.labels import label_heads
from charlm.families.subword.bert_tensors import FIXED, THEIR_ACTIVATIONS, THEIR_KEYS, encoder_rules, roberta_positions
from charlm.families.subword.layout import ARCHITECTURES, Head, Layout

log = logging.getLogger("charlm")

CHAR_TABLE = "char_embeddings.char_embeddings.weight"  # only CharBERT has this tensor, under any prefix
_COPIES = "encoder.fusion_layer_list."  # of CharBERT on BERT
_GRU = {
    "weight_ih": ("input_kernel", True),
    "weight_hh": ("state_kernel", True),
    "bias_ih": ("input_bias", False),
    "bias_hh": ("state_bias", False),
}
COMPAT_KEY = "charlm_compat_reference"  # in configs that charlm exports, for models trained without that mode
_NO_NAME = "ours."  # prefix of the tensors that their code does not have
_FUSION = re.compile(r"(^|/)encoder/fusion(_|/)")  # matches our names of the parameters of fusions


def _channels(theirs: str, ours: str, convolution: str) -> list[Rule]:
    """Returns the rules of what CharBERT adds to an encoder; `convolution`: their name of the fusion convolution."""
    rules = [Rule(f"{theirs}{CHAR_TABLE}", f"{ours}char/table/embedding")]
    for part, (name, transpose) in _GRU.items():
        for direction, suffix in (("forward", ""), ("backward", "_reverse")):
            gru = f"{theirs}char_embeddings.rnn_layer.{part}_l0{suffix}"
            rules.append(Rule(gru, f"{ours}char/gru/{direction}_{name}", transpose))
    shared, own = f"{ours}encoder/fusion", f"{ours}encoder/fusion_{{n}}"
    for channel in ("word", "char"):
        linear = f"{theirs}encoder.{channel}_linear1.weight"
        rules.append(Rule(linear, f"{shared}/{channel}_linear/kernel", transpose=True))
        rules += norm_rules(f"{theirs}encoder.{channel}_norm", f"{shared}/{channel}_norm")
        for part in ("linear", "split"):  # of fusion="paper"
            rules += dense_rules(f"{_NO_NAME}fusion.{{n}}.{channel}_{part}", f"{own}/{channel}_{part}")
        rules += norm_rules(f"{_NO_NAME}fusion.{{n}}.{channel}_norm", f"{own}/{channel}_norm")
    rules += dense_rules(f"{theirs}{convolution}", f"{shared}/convolution_0")
    return rules + dense_rules(f"{_NO_NAME}fusion.{{n}}.convolution.{{k}}", f"{own}/convolution_{{k}}")


@dataclasses.dataclass(frozen=True)
class CharBertLayout(Layout):
    """The layout of one of the two kinds of CharBERT, on BERT or on RoBERTa.

    Attributes:
      tied: their second name of the subword table, in files with the pre-training heads.
    """

    tied: str = ""

    def canonical(self, state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Returns the state under the names of `rules`, with a single copy of the fusion convolution.

        Their loader writes all copies into the same parameter, one after the other, so the last one is kept.
        """
        named = super().canonical(state, where)
        for part in ("weight", "bias"):
            begin = f"{self.prefix}{_COPIES}"
            copies = sorted(
                (name for name in named if name.startswith(begin) and name.endswith(f".{part}")),
                key=lambda name: int(name.removeprefix(begin).split(".")[0]),
            )
            if not copies:
                continue
            values = [np.asarray(named.pop(name)) for name in copies]
            if any(not np.array_equal(value, values[-1]) for value in values):
                log.warning("%s: %s differ; the last one is taken, as their code does", where, ", ".join(group(copies)))
            named[f"{begin}0.{part}"] = values[-1]
        return named

    def from_theirs(self, theirs: Mapping[str, Json], head: str, where: str, **sizes: int) -> CharBertConfig:
        """Returns our config for one of theirs; see `Layout.from_theirs`.

        Args:
          sizes: fields that their config does not state; see the method `sizes`.
        """
        try:
            return dataclasses.replace(super().from_theirs(theirs, head, where), **sizes)
        except ValueError as error:
            raise ValueError(f"{where}: {error}" if sizes and where not in str(error) else str(error)) from error

    def sizes(self, state: Mapping[str, Tensor]) -> dict[str, int]:
        """Returns the fields of our config that their config does not state, found from shapes of tensors."""
        shape = lambda name: state[name].shape if name in state and len(state[name].shape) == 2 else (0, 0)
        rows, width = shape(f"{self.prefix}{CHAR_TABLE}")
        words = shape(_words_of(self))[0]
        found = {"char_vocab_size": rows, "char_hidden": width, "word_vocab_size": words}
        return {name: size for name, size in found.items() if size}

    def rules_of(self, config: CharBertConfig, head: str, params: Params) -> list[Rule]:
        """Returns the rules of a head; see `Layout.rules_of`."""
        rules = super().rules_of(config, head, params)
        released = config.fusion == "reference" or not config.one_fusion
        if (
            config.fusion not in FUSIONS.own or not released
        ):  # the released code lacks it: its parameters keep our names
            rules = [rule for rule in rules if not _FUSION.search(rule.ours)]
            names = traverse_util.flatten_dict(params, sep="/")
            rules += [Rule(f"{_NO_NAME}{name}", name) for name in names if _FUSION.search(name)]
        return rules

    def aliases(self, config: CharBertConfig, head: str) -> list[Leave]:
        """Returns the second names under which their files store some tensors again."""
        found = []
        if self.prefix == "bert.":
            found += [
                Leave(f"bert.{_COPIES}{n}.{part}", "one of the copies of a convolution", f"bert.{_COPIES}0.{part}")
                for n in range(1, config.layers)
                for part in ("weight", "bias")
            ]
        if head == MASKED_LM:
            table = f"{self.prefix}embeddings.word_embeddings.weight"
            found.append(Leave(self.tied, f"the same tensor as {table}", table))
        return found


def smallest_batch() -> CharBertBatch:
    """Returns the smallest batch that a model accepts: one subword with one character."""
    one = np.zeros((1, 1), np.int32)
    return CharBertBatch(one, None, None, one, one, one)


def _smallest(model: nn.Module) -> tuple[CharBertBatch]:
    return (smallest_batch(),)


def _words_of(family: Layout) -> str:
    return "cls.predictions.adv_decoder.weight" if family.prefix == "bert." else "lm_head.adv_decoder.weight"


def _as_released(on_roberta: bool) -> Callable[[Mapping[str, Json], JsonObject], JsonObject]:
    """Returns a `Layout.derive` that sets the fields fixed in the released code and the one stored by our exports."""

    def derive(theirs: Mapping[str, Json], ours: JsonObject) -> JsonObject:
        fields = roberta_positions(theirs, ours) if on_roberta else ours
        compat = theirs.get(COMPAT_KEY, True)
        if not isinstance(compat, bool):
            raise ValueError(f"{COMPAT_KEY}={compat!r}: expected true or false")
        fixed = {"fusion": "reference", "windows": (3,), "compat_reference": compat, "shared_head_norm": on_roberta}
        return fields | fixed

    return derive


def _family(prefix: str, convolution: str, classifier: str, outside: tuple[str, ...], lm: list[Rule]) -> CharBertLayout:
    """Returns the layout of one kind of CharBERT; all arguments are names of theirs, or rules.

    Args:
      prefix: the prefix of the encoder's tensors.
      convolution: the fusion convolution.
      classifier: the layer for labels of sequences.
      outside: prefixes of tensors that are not the encoder's.
      lm: rules of the pre-training heads.
    """
    on_roberta = prefix == "roberta."
    lm_bias = next(rule.theirs for rule in lm if rule.ours == "head/output_bias")
    sign, tied = lm[-1].theirs, "lm_head.decoder.weight" if on_roberta else "cls.predictions.decoder.weight"
    encoder = lambda ours: encoder_rules(prefix, ours, True) + _channels(prefix, ours, convolution)
    table = f"{prefix}embeddings.word_embeddings.weight"
    bias = Leave(f"{tied.removesuffix('.weight')}.bias", f"the same tensor as {lm_bias}", lm_bias)
    constants = [Leave(f"{prefix}embeddings.{name}", "a constant") for name in ("position_ids", "token_type_ids")]
    constants += [Leave(f"cls.seq_relationship.{part}", "of a head of BERT's") for part in ("weight", "bias")]
    left_of_lm = [Leave(rule.theirs, "of the heads of pre-training") for rule in lm]
    left_of_lm += [Leave(name, "of the heads of pre-training") for name in (tied, bias.theirs)] + constants
    layers = {SEQUENCE_CLASSIFICATION: classifier, TOKEN_CLASSIFICATION: "classifier", QUESTION_ANSWERING: "qa_outputs"}
    left_of_labels = [
        Leave(f"{layer}.{part}", "of a head for labels")
        for layer in dict.fromkeys(layers.values())
        for part in ("weight", "bias")
    ]
    labelled = label_heads(CharBertForLabels)
    heads = {
        MASKED_LM: Head(
            "ForMaskedLM", sign, {"pooler": True}, CharBertForMaskedLM, encoder("charbert/") + lm,
            [Leave(tied, f"the same tensor as {table}", table), bias, *constants, *left_of_labels],
        )
    }  # fmt: skip
    for head, layer in layers.items():
        left = [leave for leave in left_of_labels if not leave.theirs.startswith(f"{layer}.")]
        heads[head] = Head(
            ARCHITECTURES[head], f"{layer}.weight", {"pooler": True}, labelled[head],
            encoder("charbert/") + dense_rules(layer, "label"), left_of_lm + left, labels=f"{layer}.weight",
        )  # fmt: skip
    heads[ENCODER] = Head("Model", "", {"pooler": True}, CharBert, encoder(""), left_of_lm + left_of_labels)
    return CharBertLayout(
        name="charbert",
        model_types={"charbert": "CharBert", "roberta" if on_roberta else "bert": "CharBert"},
        prefix=prefix,
        outside=(*outside, _NO_NAME),
        config=CharBertConfig,
        keys=THEIR_KEYS,
        activation="hidden_act",
        activations=THEIR_ACTIVATIONS,
        fixed=FIXED,
        heads=heads,
        derive=_as_released(on_roberta),
        smallest=_smallest,
        tied=tied,
    )


def _word_decoder(theirs: str) -> list[Rule]:
    return [
        Rule(f"{theirs}.bias", "head/word_output_bias"),
        Rule(f"{theirs}.weight", "head/word_output_kernel", transpose=True),
    ]


_CLS = "cls.predictions"
ON_BERT = _family(
    "bert.",
    f"{_COPIES}0",
    "classifier",
    ("cls.", "classifier.", "qa_outputs."),
    [
        *dense_rules(f"{_CLS}.transform.dense", "head/transform"),
        *norm_rules(f"{_CLS}.transform.LayerNorm", "head/transform_norm"),
        Rule(f"{_CLS}.bias", "head/output_bias"),
        *dense_rules(f"{_CLS}.adv_transform.dense", "head/word_transform"),
        *norm_rules(f"{_CLS}.adv_transform.LayerNorm", "head/word_transform_norm"),
        *_word_decoder(f"{_CLS}.adv_decoder"),
    ],
)
ON_ROBERTA = _family(
    "roberta.",
    "encoder.fusion_layer",
    "char_classifier",
    ("lm_head.", "classifier.", "char_classifier.", "qa_outputs."),
    [
        *dense_rules("lm_head.dense", "head/transform"),
        *norm_rules("lm_head.layer_norm", "head/transform_norm"),
        Rule("lm_head.bias", "head/output_bias"),
        *dense_rules("lm_head.char_dense", "head/word_transform"),
        *norm_rules(f"{_NO_NAME}word_transform_norm", "head/word_transform_norm"),
        *_word_decoder("lm_head.adv_decoder"),
    ],
)
