"""Loads the models of a report, gives them unique names, and checks that they do the same task.

Open it when a model is refused, or named differently than you expect.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flax import traverse_util

from charlm.core.checkpoint import FOLDER
from charlm.core.files import stable_hash
from charlm.core.types import JsonObject
from charlm.families.lookup import converter_of
from charlm.finetune.predictor import FineTuned
from charlm.robustness.batches import ModelRunner
from charlm.robustness.defended import DefendedRunner
from charlm.tasks.base import AnyTask
from charlm.text.defences import defence_of, parsed
from charlm.text.subwords import SubwordTokenizer
from charlm.wordrec.defences import KNOWN

log = logging.getLogger("charlm")


class Subject(NamedTuple):
    """A model of the report.

    Attributes:
      name: its unique name.
      path: the path as the user gave it.
      digest: a digest of everything that its predictions depend on.
      model, batches: compute its predictions, losses and states.
      tokenizer: the tokenizer of a model that reads subwords; else None.
      defence: the defence in front of the model, such as "nfkc+symspell"; "": none.
    """

    name: str
    path: str
    digest: str
    model: FineTuned
    batches: ModelRunner
    tokenizer: SubwordTokenizer | None
    defence: str = ""

    def behind(self, defence: str) -> Subject:
        """Returns the same model behind a defence."""
        batches = DefendedRunner(self.model, [defence_of(part, KNOWN) for part in parsed(defence, KNOWN)])
        return self._replace(
            name=f"{self.name} + {defence}",
            digest=stable_hash(self.digest, batches.versions),
            batches=batches,
            defence=defence,
        )

    @property
    def task(self) -> AnyTask:
        """The task of the model; thresholds and scales may differ between models."""
        return self.model.task

    @property
    def family(self) -> str:
        """The family of the model."""
        return self.model.pretrained.family

    @property
    def trained_with(self) -> list[str]:
        """The specs of the noise in its training examples."""
        data = _fine_tuning(self)
        return list(data.get("noise") or ()) if data.get("noise_share", 1.0) else []

    @property
    def train_files(self) -> list[str]:
        """The files that the model was fine-tuned on, as its config names them."""
        return list(_fine_tuning(self).get("train") or ())

    def has_seen(self, spec: str) -> bool:
        """Says whether noise of this kind, at any rate, was in the training examples."""
        return _kind(spec) in map(_kind, self.trained_with)

    def described(self) -> JsonObject:
        """Returns the entry of the model in the results."""
        seed = self.model.pretrained.metadata.get("seed")
        return {
            "name": self.name, "path": self.path, "family": self.family, "trained_with": self.trained_with,
            "seed": seed, "defence": self.defence,
        }  # fmt: skip


def _kind(spec: str) -> str:
    return re.split("[:@]", spec)[0].strip()


def _fine_tuning(subject: Subject) -> JsonObject:
    return (subject.model.pretrained.metadata.get("fine_tuning") or {}).get("data") or {}


def load(paths: Sequence[str], batch_size: int, task: str = "", defences: Sequence[str] = ()) -> list[Subject]:
    """Returns the models, each followed by itself behind each of the defences.

    Args:
      paths: workdirs or checkpoints.
      batch_size: number of rows predicted at a time.
      task: the task that the models must have been fine-tuned for; "": any, but the same for all.
      defences: defences as `charlm.text.defences.parsed` reads them.

    Raises:
      ValueError: a path is not a fine-tuned model, is given twice, or has another task or other labels than the first.
    """
    resolved = Counter(str(Path(path).resolve()) for path in paths)
    if twice := [path for path, count in resolved.items() if count > 1]:
        raise ValueError(f"--models: {twice[0]} is given twice")
    subjects: list[Subject] = []
    for name, path in zip(names(paths), paths, strict=True):
        model = FineTuned.from_checkpoint(path, batch_size)
        if task and model.task.name != task:
            raise ValueError(f"--task={task}: {path} was fine-tuned for {model.task.name}")
        if subjects:
            _check_same(subjects[0], path, model.task)
        tokenizer = converter_of(model.pretrained.family).open_tokenizer(model.pretrained.folder)
        digest = digest_of(model, tokenizer)
        plain = Subject(name, path, digest, model, ModelRunner(model), tokenizer)
        subjects += [plain, *(plain.behind(defence) for defence in defences)]
        log.info("%s: %s, %s", name, model.pretrained.family, path)
    return subjects


def _check_same(first: Subject, path: str, task: AnyTask) -> None:
    if task.name != first.task.name:
        raise ValueError(f"--models: {path} was fine-tuned for {task.name}, {first.path} for {first.task.name}")
    ours, theirs = set(first.task.labels), set(task.labels)
    if ours != theirs:
        only = [f"{label!r} only in {path}" for label in sorted(theirs - ours)]
        only += [f"{label!r} only in {first.path}" for label in sorted(ours - theirs)]
        raise ValueError(f"--models: other labels than {first.path}: {', '.join(only[:4])}; they cannot be compared")
    if task.metric != first.task.metric:
        raise ValueError(f"--models: {path} is measured by {task.metric}, {first.path} by {first.task.metric}")


def names(paths: Sequence[str]) -> list[str]:
    """Returns unique names of models: the last part of each path, with as many more parts as make all differ.

    For a checkpoint, the path is that of its run, unless several checkpoints of the run are given.
    """
    parts = [Path(path).resolve().parts for path in paths]
    runs = [pieces[:-2] if FOLDER in pieces[-2:-1] else pieces for pieces in parts]
    parts = [run if runs.count(run) == 1 else pieces for run, pieces in zip(runs, parts, strict=True)]
    taken = [1] * len(parts)
    while True:
        found = ["/".join(pieces[-n:]) for n, pieces in zip(taken, parts, strict=True)]
        counts = Counter(found)
        if max(counts.values(), default=1) == 1:
            return found
        taken = [n + (counts[name] > 1) for n, name in zip(taken, found, strict=True)]


def digest_of(model: FineTuned, tokenizer: SubwordTokenizer | None) -> str:
    """Returns a digest of parameters, tokenizer and metadata; equal models in different folders have equal digests."""
    pretrained = model.pretrained
    found = hashlib.blake2b(digest_size=16)
    found.update(json.dumps(dict(pretrained.metadata), sort_keys=True, default=str).encode())
    found.update(str(pretrained.config).encode())
    if tokenizer is not None:
        found.update(tokenizer.digest().encode())
    for name, value in sorted(traverse_util.flatten_dict(pretrained.params, sep="/").items()):
        array = np.asarray(value)
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
