"""Builds the shape of a CharBERT from a run's config and from the model, such as a BERT, that the run starts from.

The objective calls it at the start of a run; open it when a run takes the wrong sizes from its backbone.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import jax.numpy as jnp
import ml_collections

from charlm.convert.files import find_state
from charlm.core import checkpoint as checkpoints
from charlm.core.types import JsonObject
from charlm.families.charbert.heads import AdvBertForMaskedLM, CharBertForMaskedLM
from charlm.families.charbert.model import CharBertConfig
from charlm.families.charbert.text import SubwordData
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.stored import checkpoint_of, metadata_of
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.kinds import BERT_KINDS, kind_of
from charlm.families.subword.start import BACKBONE_OPEN, BACKBONE_SHAPE, check_room, sizes_of
from charlm.text.symbols import SymbolVocab

FUSION_KEYS = ("fusion", "shared_fusion", "windows")  # of the section `model`: they decide the fusions' parameters


def check_fusion(config: ml_collections.ConfigDict) -> None:
    """Checks that the CharBERT that `init_from` names has fusions as the config says; ValueError with what to set."""
    stored = metadata_of(checkpoints.find(config.init_from, key="init_from"), ("charbert",))["model"]
    theirs = CharBertConfig(**{name: stored[name] for name in FUSION_KEYS if name in stored})
    ours = CharBertConfig(**{name: config.model[name] for name in FUSION_KEYS})
    same = all(getattr(ours, name) == getattr(theirs, name) for name in ("fusion", "windows", "one_fusion"))
    if same or ours.fusion == theirs.fusion == "none":
        return
    wanted = " ".join(f"--config.model.{name}={shlex.quote(str(getattr(theirs, name)))}" for name in FUSION_KEYS)
    raise ValueError(f"init_from={config.init_from} has other fusions of its channels: set {wanted}")


def read_backbone(source: str) -> Pretrained | None:
    """Returns the BERT, RoBERTa or RoFormer that `init_from` names; None when it names a checkpoint of a CharBERT.

    Raises:
      ValueError: there is no model, it is of another family, or it is a CharBERT that has not been imported.
    """
    if checkpoint_of(source, "charbert") is not None:
        return None
    found = from_pretrained(source)
    if found.family == "charbert":
        raise ValueError(f"init_from: {source} holds a CharBERT of PyTorch: import it first, see charlm.convert")
    if found.family not in BERT_KINDS:
        raise ValueError(
            f"init_from: {source} is a {found.family}; CharBERT starts from {', '.join(BERT_KINDS)} or charbert"
        )
    return found


def vocab_of(source: str) -> tuple[Path, SymbolVocab | None]:
    """Returns the folder with the vocabularies of the model that `init_from` names, and a CharBERT's characters.

    The characters are None for other models.

    Raises:
      ValueError: when `init_from` names no model.
    """
    try:
        checkpoint = checkpoints.find(source, key="init_from")
    except ValueError as no_checkpoint:
        try:
            return find_state(source).parent, None
        except ValueError:
            raise no_checkpoint from None
    stored = metadata_of(checkpoint, ("charbert", *BERT_KINDS))
    symbols = SymbolVocab.from_dict(stored["symbols"], str(checkpoint)) if "symbols" in stored else None
    return checkpoints.files_of(checkpoint), symbols


def stored_shape(source: str) -> JsonObject:
    """Returns the values of the keys `model.*` in `BACKBONE_OPEN` for the CharBERT that `init_from` names."""
    checkpoint = checkpoints.find(source, key="init_from")
    stored = metadata_of(checkpoint, ("charbert",))["model"]
    kind, offset = kind_of(stored), stored["position_offset"]
    if offset != (known := BERT_KINDS[kind]["position_offset"]):
        raise ValueError(
            f"init_from={source}: its positions begin at {offset}, which no backbone has; those of a {kind} at {known}"
        )
    return {"backbone": kind} | {name: stored[name] for name in BACKBONE_OPEN if name != "backbone"}


def resolve(
    config: ml_collections.ConfigDict,
    data: SubwordData,
    backbone: Pretrained | None = None,
    stored: JsonObject | None = None,
) -> JsonObject:
    """Returns the values of the keys `model.*` in `BACKBONE_OPEN`: as the config sets them, else derived.

    Args:
      backbone: the BERT, RoBERTa or RoFormer that the run starts from.
      stored: `stored_shape` of the CharBERT it starts from.

    Raises:
      ValueError: when the backbone has another shape than the config states, or the model has too few rows for the
        subwords or positions.
    """
    model = config.model
    if stored is not None:
        found = stored
        if model.backbone not in ("", found["backbone"]):
            raise ValueError(
                f"model.backbone={model.backbone}, but init_from={config.init_from} has {found['backbone']}"
            )
    elif backbone is None:
        kind = model.backbone or "bert"
        found = {"backbone": kind, "vocab_size": data.tokenizer.size, "activation": "gelu"}
        found |= {name: BERT_KINDS[kind][name] for name in ("max_positions", "epsilon")}
    else:
        found = sizes_of(backbone, "CharBERT")
        for name in (*BACKBONE_SHAPE, *BACKBONE_OPEN):
            said = found.get(name, getattr(backbone.config, name, None))
            if model[name] != said and (model[name] or name in BACKBONE_SHAPE):
                raise ValueError(f"model.{name}={model[name]}, but init_from={config.init_from} has {said}")
    resolved = {name: model[name] or found[name] for name in BACKBONE_OPEN}
    check_room(config, data.tokenizer.size, resolved)
    return resolved


def model_config(config: ml_collections.ConfigDict, data: SubwordData, resolved: JsonObject) -> BertConfig:
    """Returns the shape of the model: a `CharBertConfig`, or without a character channel a `BertConfig`.

    Args:
      resolved: the result of `resolve`.
    """
    own = config.model.to_dict() | resolved
    char_channel, kind = own.pop("char_channel"), own.pop("backbone")
    fields = BERT_KINDS[kind] | own | {"dtype": jnp.dtype(config.model.dtype)}
    if char_channel:
        return CharBertConfig(**fields, char_vocab_size=data.chars.size, word_vocab_size=data.terms.size)
    for name in ("char_hidden", "char_encoder", *FUSION_KEYS, "nlm", "shared_head_norm", "compat_reference"):
        del fields[name]
    return BertConfig(**fields, pooler=False)


def make_model(shape: BertConfig) -> CharBertForMaskedLM | AdvBertForMaskedLM:
    """Returns the model of the given shape, with its pre-training heads."""
    return CharBertForMaskedLM(shape) if isinstance(shape, CharBertConfig) else AdvBertForMaskedLM(shape)
