"""The first state of a pre-training run: from its own last checkpoint, another run, a model, or random parameters."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import ml_collections

from charlm.config import check_resumable, from_dict
from charlm.config.pretraining import set_by
from charlm.core import checkpoint as checkpoints
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.state import TrainState
from charlm.families.registry import objective_of
from charlm.training import workdir as workdirs
from charlm.training.run import Run

log = logging.getLogger("charlm")


def goes_on_from(config: ml_collections.ConfigDict, folder: Path | None) -> Path | None:
    """Returns the checkpoint to resume from, in `folder` or else named by `resume`; None: a new run begins."""
    if folder is None and not config.resume:
        return None
    return checkpoints.find(folder or config.resume, key="resume")


def check_resumed(config: ml_collections.ConfigDict) -> None:
    """Copies the measured config keys of the run that `resume` names; ValueError if its model differs from this one."""
    objective = objective_of(config)
    source = checkpoints.find(config.resume, key="resume")
    theirs = from_dict(checkpoints.read_metadata(source, objective.families)["config"])
    check_resumable(config, theirs, where=str(source), among=objective.of_shape)


def initial_state(
    config: ml_collections.ConfigDict, run: Run, store: Checkpoints, batches: Any
) -> tuple[TrainState, int, list[float]]:
    """Returns the state to start from, its step, and the sums that were not yet reported when it was saved.

    The first available source is used: the run's own workdir, `resume`, `init_from`, random parameters.

    Raises:
      ValueError: the run that `resume` names has no steps left, or a source does not fit the config.
    """
    objective = run.objective
    if store.latest is not None:
        step = store.latest
        log.info("resuming at step %d", step)
        return store.restore(step, run.abstract_state, batches), step, checkpoints.unreported(store.folder(step))
    if config.resume:
        source = checkpoints.find(config.resume, key="resume")
        workdirs.check_text(source, type(objective), objective.data)
        log.info("resuming from %s", source)
        state = checkpoints.load(source, run.abstract_state, batches)
        step, steps = int(state.step), config.train.steps
        if step >= steps:
            key = set_by(config, "train.steps")
            raise ValueError(f"resume: {source} has done {step} steps already; {key}={steps} adds none")
        return state, step, checkpoints.unreported(source)
    state = run.init()
    if config.init_from:
        params = objective.load_params(config.init_from, run.abstract_state.params, state.params)
        state = state._replace(params=params)
    return state, 0, []
