"""Imported BERT, RoBERTa and GPT-2 as Flax models: what `python -m charlm.convert import` wrote, ready to apply."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import flax.linen as nn

from charlm import checkpoint as checkpoints
from charlm.convert.hf import FAMILIES, load_checkpoint


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model and its parameters: `model.apply({"params": params}, ids_BL, mask_BL)`.

    Attributes:
      config: BertConfig or GPT2Config.
      family: "bert", "roberta" or "gpt2". head: which model of it; see `charlm.convert`.
      folder: of the checkpoint; the tokenizer's files lie there too.
    """

    model: nn.Module
    params: Any
    config: Any
    family: str
    head: str
    folder: Path


def load_pretrained(checkpoint: str, **changes: Any) -> Pretrained:
    """Returns an imported model on the first device.

    Args:
      checkpoint: folder that an import made. changes: fields of the config that need no other parameters: dtype, remat,
        dropout and the like.

    Raises:
      ValueError: when there is no checkpoint of such a model, or it does not fit the changed config.
    """
    metadata = checkpoints.read_metadata(checkpoints.find(checkpoint), tuple(FAMILIES))
    family = FAMILIES[metadata["family"]]
    folder, config, metadata = load_checkpoint(family, checkpoint)
    known = [field.name for field in dataclasses.fields(config)]
    if unknown := sorted(changes.keys() - set(known)):
        raise ValueError(f"{type(config).__name__} has no {', '.join(unknown)}; it has {', '.join(known)}")
    config = dataclasses.replace(config, **changes)
    model, abstract, _ = family.target(config, metadata["head"])
    params = checkpoints.load_params(folder, checkpoints.on_one_device(abstract))
    return Pretrained(model, params, config, family.name, metadata["head"], folder)
