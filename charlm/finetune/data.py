"""Reads the examples of a fine-tuning run, splits them into parts or folds, and adds noise to them.

Open it to change how development examples are set aside, how folds are made, or how noise is drawn for each epoch.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import ml_collections
import numpy as np

from charlm.data.files import matching_files
from charlm.tasks.base import AnyExample, AnyTask
from charlm.text.noise import Noise, Noiser
from charlm.text.noise.misspellings import Misspellings

log = logging.getLogger("charlm")


class Examples(NamedTuple):
    """Examples: `train` to learn from, `dev` to choose the best epoch by, `test` to predict at the end."""

    train: list[AnyExample]
    dev: list[AnyExample]
    test: list[AnyExample]


def check_files(config: ml_collections.ConfigDict) -> None:
    """Checks that the files of a config exist, before the model and other files are loaded, which is slow.

    Raises:
      ValueError: a file is missing; names the key and the file.
    """
    for key in ("train", "dev", "test"):
        _files(config.data[key], f"data.{key}")
    read_misspellings(config.data.misspellings)


def read_misspellings(path: str) -> Misspellings | None:
    """Returns the list at `path` (`data.misspellings`); None for an empty path; ValueError if it cannot be read."""
    try:
        return Misspellings.read(path) if path else None
    except OSError as error:
        raise ValueError(f"data.misspellings={path} cannot be read: {error.strerror}") from error


def read(config: ml_collections.ConfigDict, task: AnyTask) -> Examples:
    """Returns the examples that a config names, and sets the task's labels.

    Raises:
      ValueError: an example or its labels are wrong; names the key, file and line.
    """
    train = task.read(_files(config.data.train, "data.train"), training=True)
    if not train:
        raise ValueError(f"data.train: no example to learn from in {', '.join(config.data.train)}")
    task.learn_labels(train)
    dev = task.read(_files(config.data.dev, "data.dev"), training=False)
    test = task.read(_files(config.data.test, "data.test"), training=False, labelled=config.data.test_labels)
    for name, part in (("data.train", train), ("data.dev", dev), ("data.test", test)):
        _check_ids(part, name)
    for name, part in (("data.dev", dev), ("data.test", test if config.data.test_labels else [])):
        if part:
            task.check_labels(part, name)
    return Examples(train, dev, test)


def _check_ids(examples: Sequence[AnyExample], key: str) -> None:
    """Checks that ids are unique, because predictions are written under them."""
    places: dict[str, str] = {}
    for example in examples:
        if example.id in places:
            raise ValueError(f"{key}: {example.place} has the id {example.id!r} of {places[example.id]}")
        places[example.id] = example.place


def _files(specs: Sequence[str], key: str) -> list[str]:
    """Returns the files that match the specs; leaves specs of TFDS data sets ("tfds:...") unchanged."""
    found: list[str] = []
    for spec in specs:
        found += [spec] if spec.startswith("tfds:") else matching_files(spec, key)
    return found


def set_aside(examples: Examples, task: AnyTask, share: float, seed: int) -> Examples:
    """Returns the examples with a random part of `train` moved to `dev`, if `dev` is empty.

    Examples about one context stay together, and so do examples that the task scores together, such as the passages of
    a query.

    Args:
      share: the share of contexts or groups to move.

    Raises:
      ValueError: there are too few examples to split.
    """
    if examples.dev:
        return examples
    of = _groups(examples.train, task)
    groups = list(dict.fromkeys(of))
    count = max(1, round(share * len(groups)))
    if count >= len(groups):
        what = "example" if len(groups) == len(examples.train) else "context or group of examples"
        raise ValueError(f"data.train: {len(groups)} {what} is too few to set some aside; name data.dev")
    chosen = {groups[n] for n in np.random.default_rng([seed, 1]).permutation(len(groups))[:count]}
    parts: tuple[list[AnyExample], list[AnyExample]] = ([], [])
    for group, example in zip(of, examples.train, strict=True):
        parts[group in chosen].append(example)
    log.info("data.dev is empty: %d of %d examples set aside", len(parts[1]), len(examples.train))
    return examples._replace(train=parts[0], dev=parts[1])


def folds_of(config: ml_collections.ConfigDict, examples: Sequence[AnyExample], task: AnyTask) -> list[str]:
    """Returns the fold of every example: that of `data.fold_column`, or else dealt in turn after a shuffle.

    Examples that share a context, or that are scored together, are of one fold, as in `set_aside`.
    """
    if config.data.fold_column:
        return [example.group for example in examples]
    of = _groups(examples, task)
    groups = list(dict.fromkeys(of))
    if config.data.folds > len(groups):
        what = "examples" if len(groups) == len(examples) else "contexts or groups of examples"
        raise ValueError(f"data.folds={config.data.folds}, but there are {len(groups)} {what}")
    order = np.random.default_rng([config.seed, 2]).permutation(len(groups))
    fold = {groups[n]: str(place % config.data.folds) for place, n in enumerate(order.tolist())}
    return [fold[group] for group in of]


def _groups(examples: Sequence[AnyExample], task: AnyTask) -> list[Hashable]:
    """Returns for each example the key of those that may not be cut apart: their context or group, or its number."""
    return [task.context(example) or task.group(example) or n for n, example in enumerate(examples)]


class NoisyExamples:
    """Adds noise to examples as `data.noise` says: different noise in each epoch, the same for the same seed.

    Args:
      kinds: kinds of noise, of which one is drawn for each example.
      share: share of examples that get noise.
    """

    def __init__(self, kinds: Sequence[str], share: float, seed: int, misspellings: str = "") -> None:
        words = read_misspellings(misspellings)
        self._noisers = [Noiser(Noise.parse(kind), seed, words) for kind in kinds]
        self._share, self._seed = share, seed

    def __bool__(self) -> bool:
        return bool(self._noisers)

    def draw(self, task: AnyTask, examples: Sequence[AnyExample], key: str) -> list[AnyExample]:
        """Returns the examples with noise; the same `key` gives the same noise."""
        if not self._noisers:
            return list(examples)
        rng = np.random.default_rng([self._seed, zlib.crc32(key.encode()), 3])
        chosen = rng.random(len(examples)) < self._share
        kind = rng.integers(len(self._noisers), size=len(examples))
        return [
            task.noised(example, self._noisers[k], key)[0] if noisy else example
            for example, noisy, k in zip(examples, chosen, kind, strict=True)
        ]
