"""Puts a task's head on a pre-trained model: takes over the source's parameters, and initialises the rest randomly.

Open it to see which parameters a fine-tuned model takes over and which begin at random.
"""

from __future__ import annotations

import dataclasses
import logging

import jax
from flax import traverse_util

from charlm.convert.heads import READ_BY, check_label_head
from charlm.convert.model import Target
from charlm.convert.rules import group
from charlm.core.state import on_processor, stream_key
from charlm.core.trees import flat
from charlm.core.types import Array, Params, Tree
from charlm.families.family import family
from charlm.families.lookup import converter_of
from charlm.families.pretrained import Pretrained
from charlm.tasks.base import AnyTask

log = logging.getLogger("charlm")


def with_task(source: Pretrained, task: AnyTask, label_head: str = "") -> tuple[Pretrained, Target]:
    """Returns a model of the source's shape with the task's head but without parameters, and its `Target`.

    Args:
      label_head: one of the family's variants of the head for labels (`Family.label_heads`); "": the first of them.

    Raises:
      ValueError: the family has no such head, or it is none for the task.
    """
    converter = converter_of(source.family)
    if task.head not in converter.heads:
        raise ValueError(f"a {source.family} has no head for {task.name}; it has {', '.join(converter.heads)}")
    metadata = converter.with_head(source.metadata, task.head) | {"labels": task.outputs, "task": task.settings()}
    variants = family(source.family).label_heads
    if label_head and label_head not in variants:
        has = f"the heads {', '.join(variants)}" if variants else f"one head for {task.name}, leave it empty"
        raise ValueError(
            f"model.label_head={label_head}: a {source.family} has {has}; if a variant has set it, "
            "--config.model.label_head= leaves it empty"
        )
    if variants:
        if label_head in READ_BY:
            check_label_head(label_head, task.head, "model.", variants)
        metadata = converter.with_label_head(metadata, label_head or variants[0])
    target = converter.target(metadata, str(source.folder))
    model = dataclasses.replace(
        source, model=target.module, params=None, config=target.config, head=task.head, metadata=metadata
    )
    return model, target


def first_params(source: Pretrained, model: Pretrained, target: Target, seed: int) -> Params:
    """Returns the initial parameters of fine-tuning: those of the source, and random ones where it has none.

    The output layer is taken over only if the source was fine-tuned for the same task and labels.
    """
    fresh = flat(target.params)
    held = held_params(source)
    kind = lambda one: (one.head, *(one.metadata.get("task", {}).get(key) for key in ("name", "labels")))
    same_task = kind(source) == kind(model)
    taken = {}
    for name, value in fresh.items():
        known = held.get(name)
        if known is not None and known.shape == value.shape and (same_task or not name.startswith("label/")):
            taken[name] = known
    new = [name for name in fresh if name not in taken]
    if not taken:
        raise ValueError(f"init_from: {source.folder} holds nothing of this model")
    drawn = _random(target, converter_of(source.family).smallest_input(target.config), seed, new)
    log.info(
        "%d of %d arrays of the model to start from are taken over; new: %s",
        len(taken), len(fresh), ", ".join(group(new)) if new else "none",
    )  # fmt: skip
    return traverse_util.unflatten_dict({name: (taken | drawn)[name] for name in fresh}, sep="/")


def held_params(source: Pretrained) -> dict[str, Tree]:
    """Returns a model's parameters by name; those of an encoder without head get the names they have under a head."""
    alone = converter_of(source.family).scope_alone(source.model)
    return {alone + name: value for name, value in flat(source.params).items()}


def _random(target: Target, smallest: Tree, seed: int, names: list[str]) -> dict[str, Array]:
    """Returns random values, on the host, of only the named parameters: compiling the generators of all is slow."""

    def draw() -> dict[str, Array]:
        params = target.module.init(stream_key(seed, "init"), smallest)["params"]
        assert jax.tree.structure(params) == jax.tree.structure(target.params)
        drawn = flat(params)
        return {name: drawn[name] for name in names}

    return jax.device_get(on_processor(draw))
