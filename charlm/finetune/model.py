"""A task's head on a pre-trained model: whatever the source holds is taken over, the rest begins at random."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from charlm.convert import char2subword, charbert
from charlm.convert.families import CONVERTERS
from charlm.convert.model import Target
from charlm.convert.rules import group
from charlm.models.bert import Bert
from charlm.models.char2subword_bert import Char2SubwordBertConfig
from charlm.models.charbert import CharBert, CharBertConfig
from charlm.models.gpt2 import GPT2
from charlm.models.hlm import HLM
from charlm.models.xrayemb_lm import XRayEmbBertConfig, XRayEmbGPT2Config
from charlm.pretrained import Pretrained
from charlm.state import on_processor, stream_key
from charlm.tasks.base import Task
from charlm.units.base import Units, units_of

log = logging.getLogger("charlm")

READ = {"token_classification": "all", "sequence_classification": "first", "question_answering": "all"}


def with_task(source: Pretrained, task: Task[Any, Any], label_head: str = "") -> tuple[Pretrained, Target]:
    """Returns a model of the source's shape with the task's head, parameters left out, and its description.

    Args:
      label_head: "paper" or "reference", of an HLM; "": "paper". Other families have one head each.

    Raises:
      ValueError: when the family has no such head.
    """
    converter = CONVERTERS[source.family]
    if task.head not in converter.heads:
        raise ValueError(f"a {source.family} has no head for {task.name}; it has {', '.join(converter.heads)}")
    metadata = converter.with_head(source.metadata, task.head) | {"labels": task.outputs, "task": task.settings()}
    if source.family == "hlm":
        metadata["label_head"] = label_head or "paper"
    elif label_head:
        raise ValueError(
            f"model.label_head={label_head}: a {source.family} has one head for {task.name}, leave it empty"
        )
    target = converter.target(metadata, str(source.folder))
    model = dataclasses.replace(
        source, model=target.module, params=None, config=target.config, head=task.head, metadata=metadata
    )
    return model, target


def units_for(model: Pretrained, longest: int = 0) -> Units:
    """Returns the text side of a model with a task's head."""
    reads_characters = (
        model.family == "hlm" and model.metadata.get("label_head") != "paper" and model.config.head_layers > 0
    )
    return units_of(model, longest, READ[model.head] if reads_characters else "none")


def first_params(source: Pretrained, model: Pretrained, target: Target, seed: int) -> Any:
    """Returns the parameters that fine-tuning begins with: the source's, and random ones where it has none.

    The output layer is taken over only where the source was fine-tuned for the same task and labels.
    """
    fresh = traverse_util.flatten_dict(target.params, sep="/")
    held = held_params(source)
    same_task = source.metadata.get("task", {}).get("labels") == model.metadata["task"].get("labels") and (
        source.head == model.head
    )
    taken = {}
    for name, value in fresh.items():
        known = held.get(name)
        if known is not None and known.shape == value.shape and (same_task or not name.startswith("label/")):
            taken[name] = known
    new = [name for name in fresh if name not in taken]
    if not taken:
        raise ValueError(f"init_from: {source.folder} holds nothing of this model")
    drawn = _random(target, seed, new)
    log.info(
        "%s: %d of %d arrays taken over; new: %s",
        source.folder, len(taken), len(fresh), ", ".join(group(new)) if new else "none",
    )  # fmt: skip
    return traverse_util.unflatten_dict({name: (taken | drawn)[name] for name in fresh}, sep="/")


def held_params(source: Pretrained) -> dict[str, Any]:
    """Returns a model's parameters by name; an encoder alone has the names that it has under a head."""
    alone = {Bert: "bert/", GPT2: "gpt2/", HLM: "hlm/", CharBert: "charbert/"}.get(type(source.model), "")
    return {alone + name: value for name, value in traverse_util.flatten_dict(source.params, sep="/").items()}


def _random(target: Target, seed: int, names: list[str]) -> dict[str, Any]:
    """Returns random parameters of a model, on the host: only those named, since the generators of all take seconds."""

    def draw() -> dict[str, Any]:
        params = target.module.init(stream_key(seed, "init"), _sample(target))["params"]
        assert jax.tree.structure(params) == jax.tree.structure(target.params)
        flat = traverse_util.flatten_dict(params, sep="/")
        return {name: flat[name] for name in names}

    return jax.device_get(on_processor(draw))


def _sample(target: Target) -> Any:
    """Returns the smallest input of a model."""
    if isinstance(target.config, CharBertConfig):
        return charbert.smallest_batch()
    if isinstance(target.config, Char2SubwordBertConfig | XRayEmbBertConfig | XRayEmbGPT2Config):
        return char2subword.smallest_batch()
    if hasattr(target.config, "char_slots"):
        from charlm.batch import reshape_batch

        word = np.ones((1, 1, target.config.char_slots), np.uint16)
        return reshape_batch(word, word)
    return np.zeros((1, 1), np.int32)
