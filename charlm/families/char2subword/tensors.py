"""Tables for converting a Char2Subword on BERT, RoBERTa or RoFormer: names of tensors, and keys of the config.

Open it when such a folder is not recognised, or a tensor is reported as missing. No code was released for the paper.
The transformer's tensors have their names in the package transformers; the module's begin with `char2subword.` and
follow the equations of the paper (appendix A). The config is the transformer's with `model_type` "char2subword" and one
more key, `char2subword`, for everything that the transformer's config lacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from charlm.convert.heads import ENCODER, MASKED_LM, SEQUENCE_CLASSIFICATION
from charlm.convert.rules import Leave, Rule, dense_rules, norm_rules
from charlm.core.types import Json, JsonObject
from charlm.families.char2subword.model import (
    Char2SubwordBert,
    Char2SubwordBertConfig,
    Char2SubwordForMaskedLM,
)
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.labels import label_heads
from charlm.families.spelled.model import smallest_inputs
from charlm.families.spelled.options import SPLITTING
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.bert_tensors import BERT_LAYOUT, ROBERTA_LAYOUT, ROFORMER_LAYOUT, encoder_rules
from charlm.families.subword.labels import BertForLabels
from charlm.families.subword.layout import Head, Layout
from charlm.text.words import SPLITTERS

NAME = "char2subword"  # the family, the folder of the module's parameters, and our key in the config of transformers
TABLE_PARAMETER = "bert/embed/token/embedding"  # the parameters that the module imitates
MODULE_PREFIX = "char2subword."  # prefix of the module's tensors
NOT_SHAPE = ("dtype", "remat", "attention_kernel", "scan_layers")  # how the module is computed; not written to files
_LAYER = {"q": "attention/query", "k": "attention/key", "v": "attention/value", "o": "attention/output"}


def module_rules(theirs: str, ours: str) -> list[Rule]:
    """Returns the rules of the module; the prefix `theirs` ends in a dot and `ours` in a slash, unless empty."""
    layer, own = f"{theirs}layers.{{n}}.", f"{ours}layer_{{n}}/"
    rules = [Rule(f"{theirs}char_embs.weight", f"{ours}chars/embedding")]
    rules += [Rule(f"{layer}{part}.weight", f"{own}{name}/kernel", transpose=True) for part, name in _LAYER.items()]
    rules += dense_rules(f"{layer}ff1", f"{own}ffn_in") + dense_rules(f"{layer}ff2", f"{own}ffn_out")
    rules += norm_rules(f"{layer}ln1", f"{own}attention_norm") + norm_rules(f"{layer}ln2", f"{own}ffn_norm")
    rules += dense_rules(f"{theirs}proj", f"{ours}projection") + norm_rules(f"{theirs}ln_out", f"{ours}norm")
    rules += dense_rules(f"{theirs}gate_in", f"{ours}gate_in")
    return rules + dense_rules(f"{theirs}gate", f"{ours}gate")


def bert_config(config: Char2SubwordBertConfig) -> BertConfig:
    """Returns the config of the transformer without the module."""
    return BertConfig(**{field.name: getattr(config, field.name) for field in dataclasses.fields(BertConfig)})


@dataclasses.dataclass(frozen=True)
class Char2SubwordLayout(Layout):
    """The layout of one of the two kinds: on BERT or on RoBERTa.

    Attributes:
      backbone: the layout of the transformer.
    """

    backbone: Layout = BERT_LAYOUT

    def from_theirs(self, theirs: Mapping[str, Json], head: str, where: str) -> Char2SubwordBertConfig:
        """Returns our config for their config; see `Layout.from_theirs`."""
        self.check_type(theirs, where)
        own = own_keys(theirs, where)
        base = self.backbone.from_theirs(backbone_config(theirs, where), head, where)
        characters = _module_config(own.get("characters"), f"{where}: {NAME}.characters")
        fields = {field.name: getattr(base, field.name) for field in dataclasses.fields(BertConfig)}
        fields |= {name: own[name] for name in ("pooler", *SPLITTING)} | self.heads[head].fields
        try:
            return Char2SubwordBertConfig(**fields, characters=characters, mode=own["mode"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def to_theirs(self, config: Char2SubwordBertConfig, head: str, original: Mapping[str, Json]) -> JsonObject:
        """Returns their config for our config; `original` is the transformer's config as it was imported."""
        plain = self.backbone.to_theirs(bert_config(config), head, original)
        own: JsonObject = {"backbone": plain["model_type"], "mode": config.mode, "pooler": config.pooler}
        own |= {name: getattr(config, name) for name in SPLITTING}
        shape = dataclasses.asdict(config.characters)
        own["characters"] = {name: value for name, value in shape.items() if name not in NOT_SHAPE}
        if not config.characters.gate:  # files without a gate are as before there were gates
            del own["characters"]["gate"]
        architecture = self.model_types[NAME] + self.heads[head].architecture
        ours = {"model_type": NAME, "architectures": [architecture], "dtype": plain["dtype"], NAME: own}
        return {key: value for key, value in plain.items() if key not in ours} | ours  # always in the same order


def own_keys(theirs: Mapping[str, Json], where: str) -> JsonObject:
    """Returns the part of a config that is about the module and its use, with defaults filled in.

    Raises:
      ValueError: a key is missing or has a value that is not allowed; the message names it.
    """
    own = theirs.get(NAME)
    if not isinstance(own, dict):
        raise ValueError(f"{where} lacks the key {NAME}: expected backbone, mode, pooler and characters there")
    own = {"mode": "hybrid", "pooler": False, "rows": [], "splitter": "rules", "language": "en"} | own
    backbones = [name for family in (BERT_LAYOUT, ROBERTA_LAYOUT, ROFORMER_LAYOUT) for name in family.model_types]
    if own.get("backbone") not in backbones:
        raise ValueError(f"{where}: {NAME}.backbone={own.get('backbone')!r} is not one of {', '.join(backbones)}")
    if not isinstance(own["pooler"], bool):
        raise ValueError(f"{where}: {NAME}.pooler={own['pooler']!r}: expected true or false")
    if own["splitter"] not in SPLITTERS or not isinstance(own["language"], str):
        raise ValueError(
            f"{where}: {NAME}.splitter={own['splitter']!r} and {NAME}.language={own['language']!r}: expected one "
            f"of {', '.join(SPLITTERS)}, and a code"
        )
    rows = own["rows"]
    if not isinstance(rows, list) or not all(type(index) is int and index >= 0 for index in rows):
        raise ValueError(f"{where}: {NAME}.rows: expected a list of subword ids")
    return own


def backbone_config(theirs: Mapping[str, Json], where: str) -> JsonObject:
    """Returns the config of the transformer alone, taken from the config of a Char2Subword."""
    own = own_keys(theirs, where)
    kept = {key: value for key, value in theirs.items() if key not in (NAME, "architectures")}
    return kept | {"model_type": own["backbone"]}


def _module_config(fields: Json, where: str) -> Char2SubwordConfig:
    """Returns the config of the module; ValueError naming a field that is unknown or has a value of the wrong kind."""
    if not isinstance(fields, dict):
        raise ValueError(f"{where}: expected an object, got {type(fields).__name__}")
    known = {f.name: f.default for f in dataclasses.fields(Char2SubwordConfig) if f.name not in NOT_SHAPE}
    if unknown := sorted(fields.keys() - known.keys()):
        raise ValueError(f"{where}: {unknown[0]} is not one of {', '.join(known)}")
    for name, value in fields.items():
        default = known[name]
        fits = type(value) is type(default) or (isinstance(default, float) and type(value) is int)
        if not fits or (type(default) is int and not 1 <= value <= 2**24):
            expected = "a positive whole number" if type(default) is int else f"a {type(default).__name__}"
            raise ValueError(f"{where}: {name}={value!r}, expected {expected}")
    try:
        return Char2SubwordConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


_BUILD = {
    MASKED_LM: Char2SubwordForMaskedLM,
    **label_heads(BertForLabels, encoder=Char2SubwordBert),
    ENCODER: Char2SubwordBert,
}


def _family(backbone: Layout) -> Char2SubwordLayout:
    """Returns the layout of one kind: every head of the transformer, with the module in front of it."""
    prefix = backbone.prefix
    shared = encoder_rules(prefix, "bert/", True) + module_rules(MODULE_PREFIX, "char2subword/")
    outer = {head: [r for r in backbone.heads[head].rules if not r.theirs.startswith(prefix)] for head in _BUILD}
    constants = [Leave(f"{prefix}embeddings.{name}", "a constant") for name in ("position_ids", "token_type_ids")]
    heads = {}
    for head, build in _BUILD.items():
        theirs, named = backbone.heads[head], {rule.theirs for rule in outer[head]}
        others = {rule.theirs for rules in outer.values() for rule in rules} - named
        leave = constants + [Leave(name, "of another head") for name in sorted(others)]
        leave += [left for left in theirs.leave if left.same_as]
        # BERT's sequence classification reads the pooler of its pre-training; RoBERTa's has a pooler of its own.
        fields = dict(theirs.fields) if head == SEQUENCE_CLASSIFICATION else {}
        sign = "" if head == ENCODER else theirs.sign
        heads[head] = Head(theirs.architecture, sign, fields, build, shared + outer[head], leave, labels=theirs.labels)
    return Char2SubwordLayout(
        name=NAME,
        model_types={NAME: "Char2Subword"},
        prefix=prefix,
        outside=(*backbone.outside, MODULE_PREFIX),
        config=Char2SubwordBertConfig,
        keys=backbone.keys,
        activation=backbone.activation,
        activations=backbone.activations,
        fixed=backbone.fixed,
        heads=heads,
        derive=backbone.derive,
        smallest=smallest_inputs,
        backbone=backbone,
    )


KINDS = {backbone.name: _family(backbone) for backbone in (BERT_LAYOUT, ROBERTA_LAYOUT, ROFORMER_LAYOUT)}
