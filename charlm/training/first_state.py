"""The first state of a run: its own last checkpoint, or for pre-training another run, a model, or random parameters.

Open it to see which source has precedence, and what is checked before a run resumes or takes over parameters.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import ml_collections

from charlm.config import check_resumable, from_dict
from charlm.config.pretraining import set_by
from charlm.core import checkpoint as checkpoints
from charlm.core.checkpoint_parts import Positioned
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.local_store import LocalCheckpoints
from charlm.core.state import TrainState
from charlm.families.lookup import objective_of
from charlm.families.stored import metadata_of
from charlm.training import workdir as workdirs
from charlm.training.run import Run

log = logging.getLogger("charlm")


class Start(NamedTuple):
    """What a run starts from: a state, its step, and the sums that were not yet reported when it was saved."""

    state: TrainState
    step: int
    unreported: list[float]


def check_resumed(config: ml_collections.ConfigDict) -> None:
    """Copies the measured config keys of the run that `resume` names; ValueError if its model differs from this one."""
    objective = objective_of(config)
    source = checkpoints.find(config.resume, key="resume")
    theirs = from_dict(metadata_of(source, objective.families)["config"])
    check_resumable(config, theirs, where=str(source), among=objective.of_shape)


def resumed(store: Checkpoints, local: LocalCheckpoints | None, abstract: TrainState, batches: Positioned) -> Start:
    """Returns what a run resumes from: its newest checkpoint, be it in the workdir or on local disks."""
    step = store.latest or 0
    here = local and local.newest(step, abstract)
    if local is not None and here is not None:
        log.info("resuming at step %d, from local checkpoints", here)
        state, unreported = local.restore(here, abstract, batches)
        return Start(state, here, unreported)
    log.info("resuming at step %d", step)
    return Start(store.restore(step, abstract, batches), step, checkpoints.unreported(store.folder(step)))


def initial_state(config: ml_collections.ConfigDict, run: Run, batches: Positioned) -> Start:
    """Returns what a new run starts from; the first available source is used: `resume`, `init_from`, random parameters.

    Raises:
      ValueError: the run that `resume` names has no steps left, or a source does not fit the config.
    """
    objective = run.objective
    if config.resume:
        source = checkpoints.find(config.resume, key="resume")
        workdirs.check_text(source, type(objective), objective.data)
        log.info("resuming from %s", source)
        state = checkpoints.load(source, run.abstract_state, batches)
        step, steps = int(state.step), config.train.steps
        if step >= steps:
            key = set_by(config, "train.steps")
            raise ValueError(f"resume: {source} has done {step} steps already; {key}={steps} adds none")
        return Start(state, step, checkpoints.unreported(source))
    state = run.init()
    if config.init_from:
        params = objective.load_params(config.init_from, run.abstract_state.params, state.params)
        state = state._replace(params=params)
    return Start(state, 0, [])
