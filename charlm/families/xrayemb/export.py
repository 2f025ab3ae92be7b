"""Exports the backbone of an XRayEmb alone for transformers, a BERT for instance, after second pre-training.

`python -m charlm.convert export --backbone-only` calls it; open it to change what is exported. This is the paper's
Scaffolding setup (Pinter et al., 2021, section 4.2): characters are read in second pre-training only, and afterwards
every word is read as its subwords. The exported model computes the same as the XRayEmb with the policy "none".
"""

from __future__ import annotations

from pathlib import Path

import jax

from charlm.convert.heads import CAUSAL_LM, ENCODER, FINE_TUNED
from charlm.convert.model import Model
from charlm.core.types import JsonObject, ModelConfig
from charlm.families.family import FAMILIES
from charlm.families.subword.bert_tensors import POOLED_ENCODER
from charlm.families.subword.conversion import CONFIG_FILE, SubwordConverter, say_ids
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb.conversion import LAYOUTS, XRayEmbConverter
from charlm.families.xrayemb.policies import get_policy, is_random, no_words
from charlm.text.subwords import SubwordTokenizer

PARTS = ("xr_enc", "xr_dec")  # parameters that are not the backbone's


def write_backbone(model: Model, folder: Path) -> int:
    """Writes the backbone with its head and tokenizer for transformers; returns the number of parameters written.

    A GPT-2 without a head is written as the language model, since the output layer of that is the table.

    Raises:
      ValueError: the head was trained on words read by characters, or the tokenizer does not fit.
    """
    plain = backbone_of(model)
    family = LAYOUTS[plain.metadata["family"]]
    tokenizer = SubwordTokenizer.load(model.folder)
    config = XRayEmbConverter().target(model.metadata, str(model.source)).config
    if getattr(config, "position_offset", 0) and tokenizer.special.pad != config.pad_id:
        raise ValueError(
            f"{model.source}: padding has the id {tokenizer.special.pad} in the tokenizer, {config.pad_id} in the model"
        )
    SubwordConverter(family, FAMILIES[family.name]).export(plain, folder)
    say_ids(folder / CONFIG_FILE, tokenizer)
    return len(jax.tree.leaves(plain.params))


def export_backbone(model: Model, folder: Path, value: bool) -> str:
    """Writes the backbone alone (`--backbone-only`); returns a description of it for the user.

    Raises:
      ValueError: as `write_backbone` raises it.
    """
    tensors = write_backbone(model, folder)
    backbone, head = model.metadata["backbone"], model.metadata["head"].replace("_", " ")
    return f"the {backbone} of an XRayEmb, {head}, {tensors} tensors"


def backbone_of(model: Model) -> Model:
    """Returns the backbone of an XRayEmb with its head, as a model of the backbone's family.

    Raises:
      ValueError: the head is for labels, and the model reads words by characters outside of training.
    """
    metadata = model.metadata
    config, head = XRayEmbConverter().target(metadata, str(model.source)).config, metadata["head"]
    if head in FINE_TUNED and (policy := _policy_in_use(config)):
        raise ValueError(
            f"--backbone-only: {model.source} reads words by characters (policy={policy}), and its head for labels "
            "expects that; a model fine-tuned with model.policy=none does not"
        )
    family = LAYOUTS[metadata["backbone"]]
    if head == ENCODER and family.name == "gpt2":
        head = CAUSAL_LM
    elif head == ENCODER and config.pooler:
        head = POOLED_ENCODER
    own = {name: value for name, value in config_to_dict(config).items() if name in family.config.__dataclass_fields__}
    kept: JsonObject = {"family": family.name, "model": own, "head": head}
    kept |= {name: metadata[name] for name in ("labels", "label_head", "task") if name in metadata}
    params = {name: value for name, value in model.params.items() if name not in PARTS}
    params = params["bert"] if head in (ENCODER, POOLED_ENCODER) else params
    return model._replace(params=params, metadata=kept)


def _policy_in_use(config: ModelConfig) -> str:
    """Returns the policy that selects words to read by characters outside of training; "": no words are selected."""
    if config.eval_policy:
        return "" if get_policy(config.eval_policy) is no_words else config.eval_policy
    policy = get_policy(config.policy)
    return "" if policy is no_words or is_random(policy) else config.policy
