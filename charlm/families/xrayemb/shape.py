"""Reads the model that a run of XRayEmb starts from, and makes the model that the config describes.

The objective calls it at the start of a run; open it when a run takes the wrong sizes from its backbone.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import ml_collections

from charlm.convert.heads import CAUSAL_LM, MASKED_LM
from charlm.core import checkpoint as checkpoints
from charlm.core.types import JsonObject
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.stored import checkpoint_of, metadata_of
from charlm.families.subword.bert import Bert
from charlm.families.subword.gpt2 import GPT2
from charlm.families.subword.kinds import BACKBONE_KIND, BERT_KINDS, SUBWORDS
from charlm.families.subword.start import (
    BACKBONE_OPEN,
    BACKBONE_SHAPE,
    check_kind,
    check_room,
    sizes_of,
)
from charlm.families.xrayemb.chars import XRAY_CHARS_FILE, XRayChars
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import encoder_config
from charlm.families.xrayemb.model import (
    XRayEmbBertConfig,
    XRayEmbConfig,
    XRayEmbForCausalLM,
    XRayEmbForMaskedLM,
    XRayEmbGPT2Config,
)
from charlm.families.xrayemb.text import BACKBONES, XRayData

NAME = "xrayemb"
# The config fields in which the released backbones differ.
BACKBONE_KINDS = BERT_KINDS | {"gpt2": {"max_positions": 1024, "epsilon": 1e-5}}
BACKBONE_ACTIVATIONS = {**dict.fromkeys(BERT_KINDS, "gelu"), "gpt2": "gelu_new"}
ENCODER_KEYS = {  # key of the config: field of the encoder's config
    "encoder": "kind", "char_embedding": "char_embedding", "char_hidden": "hidden", "encoder_layers": "layers",
    "projections": "projections",
}  # fmt: skip
ENCODER_READS = {"char_embedding": ("conv", "lstm"), "encoder_layers": ("lstm", "transformer")}  # others: all kinds
UNSET = ("char_hidden", "encoder_layers", "projections")  # 0: the authors' size
GENERATOR_KEYS = {"char_embedding": "char_embedding", "generator_hidden": "hidden", "generator_layers": "layers"}
BACKBONE_FIELDS = ("hidden", "heads", "layers", "ffn", "dropout", "attention_dropout", "initializer", "remat",
          "attention_kernel", "scan_layers")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class XRayStart:
    """The model that a run starts from: a backbone, or a checkpoint of an XRayEmb.

    Attributes:
      files: folder of the tokenizer.
      pretrained: the backbone; None: the run starts from an XRayEmb.
      checkpoint: checkpoint of the XRayEmb.
      chars: its characters.
      stored: the fields of its config, and the family of its backbone as "backbone".
    """

    files: Path
    pretrained: Pretrained | None = None
    checkpoint: Path | None = None
    chars: XRayChars | None = None
    stored: JsonObject | None = None

    @property
    def backbone(self) -> str:
        """The family of the backbone."""
        if self.pretrained is not None:
            return self.pretrained.family
        assert self.stored is not None  # either `pretrained` or `stored` is set
        return self.stored["backbone"]


def read_start(source: str) -> XRayStart:
    """Returns the model that `init_from` names.

    Raises:
      ValueError: there is no model, it is of another family, or it is an XRayEmb without generator or language model.
    """
    if (checkpoint := checkpoint_of(source, NAME)) is not None:
        stored = metadata_of(checkpoint, (NAME,))
        if stored["head"] not in (MASKED_LM, CAUSAL_LM) or stored["model"]["generator"] is None:
            has = "and no generator" if stored["model"]["generator"] is None else "and a generator"
            raise ValueError(
                f"init_from: {checkpoint} is an XRayEmb with the head {stored['head']} {has}; second pre-training goes "
                f"on from one with the head of a language model and a generator"
            )
        files = checkpoints.files_of(checkpoint)
        chars = XRayChars.from_dict(stored["xray_chars"], str(checkpoint))
        return XRayStart(files, None, checkpoint, chars, stored["model"] | {"backbone": stored["backbone"]})
    found = from_pretrained(source)
    if found.family not in BACKBONES:
        raise ValueError(
            f"init_from: {source} is a {found.family}; XRayEmb starts from {', '.join(BACKBONES)}, xrayemb"
        )
    return XRayStart(found.folder, found)


def stored_chars(files: Path) -> XRayChars:
    """Returns the characters in a checkpoint's folder."""
    return XRayChars.load(files / XRAY_CHARS_FILE)


def resolve(config: ml_collections.ConfigDict, data: XRayData, start: XRayStart | None) -> JsonObject:
    """Returns the values of the keys `model.*` in `BACKBONE_OPEN`, from the config or else from the start of the run.

    Raises:
      ValueError: the model that the run starts from has another shape than the config, or too few rows or positions.
    """
    model = config.model
    if start is None or start.pretrained is None:
        kind = model.backbone or (start.backbone if start else "") or data.tokenizer.family or "bert"
        found = {"backbone": kind, "vocab_size": data.tokenizer.size, "activation": BACKBONE_ACTIVATIONS[kind]}
        found |= {name: BACKBONE_KINDS[kind][name] for name in ("max_positions", "epsilon")}
        if start is not None and start.stored is not None:
            check_kind(start.stored["backbone"], start.stored, start.checkpoint, "XRayEmb")
            found |= {name: start.stored[name] for name in BACKBONE_OPEN}
            _check_said(config, start.stored | _of_parts(config, start.stored))
    else:
        found = sizes_of(start.pretrained, "XRayEmb")
        theirs = {name: getattr(start.pretrained.config, name) for name in BACKBONE_SHAPE}
        _check_said(config, theirs | found)
    resolved = {name: model[name] or found[name] for name in BACKBONE_OPEN}
    if data.tokenizer.family not in (None, SUBWORDS[resolved["backbone"]]):
        raise ValueError(
            f"text.tokenizer: subwords of the family {data.tokenizer.family}, but model.backbone={resolved['backbone']}"
        )
    check_room(config, data.tokenizer.size, resolved)
    return resolved


def _of_parts(config: ml_collections.ConfigDict, stored: JsonObject) -> JsonObject:
    """Returns the keys that a config must set to describe the encoder and generator of a stored XRayEmb.

    It leaves out keys that this kind of encoder does not read, and unset keys whose default is the stored value.

    Raises:
      ValueError: the encoder has sizes for which there are no keys.
    """
    model, encoder, generator = config.model, stored["encoder"], stored["generator"]
    kind = encoder["kind"]
    usual = encoder_config(kind, output=model.hidden)
    if kind == "transformer":
        for name in ("heads", "ffn", "max_positions"):
            if encoder[name] != getattr(usual, name):
                raise ValueError(
                    f"init_from={config.init_from}: its encoder has {name}={encoder[name]}, and there is no key for "
                    f"that; second pre-training has {getattr(usual, name)}"
                )
    elif encoder["char_embedding"] != generator["char_embedding"]:
        raise ValueError(
            f"init_from={config.init_from}: char_embedding={encoder['char_embedding']} in its encoder and "
            f"{generator['char_embedding']} in its generator; second pre-training has one key for both"
        )
    said = {name: encoder[field] for name, field in ENCODER_KEYS.items() if kind in ENCODER_READS.get(name, (kind,))}
    said = {
        name: value
        for name, value in said.items()
        if model[name] or name not in UNSET or value != getattr(usual, ENCODER_KEYS[name])
    }
    return said | {name: generator[field] for name, field in GENERATOR_KEYS.items()}


def _check_said(config: ml_collections.ConfigDict, said: JsonObject) -> None:
    """Checks that a config has the shape of the model it starts from; ValueError naming all keys that it must set.

    Args:
      said: the shape of that model, by keys of the config; other keys are not read.
    """
    own = config.model
    differing = [
        name
        for name in dict.fromkeys((*BACKBONE_SHAPE, *BACKBONE_OPEN, *ENCODER_KEYS, *GENERATOR_KEYS))
        if name in said and own[name] != said[name] and (own[name] or name not in BACKBONE_OPEN)
    ]
    if differing:
        ours = ", ".join(f"model.{name}={own[name]}" for name in differing)
        theirs = " ".join(f"--config.model.{name}={said[name]}" for name in differing)
        raise ValueError(f"{ours}, but init_from={config.init_from} is another model; set {theirs}")


def model_config(config: ml_collections.ConfigDict, data: XRayData, resolved: JsonObject) -> XRayEmbConfig:
    """Returns the shape of backbone, encoder and generator.

    Args:
      resolved: the result of `resolve`.
    """
    model, dtype = config.model, jnp.dtype(config.model.dtype)
    characters = {
        "char_vocab_size": data.chars.size,
        "char_embedding": model.char_embedding,
        "char_slots": model.char_slots,
        "dtype": dtype,
    }
    unset = {"hidden": model.char_hidden, "layers": model.encoder_layers, "projections": model.projections}
    own = {name: value for name, value in unset.items() if value}
    own |= {"dropout": model.char_dropout} if model.char_dropout >= 0 else {}
    own |= {"initializer": model.char_initializer} if model.char_initializer else {}
    encoder = encoder_config(model.encoder, output=model.hidden, scan_layers=model.scan_layers, **characters, **own)
    layers = {"hidden": model.generator_hidden, "layers": model.generator_layers}
    generator = XRDecoderConfig(vector=model.hidden, **characters, **layers)
    fields = {name: model[name] for name in BACKBONE_FIELDS} | {
        n: resolved[n] for n in BACKBONE_OPEN if n != "backbone"
    }
    fields |= {"dtype": dtype, "encoder": encoder, "generator": generator, "policy": config.policy.infer}
    kind = resolved["backbone"]
    if kind == "gpt2":
        return XRayEmbGPT2Config(**fields, embed_dropout=model.dropout)
    return XRayEmbBertConfig(**fields, pooler=False, **{name: BACKBONE_KINDS[kind][name] for name in BACKBONE_KIND})


def make_model(shape: XRayEmbConfig) -> XRayEmbForMaskedLM | XRayEmbForCausalLM:
    """Returns the model of a shape, with the head of a language model."""
    return XRayEmbForCausalLM(shape) if isinstance(shape, XRayEmbGPT2Config) else XRayEmbForMaskedLM(shape)


def scope_of(shape: XRayEmbConfig) -> str:
    """Returns the name of the backbone's parameters in those of a model."""
    return GPT2.scope_name if isinstance(shape, XRayEmbGPT2Config) else Bert.scope_name


def head_of(shape: XRayEmbConfig) -> str:
    """Returns the name of the head that `make_model` gives a shape, as checkpoints store it."""
    return CAUSAL_LM if isinstance(shape, XRayEmbGPT2Config) else MASKED_LM
