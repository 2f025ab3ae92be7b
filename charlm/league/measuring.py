"""Counts what the batches of a run hold: words, units, operations; `charlm.league.budget` is the command.

Open it to change how words are counted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import ml_collections

from charlm.config.pretraining import set_by
from charlm.core.sharding import path_name
from charlm.core.types import Json, JsonObject
from charlm.data.corpus import EncodedCorpus, encode_corpus
from charlm.data.forms import TextForm
from charlm.data.lanes import AnyRecord
from charlm.families.family import family
from charlm.families.lookup import prepare
from charlm.families.text_objective import TextObjective
from charlm.statistics.parameters import by_kind
from charlm.training.run import Run, build

RECORD_WORDS = 512  # of the records whose words are counted by another splitter than the run's own

log = logging.getLogger("charlm")


def measured(config: ml_collections.ConfigDict, stage: str, splitter: str, batches: int) -> JsonObject:
    """Returns words, units, characters and operations of a step, words of the corpora, and numbers of parameters.

    Args:
      config: a config of pre-training.
      stage: the stage that reads text, of a family with stages; "" otherwise.
      splitter: how words are counted.
      batches: number of batches that are measured, at least 2.

    Raises:
      ValueError: the config cannot be built, or `stage` is missing or no stage.
    """
    own = _of_stage(config, stage)
    with own.unlocked():  # no thread may read ahead of the batches that are counted
        own.data.prefetch, own.data.reader_threads = 0, 0
    run = build(own, prepare(own))
    corpora = run.objective.data.train
    read = sum(corpus.stats.words for corpus in corpora)
    words = _words_by(own, splitter, corpora)
    step = _count(run, batches)
    per_read = words / read
    leaves = jax.tree_util.tree_leaves_with_path(run.abstract_state.params)
    shapes = {path_name(path): leaf.shape for path, leaf in leaves}
    log.info("%.1f words a step; %d words in the corpora, %d as the run cuts them", step.words * per_read, words, read)
    return {
        "words_per_step": step.words * per_read,
        "words_per_unit": step.words * per_read / step.units,
        "chars_per_unit": step.chars / step.units,
        "unit": run.objective.unit,
        "masked": getattr(run.objective, "masked", ""),
        "units_per_step": step.units,
        "flops_per_step": step.flops,
        "corpus_words": words,
        "parameters": by_kind(shapes),
    }


def settings_of(
    config: ml_collections.ConfigDict, stage: str, steps: int, warmup_share: float, times: Mapping[str, int]
) -> JsonObject:
    """Returns the config keys that follow from a number of steps, and what the finished run looks like.

    Args:
      stage: as in `measured`.
      times: how often the run evaluates ("eval"), saves ("checkpoint") and reports ("log").
    """
    own = _of_stage(config, stage)
    keys = {"train.steps": steps, "optim.warmup_steps": round(warmup_share * steps)}
    keys |= {f"train.{name}_every": math.ceil(steps / times[name]) for name in times}
    settings = {set_by(own, key): value for key, value in keys.items()}
    last_steps, last_stage, folder = steps, "", ""
    if stage:
        done = config.copy_and_resolve_references()
        done.update_from_flattened_dict(settings)
        last_steps = _of_stage(done, config.stages[-1]).train.steps
        last_stage = f"{len(config.stages)}_{config.stages[-1]}"
        folder = f"{1 + list(config.stages).index(stage)}_{stage}"
    return {
        "steps": steps,
        "steps_key": set_by(own, "train.steps"),
        "settings": settings,
        "folder": folder,
        "last_steps": last_steps,
        "last_stage": last_stage,
    }


def _of_stage(config: ml_collections.ConfigDict, stage: str) -> ml_collections.ConfigDict:
    one = family(config.family)
    if not one.has_stages:
        if stage:
            raise ValueError(f"--stage={stage}: pre-training of {one.title} has no stages")
        return config.copy_and_resolve_references()
    if stage not in config.stages:
        raise ValueError(f"--stage={stage!r}: which stage reads text? Expected one of {', '.join(config.stages)}")
    return one.of_stage(config, stage)


class _Step(NamedTuple):
    """What a step takes on average: words that are read, units, useful operations, and the words' characters."""

    words: float
    units: float
    flops: float
    chars: float


def _count(run: Run, batches: int) -> _Step:
    """Returns what a step takes.

    The words of the records that the first batch needed are not counted, nor are its units: a packer always holds a
    record that is only partly used, which the difference leaves out.
    """
    read, chars, objective = 0, 0, run.objective
    if not isinstance(objective, TextObjective):
        raise ValueError("--stage: this stage of pre-training reads no text")
    plain = objective.read

    def counted(data: bytes) -> AnyRecord:
        nonlocal read, chars
        record = plain(data)
        read += len(record.words)
        chars += len(record.chars)
        return record

    vars(objective)["read"] = counted
    try:
        iterator = iter(objective.train_batches(tuple(range(objective.shards))))
        before, units, flops = (0, 0), 0.0, 0.0
        for number in range(batches):
            batch = next(iterator)
            if number == 0:
                before = read, chars
                continue
            units += objective.count(batch)
            flops += objective.training_flops(batch)
    finally:
        del vars(objective)["read"]
    totals = read - before[0], units, flops, chars - before[1]
    return _Step(*(total / (batches - 1) for total in totals))


def _words_by(config: ml_collections.ConfigDict, splitter: str, corpora: tuple[EncodedCorpus, ...]) -> int:
    """Returns the words of the training corpora as a splitter cuts them; encodes them if need be."""
    if splitter == config.text.splitter:
        return sum(corpus.stats.words for corpus in corpora)
    other = config.copy_and_resolve_references()
    other.text.splitter = splitter
    total = 0
    for corpus in corpora:
        total += encode_corpus(corpus.name, other, corpus.split, TextForm(), RECORD_WORDS).stats.words
    return total


def steps_of(found: Mapping[str, Json], words: int, flops: float) -> int:
    """Returns the steps, at least one, that see so many words or, if `flops` is not 0, cost so many operations.

    Args:
      found: as `measured` returns it.
    """
    asked, each = (flops, "flops_per_step") if flops else (words, "words_per_step")
    return max(1, math.ceil(asked / found[each]))
