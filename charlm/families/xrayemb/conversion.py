"""Converts whole XRayEmb models on BERT, RoBERTa, RoFormer or GPT-2 to our checkpoints and back.

`python -m charlm.convert` and `from_pretrained` use it. Open it when a folder is not recognised, or to change what its
config holds. The released code saves the state of its model without a config. We keep its names of tensors: the
backbone's are those of transformers, the encoder's begin with `tdtemb.vectorizer.` and the generator's with `tdtgen.`
(`charlm.families.xrayemb.tensors`). The config beside the tensors is ours, with `model_type` "xrayemb".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn

from charlm.convert.abstract import abstract_params
from charlm.convert.files import find_state, open_state
from charlm.convert.heads import (
    CAUSAL_LM,
    ENCODER,
    FINE_TUNED,
    MASKED_LM,
)
from charlm.convert.model import Converter, Model, Names, Target
from charlm.convert.rules import Leave, Rule, build_table, import_state
from charlm.core.durable import write_json
from charlm.core.reading import read_object
from charlm.core.types import Json, JsonObject, ModelConfig, Params
from charlm.families.labels import label_heads
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.model import smallest_batch, smallest_inputs
from charlm.families.subword.bert_tensors import BERT_LAYOUT, ROBERTA_LAYOUT, ROFORMER_LAYOUT
from charlm.families.subword.conversion import CONFIG_FILE, copy_tokenizer
from charlm.families.subword.gpt2_tensors import GPT2_LAYOUT
from charlm.families.subword.label_heads import check_exportable, label_head_of, varied, with_label_head
from charlm.families.subword.labels import BertForLabels, GPT2ForLabels
from charlm.families.subword.layout import LABELS_MAX, config_from_dict, config_to_dict
from charlm.families.xrayemb import FAMILY
from charlm.families.xrayemb import model as xrayemb_lm
from charlm.families.xrayemb.chars import XRAY_CHARS_FILE, XRayChars
from charlm.families.xrayemb.importing import read_states
from charlm.families.xrayemb.tensors import ENCODER as ENCODER_PREFIX
from charlm.families.xrayemb.tensors import GENERATOR as GENERATOR_PREFIX
from charlm.families.xrayemb.tensors import decoder_rules, encoder_table, is_known, is_released, prefix_of, rules_of
from charlm.text.subwords import SubwordTokenizer

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

NAME = "xrayemb"
LAYOUTS = {layout.name: layout for layout in (BERT_LAYOUT, ROBERTA_LAYOUT, ROFORMER_LAYOUT, GPT2_LAYOUT)}
BACKBONE_MEANS = "the BERT, RoBERTa, RoFormer or GPT-2 that they go on"
METADATA_KEYS = ("backbone", "head", "labels", "model", "vocabularies")  # fields of our metadata that the config holds
_OF_LABELS = ("label", "transform", "lstm", "pooler")  # parameters of heads for labels, beside those of the encoder
# Fields of the parts that a change holds for.
IN_PARTS = {"encoder": ("dtype", "scan_layers", "dropout"), "generator": ("dtype",)}
_ON_BERT: dict[str, Callable[..., nn.Module]] = {
    MASKED_LM: xrayemb_lm.XRayEmbForMaskedLM,
    **label_heads(BertForLabels, encoder=xrayemb_lm.XRayEmbBert),
    ENCODER: xrayemb_lm.XRayEmbBert,
}
_ON_GPT2: dict[str, Callable[..., nn.Module]] = {
    CAUSAL_LM: xrayemb_lm.XRayEmbForCausalLM,
    **label_heads(GPT2ForLabels, encoder=xrayemb_lm.XRayEmbGPT2),
    ENCODER: xrayemb_lm.XRayEmbGPT2,
}


class XRayEmbConverter(Converter):
    """Converts XRayEmb on all its backbones. A plain backbone becomes an XRayEmb by training, not by an import."""

    name, title = FAMILY.name, FAMILY.title
    encoders = (xrayemb_lm.XRayEmbBert, xrayemb_lm.XRayEmbGPT2)
    own_options = FAMILY.option_checks()

    @property
    def heads(self) -> Sequence[str]:
        """The heads that a model of the family may have; the head of its language model depends on the backbone."""
        return (MASKED_LM, CAUSAL_LM, *FINE_TUNED, ENCODER)

    def head_of(self, metadata: Mapping[str, Json]) -> str:
        """Returns the head of a model with that metadata."""
        return metadata["head"]

    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the target of a model with that metadata; see `Converter.target`."""
        backbone, head, labels = metadata.get("backbone"), metadata.get("head"), metadata.get("labels", 0)
        if backbone not in LAYOUTS:
            raise ValueError(f"{where}: backbone={backbone!r} is not one of {', '.join(LAYOUTS)}")
        builds = _ON_GPT2 if backbone == "gpt2" else _ON_BERT
        if head not in builds:
            raise ValueError(f"{where}: head={head!r} is not one of {', '.join(builds)} on a {backbone}")
        if head in FINE_TUNED and not (isinstance(labels, int) and 1 <= labels <= LABELS_MAX):
            raise ValueError(f"{where}: {labels!r} labels, expected from 1 to {LABELS_MAX}")
        kind = xrayemb_lm.XRayEmbGPT2Config if backbone == "gpt2" else xrayemb_lm.XRayEmbBertConfig
        config = config_from_dict(kind, metadata["model"], where)
        build = builds[head]
        model = build(config, labels, label_head=label_head_of(metadata)) if head in FINE_TUNED else build(config)
        params = abstract_params(model, smallest_inputs)
        return Target(config, model, params, build_table(_rules(metadata)[0], params), ())

    def recognises(self, theirs: Mapping[str, Json]) -> bool:
        """Returns whether a config is of this family."""
        return theirs.get("model_type") == NAME

    def recognises_tensors(self, file: Path, theirs: Mapping[str, Json] | None) -> bool:
        """Returns whether the tensors are the released code's, which have no config and need a backbone."""
        return theirs is None and is_released(open_state(file))

    def smallest_input(self, config: ModelConfig) -> SpelledBatch:
        """Returns a batch with a text of one word."""
        return smallest_batch()

    def headless(self, config: ModelConfig, params: Params) -> tuple[nn.Module, Params]:
        """Returns the encoder inside a model with a head for labels; see `Converter.headless`."""
        own = xrayemb_lm.XRayEmbGPT2 if isinstance(config, xrayemb_lm.XRayEmbGPT2Config) else xrayemb_lm.XRayEmbBert
        return own(config), {name: value for name, value in params.items() if name not in _OF_LABELS}

    def open_tokenizer(self, folder: Path, lowercase: bool | None = None) -> SubwordTokenizer:
        """Returns the tokenizer in a model's folder; ValueError when there is none, or it is damaged."""
        return SubwordTokenizer.load(folder, lowercase=lowercase)

    def read(
        self,
        source: str,
        head: str = "",
        *,
        backbone: str = "",
        char_vocab: str = "",
        heads: int = 0,
        model_config: str = "",
    ) -> Model:
        """Reads a folder that `write_theirs` made: config, tensors, characters and tokenizer.

        With `backbone`, it reads a state dict of the released code instead; see `charlm.families.xrayemb.importing`.

        Args:
          head: the head to read; "": the head that the model holds.
          backbone: the model that the state dict of the released code belongs on.
          char_vocab, heads: only with `backbone`; see `read_states`.
          model_config: no model of this family needs one, so it is refused.

        Raises:
          ValueError: something is missing or does not fit.
        """
        if backbone:
            if model_config:
                raise ValueError(
                    "--model-config: not with --backbone; the tensors and the backbone's own config tell it"
                )
            model = read_states(self, source, backbone, char_vocab, heads)
            return self.cut(model, head) if head else model
        given = {"char_vocab": char_vocab, "heads": heads, "model_config": model_config}
        if named := [f"--{name.replace('_', '-')}" for name, value in given.items() if value]:
            raise ValueError(
                f"{', '.join(named)}: {CONFIG_FILE} and {XRAY_CHARS_FILE} tell this here; --char-vocab and --heads are "
                "for a state dict of the released code, which comes with --backbone"
            )
        file = find_state(source)
        if _of_released_code(file):
            raise ValueError(
                f"{file} holds XR-Enc and XR-Dec of XRayEmb, and no config lies beside it; for the tensors of the "
                f"released code name a --backbone of python -m charlm.convert import: {BACKBONE_MEANS}"
            )
        metadata = self._metadata(file)
        target = self.target(metadata, str(file))
        params = import_state(target.table, _rules(metadata)[1], dict(open_state(file, False)), str(file))
        model = Model(params, metadata, file.parent, file)
        return self.cut(model, head) if head else model

    def _metadata(self, file: Path) -> JsonObject:
        """Returns the metadata from the config and the characters beside a state."""
        path = file.parent / CONFIG_FILE
        theirs = read_object(path) if path.is_file() else {}
        if not self.recognises(theirs) or not theirs.keys() >= {"backbone", "head", "model"}:
            raise ValueError(
                f"{path}: expected backbone, head and model of an XRayEmb, as its export writes them; for "
                "the tensors of the released code name a --backbone"
            )
        if not (file.parent / XRAY_CHARS_FILE).is_file():
            raise ValueError(f"{file.parent} has no {XRAY_CHARS_FILE}: nobody knows which characters the ids stand for")
        chars = XRayChars.load(file.parent / XRAY_CHARS_FILE)
        named = {key: theirs[key] for key in METADATA_KEYS if key in theirs}
        return {"family": NAME, **named, "xray_chars": chars.to_dict()}

    def names(self, source: Path, head: str = "") -> Names:
        """Returns the contents of a file; see `Converter.names`. Files of the released code need no backbone here."""
        if _of_released_code(source):
            if head:
                raise ValueError(f"--head={head}: {source} holds no head; it is that of the backbone")
            state = open_state(source, True)
            held = "encoder and generator" if prefix_of(state, GENERATOR_PREFIX) else "encoder"
            return Names(state, held, *rules_of(state, str(source)))
        metadata = self._metadata(source)
        metadata = self.with_head(metadata, head) if head else metadata
        return Names(open_state(source, True), metadata["head"], *_rules(metadata))

    def with_head(self, metadata: Mapping[str, Json], head: str) -> JsonObject:
        """Returns the metadata of the same model with another head; models with a head for labels have no generator."""
        fields = {"generator": None} if head in FINE_TUNED else {}
        theirs = LAYOUTS[metadata["backbone"]].heads.get(head)
        fields |= theirs.fields if theirs is not None else {}
        kept = {key: value for key, value in metadata.items() if key != "label_head"}
        return {**kept, "head": head, "model": metadata["model"] | fields}

    def with_label_head(self, metadata: Mapping[str, Json], label_head: str) -> JsonObject:
        """Returns the metadata of the same model with that head for labels."""
        return with_label_head(metadata, label_head)

    def with_changes(self, metadata: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
        """Returns the metadata with fields of the config changed; those in `IN_PARTS` change in its parts, too."""
        fields = {**metadata["model"], **changes}
        for part, names in IN_PARTS.items():
            if fields.get(part) is not None:
                fields[part] = fields[part] | {name: changes[name] for name in names if name in changes}
        return {**metadata, "model": fields}

    def write_beside(self, model: Model, folder: Path) -> None:
        """Writes tokenizer and characters."""
        copy_tokenizer(model.folder, folder)
        XRayChars.from_dict(model.metadata["xray_chars"]).save(folder / XRAY_CHARS_FILE)

    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes config, tokenizer and characters; ValueError for a head for labels that only charlm has."""
        check_exportable(model.metadata, model.source)
        self.write_beside(model, folder)
        config = self.target(model.metadata, str(model.source)).config
        named = {key: model.metadata[key] for key in METADATA_KEYS if key in model.metadata}
        theirs = {"model_type": NAME, **named, "model": config_to_dict(config)}
        write_json(folder / CONFIG_FILE, theirs)


CONVERTER = XRayEmbConverter()


def chars_of(pretrained: Pretrained) -> XRayChars:
    """Returns the characters of an XRayEmb; ValueError for other families."""
    if "xray_chars" not in pretrained.metadata:
        raise ValueError(f"{pretrained.folder}: a model of the family {pretrained.family} has no characters of XRayEmb")
    return XRayChars.from_dict(pretrained.metadata["xray_chars"], str(pretrained.folder))


def _of_released_code(file: Path) -> bool:
    """Returns whether a state is of the released code: it has its names and no config of ours beside it."""
    path = file.parent / CONFIG_FILE
    theirs = read_object(path) if path.is_file() else {}
    return theirs.get("model_type") != NAME and is_known(open_state(file, True))


def _rules(metadata: Mapping[str, Json]) -> tuple[list[Rule], list[Leave]]:
    """Returns the rules of a model, and the tensors of its state that are not imported."""
    family, head, fields = varied(LAYOUTS[metadata["backbone"]], metadata, NAME), metadata["head"], metadata["model"]
    # GPT-2 without a head has the state of its language model, since the output layer of that is the table.
    theirs = family.heads.get(head) or family.heads[CAUSAL_LM]
    rules = theirs.rules
    if head == ENCODER and head in family.heads:  # the family's own rules for an encoder alone have no "bert/"
        rules = [rule for rule in family.heads[MASKED_LM].rules if rule.ours.startswith("bert/")]
    own, leave = encoder_table(fields["encoder"]["kind"], ENCODER_PREFIX, "xr_enc/")
    rules = [*rules, *own]
    if fields["generator"] is not None:
        rules += decoder_rules(GENERATOR_PREFIX, "xr_dec/")
    return rules, [*leave, *theirs.leave]
