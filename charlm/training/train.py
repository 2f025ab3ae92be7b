"""Pre-trains a model, from the first check to the last log line; open it to follow a run.

The steps themselves are taken by `charlm.training.loop`.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

import ml_collections

from charlm.config import flatten, to_json
from charlm.config.pretraining import set_by
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.called_as import as_typed
from charlm.core.durable import write_text
from charlm.core.memory import clear_exhaustion
from charlm.core.profiling import StepProfiler
from charlm.core.state import TrainState
from charlm.core.types import Params
from charlm.families.lookup import objective_of, prepare
from charlm.families.objective import RunData
from charlm.training import workdir as workdirs
from charlm.training.assembly import Setup, assembled
from charlm.training.course import Course, Judgement
from charlm.training.evaluate import evaluate
from charlm.training.first_state import check_resumed, initial_state
from charlm.training.progress import read_metrics, report_finished, report_heldout, report_start
from charlm.training.recovery import check_newest_together
from charlm.training.run import Run, build, rate_of

log = logging.getLogger("charlm")


def train(config: ml_collections.ConfigDict, workdir: str, profile: str = "", skip_damaged: bool = False) -> bool:
    """Pre-trains as `config` says, or resumes the run found in `workdir`; returns False if a signal stopped it.

    Args:
      profile: folder for a trace of a few steps; "": none.
      skip_damaged: set the newest checkpoint aside if it is damaged, and resume from the one before.

    Raises:
      ValueError: config, data or workdir are not usable.
      NonFiniteLoss: training diverged.
    """
    folder, profiler = workdirs.folder_of(workdir), StepProfiler(profile)
    with workdirs.opened(folder), clear_exhaustion(_smaller(config)):
        done = _done_before(config, folder, workdir, skip_damaged)
        if done is not None and done >= config.train.steps:
            report_finished(objective_of(config), folder, workdir, done, set_by(config, "train.steps"))
            return True
        run = build(config, _text(config, folder, done))
        config.update_from_flattened_dict(run.objective.measured())
        report_start(run, workdir)
        with assembled(setup_of(config, run, folder, workdir, profiler, done)) as (loop, start, unreported):
            ended = loop.run(start, unreported)
        if ended:
            _show(run, loop.state.params, folder, workdir)
        return ended


def _smaller(config: ml_collections.ConfigDict) -> str:
    """Returns advice on which config keys reduce the memory of a step."""
    size, parts = set_by(config, "data.batch_size"), set_by(config, "data.accumulation")
    flat = flatten(config)
    remat = "" if config.model.remat else ", or set model.remat=True"
    return f"lower {size} (now {flat[size]}), or keep it and raise {parts} (now {flat[parts]}){remat}"


def _done_before(config: ml_collections.ConfigDict, folder: Path, workdir: str, skip_damaged: bool) -> int | None:
    """Checks that the run in a folder can resume with this config; returns its latest saved step, None without one.

    Raises:
      ValueError: it cannot resume, or the folder cannot be written.
    """
    workdirs.check_same_config(config)
    check_newest_together(folder / checkpoints.FOLDER, skip_damaged)
    done = workdirs.newest_step(folder)
    finished = done is not None and done >= config.train.steps
    workdirs.check_usable(folder, finished)
    if done is not None:  # without a checkpoint, there is nothing to resume: a config found in the folder is replaced
        workdirs.check_same_run(config, folder, workdir)
        workdirs.check_source(config, folder)
    return done


def _text(config: ml_collections.ConfigDict, folder: Path, done: int | None) -> RunData:
    """Returns vocabularies and encoded corpora; ValueError if they differ from those of the run that is resumed."""
    if done is None and config.resume:
        check_resumed(config)
    data = hosts.primary_first(lambda: prepare(config, None if done is None else folder))
    if done is not None:
        workdirs.check_text(checkpoints.find(folder), objective_of(config), data)
    return data


def _show(run: Run, params: Params, folder: Path, workdir: str) -> None:
    """Logs what a finished run has learned: held-out metrics before and after, predictions, and a command to use it."""
    report_heldout(run.objective, folder)
    params = params if hosts.alone() else hosts.on_host(params)
    if hosts.is_primary():
        run.objective.show_examples(params)
    log.info("try it: %s", as_typed(run.objective.use.format(workdir=workdir)))


def setup_of(
    config: ml_collections.ConfigDict, run: Run, folder: Path, workdir: str, profiler: StepProfiler, done: int | None
) -> Setup:
    """Returns the parts from which `charlm.training.assembly.assembled` makes a run.

    Args:
      profiler: traces a few steps.
      done: the step of the latest checkpoint; None: there is none.
    """
    objective, batches = run.objective, iter(run.train_batches)

    def write_start() -> None:
        write_text(folder / workdirs.RUN_CONFIG_FILE, to_json(config))
        objective.save_vocab(folder)

    metadata = {"config": config.to_dict(), **objective.metadata(), **workdirs.text_of(objective.data)}
    return Setup(
        config,
        folder,
        run,
        batches,
        metadata,
        first=lambda: initial_state(config, run, batches),
        course=lambda: PreTraining(config, run, folder),
        profiler=profiler,
        workdir=workdir,
        keep=config.train.keep_checkpoints,
        resumes=checkpoints.find(config.resume, key="resume") if done is None and config.resume else None,
        write_files=objective.save_vocab if objective.has_files else None,
        write_start=write_start,
    )


class PreTraining(Course):
    """The course of pre-training: a fixed number of steps, evaluated on held-out text at regular intervals.

    A state with the lowest held-out loss so far is saved.

    Args:
      folder: the run's folder; the best loss so far is read from its metrics.
    """

    judged_on = "held-out"

    def __init__(self, config: ml_collections.ConfigDict, run: Run, folder: Path) -> None:
        cfg = config.train
        self.steps, self.log_every, self.checkpoint_every = cfg.steps, cfg.log_every, cfg.checkpoint_every
        self.stall_minutes = cfg.stall_minutes
        self.rate, self.peak_rate = rate_of(config), config.optim.learning_rate
        self.rate_key = set_by(config, "optim.learning_rate")
        self.dtype, self.freeze = config.model.dtype, tuple(config.optim.freeze)
        self._run, self._objective = run, run.objective
        self._every, self._most = cfg.eval_every, cfg.eval_words
        self._folder = folder
        self.went_back(0)

    def went_back(self, step: int) -> None:
        """Reads the best loss so far from the metrics, which end with the step that the run goes on from."""
        read = read_metrics(self._folder) if hosts.is_primary() else []
        best = [m["heldout_loss"] for m in read if "heldout_loss" in m and m["step"]]
        self._best = hosts.from_primary(min(best, default=math.inf))

    def over(self, step: int) -> bool:
        """Returns whether all steps are done."""
        return step >= self.steps

    def evaluates(self, step: int) -> bool:
        """Returns whether to evaluate on held-out text; always True before the first step and after the last."""
        return step % self._every == 0 or step == self.steps

    def evaluate(self, step: int, state: TrainState) -> tuple[Judgement, dict[str, float]]:
        """Evaluates on held-out text; a state with the lowest loss so far is worth saving."""
        found = evaluate(self._run, state.params, self._most)
        better = step > 0 and found["loss"] < self._best
        if better:
            self._best = found["loss"]
        return Judgement(found["loss"], better, found), {f"heldout_{name}": value for name, value in found.items()}

    def judged(self, step: int, state: TrainState, metrics: dict[str, float]) -> None:
        """Logs the held-out metrics, and calls the objective's `watch`."""
        objective = self._objective
        found = {name.removeprefix("heldout_"): value for name, value in metrics.items()}
        line, unit = objective.heldout_line(found), objective.unit
        log.info("held-out at step %d: %s, %s %s read", step, line, f"{found[unit]:,.0f}", unit)
        if objective.watched:
            parts = hosts.on_host({name: state.params[name] for name in objective.watched})
            if hosts.is_primary():
                objective.watch(parts)

    def where(self, step: int) -> str:
        """Returns "step N/M"."""
        return f"step {step}/{self.steps}"
