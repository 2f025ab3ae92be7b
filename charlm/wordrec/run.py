"""Trains a word recogniser, by the loop that trains every model; the same call goes on where a run stopped.

`python -m charlm.wordrec train` calls it. Open it to follow a run; the loop is `charlm.training.loop`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import ml_collections

from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.memory import clear_exhaustion
from charlm.core.optimizer import make_optimizer
from charlm.core.profiling import StepProfiler
from charlm.training import workdir as workdirs
from charlm.training.assembly import assembled
from charlm.training.progress import report_finished, report_heldout, report_start
from charlm.training.recovery import check_newest_together
from charlm.training.run import built, rate_of
from charlm.training.train import setup_of
from charlm.wordrec.config import check_resumable
from charlm.wordrec.objective import WordRecognition

log = logging.getLogger("charlm")


def train(config: ml_collections.ConfigDict, workdir: str | os.PathLike[str], skip_damaged: bool = False) -> bool:
    """Trains as `config` says, or resumes the run found in `workdir`; returns False if a signal stopped it.

    Args:
      config: of `charlm.wordrec.config`, checked.
      skip_damaged: set the newest checkpoint aside if it is damaged, and resume from the one before.

    Raises:
      ValueError: config, text or workdir are not usable.
      NonFiniteLoss: training diverged.
    """
    folder = workdirs.folder_of(workdir)
    smaller = f"lower data.batch_size (now {config.data.batch_size}) or text.words (now {config.text.words})"
    with workdirs.opened(folder), clear_exhaustion(smaller):
        check_newest_together(folder / checkpoints.FOLDER, skip_damaged)
        done = workdirs.newest_step(folder)
        finished = done is not None and done >= config.train.steps
        workdirs.check_usable(folder, finished)
        if done is not None:
            check_resumable(config, folder / workdirs.RUN_CONFIG_FILE, str(workdir))
        if done is not None and finished:
            report_finished(WordRecognition, folder, str(workdir), done, "train.steps")
            return True
        return _train(config, folder, str(workdir), done)


def _train(config: ml_collections.ConfigDict, folder: Path, workdir: str, done: int | None) -> bool:
    resumed = None if done is None else folder
    data = hosts.primary_first(lambda: WordRecognition.prepare(config, resumed))
    if resumed is not None:
        workdirs.check_text(checkpoints.find(folder), WordRecognition, data)
    run = built(config, data, WordRecognition, make_optimizer(config.optim, rate_of(config), ()))
    config.update_from_flattened_dict(run.objective.measured())
    report_start(run, workdir)
    with assembled(setup_of(config, run, folder, workdir, StepProfiler(""), done)) as (loop, start, unreported):
        ended = loop.run(start, unreported)
    if ended:
        report_heldout(run.objective, folder)
        run.objective.show_examples(loop.state.params)
        log.info("try it: %s", run.objective.use.format(workdir=workdir))
    return ended
