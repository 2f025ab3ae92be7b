"""Maps tensor names and config keys of the authors' CharacterBERT ("theirs") to charlm's ("ours").

Open it when the authors' weights are not recognised, or a tensor is reported as missing. Their names are those of the
released models (helboukkouri/character-bert), with heads named as in transformers' BERT classes. Some files use the
prefix `character_bert.` instead of `bert.`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from charlm.convert.files import Tensor
from charlm.convert.heads import ENCODER, MASKED_LM
from charlm.convert.rules import Leave, Rule, dense_rules
from charlm.core.types import Json, JsonObject
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.characterbert.model import (
    CharacterBert,
    CharacterBertForMaskedLM,
)
from charlm.families.labels import label_heads
from charlm.families.spelled.model import smallest_inputs
from charlm.families.spelled.options import SPLITTING
from charlm.families.subword.bert_tensors import (
    BERT_LAYOUT,
    FIXED,
    POOLED_ENCODER,
    THEIR_ACTIVATIONS,
    THEIR_KEYS,
    encoder_rules,
)
from charlm.families.subword.labels import BertForLabels
from charlm.families.subword.layout import Head, Layout, TheirKey

NAME, MODEL_TYPE = "characterbert", "character_bert"
OWN_KEY = "charlm"  # a key that charlm adds to their config, for fields of ours that it has no key for
TEXT_FIELDS = (*SPLITTING, "lowercase")  # our fields that decide which words a text has
CNN = "bert.embeddings.word_embeddings."
CHARACTERS = "_char_embedding_weights"  # suffix of the name of a tensor that only CharacterBERT has
OTHER_PREFIX = "character_bert."
OUTPUT_TENSOR = "cls.predictions.decoder.weight"

CNN_RULES = [
    Rule(f"{CNN}{CHARACTERS}", "cnn/chars/embedding"),
    Rule(f"{CNN}char_conv_{{n}}.weight", "cnn/convolution_{n}/kernel", transpose=True),
    Rule(f"{CNN}char_conv_{{n}}.bias", "cnn/convolution_{n}/bias"),
    *dense_rules(f"{CNN}_highways._layers.{{n}}", "cnn/highway_{n}/projection"),
    *dense_rules(f"{CNN}_projection", "cnn/projection"),
]
HEAD_BIAS, SECOND_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
ALIAS = Leave(SECOND_BIAS, f"the same tensor as {HEAD_BIAS}", same_as=HEAD_BIAS)
NEXT = [Leave(f"cls.seq_relationship.{part}", "of next-sentence prediction") for part in ("weight", "bias")]


@dataclasses.dataclass(frozen=True)
class CharacterBertLayout(Layout):
    """BERT's layout with a CNN in place of the subword table."""

    def canonical(self, state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Returns the state under the names of `rules`; see `Layout.canonical`."""
        named = {name: name.replace(OTHER_PREFIX, self.prefix, 1) for name in state}
        if len(set(named.values())) != len(named):
            raise ValueError(f"{where} holds tensors that begin with {OTHER_PREFIX} and with {self.prefix}")
        return super().canonical({named[name]: tensor for name, tensor in state.items()}, where)

    def from_theirs(self, theirs: Mapping[str, Json], head: str, where: str) -> CharacterBertConfig:
        """Returns our config for one of theirs; see `Layout.from_theirs`."""
        config = super().from_theirs(theirs, head, where)
        try:
            own = {name: value for name, value in theirs.get(OWN_KEY, {}).items() if name in TEXT_FIELDS}
            return dataclasses.replace(config, **_filters(theirs), **own)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{where}: cnn_filters or {OWN_KEY}: {error}") from error

    def to_theirs(self, config: CharacterBertConfig, head: str, original: Mapping[str, Json]) -> JsonObject:
        """Returns their config for ours; see `Layout.to_theirs`."""
        own = {"cnn_filters": [list(pair) for pair in zip(config.windows, config.filters, strict=True)]}
        own |= {"model_type": MODEL_TYPE, OWN_KEY: {name: getattr(config, name) for name in TEXT_FIELDS}}
        return super().to_theirs(config, head, {**original, **own}) | {"tie_word_embeddings": False}


def _filters(theirs: Mapping[str, Json]) -> JsonObject:
    pairs = theirs.get("cnn_filters")
    if pairs is None:
        return {}
    if not isinstance(pairs, list) or not all(
        isinstance(p, list) and [type(n) for n in p] == [int, int] for p in pairs
    ):
        raise ValueError(f"{pairs!r}, expected a list of [width, number]")
    return {"windows": tuple(width for width, _ in pairs), "filters": tuple(number for _, number in pairs)}


_BUILD = {
    MASKED_LM: CharacterBertForMaskedLM,
    **label_heads(BertForLabels, encoder=CharacterBert),
    POOLED_ENCODER: CharacterBert,
    ENCODER: CharacterBert,
}


def _heads() -> dict[str, Head]:
    """Returns BERT's heads with the CNN's rules added, and an untied output layer for the pre-training head."""
    heads, own = {}, {}
    for head in _BUILD:
        rules = [rule for rule in BERT_LAYOUT.heads[head].rules if not rule.theirs.startswith(BERT_LAYOUT.prefix)]
        own[head] = [*rules, Rule(OUTPUT_TENSOR, "head/output_kernel", transpose=True)] if head == MASKED_LM else rules
    constants = [Leave(f"bert.embeddings.{name}", "a constant") for name in ("position_ids", "token_type_ids")]
    for head, build in _BUILD.items():
        theirs, named = BERT_LAYOUT.heads[head], {rule.theirs for rule in own[head]}
        others = {rule.theirs for rules in own.values() for rule in rules} - named
        leave = [*constants, *NEXT, *(Leave(name, "of another head") for name in sorted(others))]
        leave.append(ALIAS if head == MASKED_LM else Leave(SECOND_BIAS, "of another head"))
        if not theirs.fields["pooler"]:
            reason = f"this head does not read the pooler; --head={POOLED_ENCODER} imports it"
            leave += [Leave(f"bert.pooler.dense.{part}", reason) for part in ("weight", "bias")]
        inner = encoder_rules("bert.", "bert/", theirs.fields["pooler"])[1:]  # without the table of subwords
        heads[head] = Head(
            theirs.architecture, theirs.sign, theirs.fields, build, inner + CNN_RULES + own[head], leave, theirs.labels
        )
    return heads


LAYOUT = CharacterBertLayout(
    name=NAME,
    model_types={MODEL_TYPE: "CharacterBert", "bert": "Bert"},  # some released configs say they are a BERT's
    prefix=BERT_LAYOUT.prefix,
    outside=BERT_LAYOUT.outside,
    config=CharacterBertConfig,
    keys={key: known for key, known in THEIR_KEYS.items() if key != "vocab_size"}
    | {
        "mlm_vocab_size": TheirKey("vocab_size", CharacterBertConfig.vocab_size),
        "character_embeddings_dim": TheirKey("char_hidden", CharacterBertConfig.char_hidden),
        "num_highway_layers": TheirKey("highways", CharacterBertConfig.highways),
        "max_word_length": TheirKey("char_slots", CharacterBertConfig.char_slots, 3),
    },
    activation=BERT_LAYOUT.activation,
    activations=THEIR_ACTIVATIONS,
    fixed={key: known for key, known in FIXED.items() if key != "tie_word_embeddings"}
    | {
        "tie_word_embeddings": (False, "there is no table of words to tie the prediction head to"),
        "cnn_activation": ("relu", "our CNN has no other"),
    },
    heads=_heads(),
    smallest=smallest_inputs,
)


def words_in(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Returns their config key for the number of words that a file's head predicts; {} without such a head."""
    return {"mlm_vocab_size": (*state[OUTPUT_TENSOR].shape, 0)[0]} if OUTPUT_TENSOR in state else {}
