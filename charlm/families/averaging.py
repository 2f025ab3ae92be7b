"""Averages the weights of models that were fine-tuned alike: `charlm convert average`.

Runs of the same model that differ in seed or order end in one basin of the loss, and the mean of their weights is often
better than each of them, at the cost of one (Wortsman et al., ICML 2022, "uniform soup"). Open it to change
what may be averaged.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from charlm.core.types import Json
from charlm.families.pretrained import Pretrained, from_pretrained


def average(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> str:
    """Writes the mean of several models' weights as a checkpoint; returns a line about it.

    All but the weights is that of the first model: vocabulary, labels, the config of its run.

    Args:
      paths: what `charlm.from_pretrained` reads, two models or more.
      output: the folder to create.

    Raises:
      ValueError: there are fewer than two models, one cannot be read, they are not of the same family, head, sizes and
        labels, or the folder exists or cannot be written.
    """
    if len(paths) < 2:
        raise ValueError(f"{len(paths)} model: an average takes two or more")
    first = from_pretrained(paths[0])
    total: Any = jax.tree.map(lambda x: np.asarray(x, np.float64), first.params)  # a tree of arrays
    for path in paths[1:]:
        other = from_pretrained(path)
        check_alike(paths[0], first, path, other)
        total = jax.tree.map(lambda x, y: x + np.asarray(y, np.float64), total, other.params)
    params = jax.tree.map(lambda x, y: (x / len(paths)).astype(np.asarray(y).dtype), total, first.params)
    dataclasses.replace(first, params=params).save_pretrained(output)
    return f"{output}: {first.title}, the mean of {len(paths)} models"


def check_alike(
    path: str | os.PathLike[str], first: Pretrained, other_path: str | os.PathLike[str], other: Pretrained
) -> None:
    """Raises ValueError, naming both models, unless their weights mean the same."""
    pair = f"{path} and {other_path} have no average"
    for what, ours, theirs in (
        ("families", first.family, other.family),
        ("heads", first.head, other.head),
        ("labels", _labels(first), _labels(other)),
    ):
        if ours != theirs:
            raise ValueError(f"{pair}: their {what} are {ours} and {theirs}")
    if _vocabulary(first) != _vocabulary(other):
        raise ValueError(f"{pair}: their vocabularies differ")
    shapes, others = _shapes(first), _shapes(other)
    for name in sorted({*shapes, *others}):
        if shapes.get(name) != others.get(name):
            ours, theirs = (found.get(name, "not there") for found in (shapes, others))
            raise ValueError(f"{pair}: {name} is {ours} in the first and {theirs} in the other")
    if first.config != other.config:
        raise ValueError(f"{pair}: the configs of the models differ")


def _shapes(model: Pretrained) -> dict[str, tuple[int, ...]]:
    flat, _ = jax.tree_util.tree_flatten_with_path(model.params)
    return {jax.tree_util.keystr(at, simple=True, separator="/"): np.shape(leaf) for at, leaf in flat}


def _vocabulary(model: Pretrained) -> list[Json | bytes]:
    """Returns what numbers the characters and pieces that a model reads."""
    files = [model.folder / name for name in ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt")]
    stored = [model.metadata.get(name) for name in ("char_vocab", "pieces")]
    return [*stored, *(path.read_bytes() for path in files if path.is_file())]


def _labels(model: Pretrained) -> Json:
    return (model.metadata.get("task") or {}).get("labels", model.metadata.get("labels"))
