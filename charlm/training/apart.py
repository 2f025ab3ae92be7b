"""Runs training that has a kind of config of its own (`charlm.config.apart`), by the loop that trains every model.

`charlm.wordrec.run` and `charlm.align.run` say in a `Job` what they train. The same call goes on where a run stopped.
Open it to change what all such runs do; the steps are taken by `charlm.training.loop`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from pathlib import Path

import ml_collections

from charlm.config.apart import Apart, check_resumable
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.called_as import as_typed
from charlm.core.memory import clear_exhaustion
from charlm.core.optimizer import make_optimizer
from charlm.core.profiling import StepProfiler
from charlm.families.objective import Objective, RunData
from charlm.training import workdir as workdirs
from charlm.training.assembly import Setup, assembled
from charlm.training.progress import report_finished, report_heldout, report_start
from charlm.training.recovery import check_newest_together
from charlm.training.run import Run, built, rate_of
from charlm.training.train import setup_of

log = logging.getLogger("charlm")


@dataclasses.dataclass(frozen=True)
class Job:
    """What is trained, and how such a run differs from pre-training.

    Attributes:
      kind: the kind of config.
      objective: its objective.
      smaller: advice on which keys reduce the memory of a step.
      states: the folder in the workdir that holds the checkpoints to resume from.
      spared: returns regular expressions for the names of parameters without weight decay.
      check_text: checks that the run of a checkpoint can go on with the data of this one; ValueError if not.
      changed: returns the parts of the run, given those of pre-training.
    """

    kind: Apart
    objective: type[Objective]
    smaller: str
    states: str = checkpoints.FOLDER
    spared: Callable[[RunData], tuple[str, ...]] = lambda data: ()
    check_text: Callable[[Path, type[Objective], RunData], None] = workdirs.check_text
    changed: Callable[[Setup, Run], Setup] = lambda setup, run: setup


def train_apart(
    config: ml_collections.ConfigDict, workdir: str | os.PathLike[str], job: Job, skip_damaged: bool = False
) -> bool:
    """Trains as `config` says, or resumes the run found in `workdir`; returns False if a signal stopped it.

    Args:
      config: of the job's kind, checked.
      skip_damaged: set the newest checkpoint aside if it is damaged, and resume from the one before.

    Raises:
      ValueError: config, text or workdir are not usable.
      NonFiniteLoss: training diverged.
    """
    folder = workdirs.folder_of(workdir)
    workdirs.newest_step(folder)  # refuses a checkpoint
    with workdirs.opened(folder), clear_exhaustion(job.smaller):
        workdirs.check_same_config(config)
        check_newest_together(folder / job.states, skip_damaged)
        states = folder if job.states == checkpoints.FOLDER else folder / job.states
        done = workdirs.newest_step(states)
        finished = done is not None and done >= config.train.steps
        workdirs.check_usable(folder, finished)
        if done is not None:
            check_resumable(job.kind, config, folder / workdirs.RUN_CONFIG_FILE, str(workdir))
        if done is not None and finished:
            report_finished(job.objective, folder, str(workdir), done, "train.steps")
            return True
        return _train(config, folder, str(workdir), job, states, done)


def _train(
    config: ml_collections.ConfigDict, folder: Path, workdir: str, job: Job, states: Path, done: int | None
) -> bool:
    resumed = None if done is None else states
    data = hosts.primary_first(lambda: job.objective.prepare(config, resumed))
    if resumed is not None:
        job.check_text(checkpoints.find(resumed), job.objective, data)
    run = built(config, data, job.objective, make_optimizer(config.optim, rate_of(config), job.spared(data)))
    config.update_from_flattened_dict(run.objective.measured())
    report_start(run, workdir)
    setup = job.changed(setup_of(config, run, folder, workdir, StepProfiler(""), done), run)
    with assembled(setup) as (loop, start, unreported):
        ended = loop.run(start, unreported)
    if ended:
        report_heldout(run.objective, folder)
        params = loop.state.params if hosts.alone() else hosts.on_host(loop.state.params)
        if hosts.is_primary():
            run.objective.show_examples(params)
        log.info("try it: %s", as_typed(run.objective.use.format(workdir=workdir)))
    return ended
