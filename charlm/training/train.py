"""The training loop: evaluate, save, take a batch, step; report; resume where a run stopped."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import grain
import jax
import ml_collections

from charlm.config import check_resumable, flatten, to_json
from charlm.config.pretraining import set_by
from charlm.core import checkpoint as checkpoints
from charlm.core import flops, hosts, interrupts
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.durable import write_text
from charlm.core.frozen import Frozen, at_start, check_unchanged
from charlm.core.memory import clear_exhaustion, give_memory_back, keep_between_steps
from charlm.core.metric_writer import MetricWriter
from charlm.core.optimizer import learning_rate
from charlm.core.profiling import StepProfiler
from charlm.core.state import TrainState
from charlm.core.step import Sums, mean_loss
from charlm.families.registry import objective_of, prepare
from charlm.training import workdir as workdirs
from charlm.training.evaluate import evaluate
from charlm.training.first_state import check_resumed, goes_on_from, initial_state
from charlm.training.progress import (
    Window,
    duration,
    read_metrics,
    report_finished,
    report_heldout,
    report_start,
    stop_signal,
)
from charlm.training.recovery import check_newest
from charlm.training.run import Run, build

log = logging.getLogger("charlm")


class NonFiniteLoss(ValueError):
    """The loss or its gradient became NaN or infinite; the message says when, and from where to go on."""


def train(config: ml_collections.ConfigDict, workdir: str, profile: str = "", skip_damaged: bool = False) -> bool:
    """Pre-trains as `config` says, or goes on with the run found in `workdir`; returns False if a signal stopped it.

    Args:
      profile: folder for a trace of a few steps; "": none. skip_damaged: set the newest checkpoint aside if it is
        damaged, and go on from the one before.

    Raises:
      ValueError: when config, data or workdir do not allow it. NonFiniteLoss: when training diverged.
    """
    folder, profiler = workdirs.folder_of(workdir), StepProfiler(profile)
    new = not folder.exists()
    hosts.primary_first(lambda: workdirs.create(folder))
    try:
        with ExitStack() as stack:
            hosts.primary_first(lambda: stack.enter_context(workdirs.alone(folder)) if hosts.is_primary() else None)
            with clear_exhaustion(_smaller(config)):
                return _train(config, folder, workdir, profiler, skip_damaged)
    finally:
        if new and hosts.is_primary():  # of a run that could not begin, nothing stays
            for empty in (folder / checkpoints.FOLDER, folder):
                with suppress(OSError):
                    empty.rmdir()


def _smaller(config: ml_collections.ConfigDict) -> str:
    """Says which keys make a step need less memory."""
    size, parts = set_by(config, "data.batch_size"), set_by(config, "data.accumulation")
    flat = flatten(config)
    remat = "" if config.model.remat else ", or set model.remat=True"
    return f"lower {size} (now {flat[size]}), or keep it and raise {parts} (now {flat[parts]}){remat}"


def _train(
    config: ml_collections.ConfigDict, folder: Path, workdir: str, profiler: StepProfiler, skip_damaged: bool
) -> bool:
    workdirs.check_same_config(config)
    newest = lambda: check_newest(folder / checkpoints.FOLDER, skip_damaged) if hosts.is_primary() else None
    hosts.primary_first(newest)
    done = workdirs.newest_step(folder)
    finished = done is not None and done >= config.train.steps
    if hosts.total(not finished):  # on any host
        hosts.primary_first(lambda: workdirs.check_writable(folder))
        if not hosts.shares(folder):
            raise ValueError(
                f"--workdir={workdir} must be one folder that all hosts share; not all see what process 0 writes"
            )
    # Without a checkpoint there is nothing to go on from, whatever config lies there.
    saved = None if done is None else workdirs.saved_config(folder)
    if saved is not None:
        check_resumable(config, saved, where=workdir)
    if done is not None:
        workdirs.check_source(config, folder)
    if finished:
        report_finished(objective_of(config), folder, workdir, done, set_by(config, "train.steps"))
        return True
    if done is None and config.resume:
        check_resumed(config)
    data = hosts.primary_first(lambda: prepare(config, None if done is None else folder))
    if done is not None:
        workdirs.check_text(checkpoints.find(folder), objective_of(config), data)
    run = build(config, data)
    config.update_from_flattened_dict(run.objective.measured())
    report_start(run, workdir)

    source = goes_on_from(config, None if done is None else folder)
    past = {} if source is None else checkpoints.description(source)
    metadata = {"config": config.to_dict(), **run.objective.metadata(), "train_text": workdirs.text_of(data)}
    metadata["started_from"] = past.get("started_from") or workdirs.started_from(config)
    files = run.objective.save_vocab if run.objective.has_files else None
    store = Checkpoints(folder, config.train.keep_checkpoints, metadata, write_files=files)
    batches = iter(run.train_batches)
    try:
        state, start, unreported = initial_state(config, run, store, batches)
        give_memory_back()
        frozen = at_start(state.params, config.optim.freeze, past)
        store.describe(frozen=frozen)
        if hosts.is_primary():
            write_text(folder / workdirs.CONFIG_FILE, to_json(config))
            run.objective.save_vocab(folder)
        # From scratch, step 0 is evaluated again.
        writer = MetricWriter(folder, resume_step=start or -1) if hosts.is_primary() else None
        try:
            loop = _Loop(config, run, store, batches, writer, workdir, profiler, frozen)
            ended = loop.run(state, start, unreported)
        finally:
            profiler.close()
            if writer is not None:
                writer.close()
    finally:
        batches.close()
        store.close()
    if ended:
        report_heldout(run.objective, folder)
        params = loop.state.params if hosts.alone() else hosts.on_host(loop.state.params)
        if hosts.is_primary():
            run.objective.show_examples(params)
        log.info("try it: %s", run.objective.use.format(workdir=workdir))
    return ended


class _Loop:
    """Steps until the end, a signal or a non-finite loss."""

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        run: Run,
        store: Checkpoints,
        batches: grain.DatasetIterator,
        writer: MetricWriter | None,
        workdir: str,
        profiler: StepProfiler,
        frozen: Frozen | None,
    ) -> None:
        self._frozen = frozen
        self._config, self._run, self._store, self._batches, self._writer = config, run, store, batches, writer
        self._workdir, self._profiler = workdir, profiler
        self._rate = learning_rate(config)
        self._objective = run.objective
        peak = flops.peak(jax.devices()[0].device_kind, config.model.dtype)
        self._peak = peak and peak * jax.device_count()
        self._window = Window(run.objective)
        self._unread: tuple[int, Sums, jax.Array] | None = None
        self._best = math.inf
        self._compiled = False
        self.state: TrainState

    def run(self, state: TrainState, start: int, unreported: list[float]) -> bool:
        """Returns True when the last step was done, False when a signal asked to stop."""
        cfg, steps = self._config.train, self._config.train.steps
        self.state, self._window = state, Window(self._objective, unreported)
        best = [m["heldout_loss"] for m in read_metrics(Path(self._workdir)) if "heldout_loss" in m]
        self._best = hosts.from_primary(min(best, default=math.inf))
        if start == 0:
            self._evaluate(0)
        with stop_signal() as stopped:
            self._window.start()
            for step in range(start + 1, steps + 1):
                self._profiler.before(step - start)
                if step == start + 1:
                    self._first_step(step)
                else:
                    self._step(step)
                self._profiler.after(step - start, self.state)
                if step % cfg.log_every == 0 or step == steps:
                    self._report(step)
                heldout = self._evaluate(step) if step % cfg.eval_every == 0 or step == steps else None
                better = heldout is not None and heldout["loss"] < self._best
                if better:
                    self._best = heldout["loss"]
                stop = stopped(step)  # asked once, so that what is said to be saved is: a signal may come at any time
                if step == steps and self._frozen is not None:  # before it is saved, or the run would pass for finished
                    log.info("%s", check_unchanged(self.state.params, self._config.optim.freeze, self._frozen))
                if better or stop or step == steps or step % cfg.checkpoint_every == 0:
                    self._read_sums()
                    self._save(step, heldout)
                if stop:
                    self._store.wait()
                    log.info("stopped by signal at step %d, saved; the same command goes on from there", step)
                    return step == steps
        self._store.wait()
        return True

    def _first_step(self, step: int) -> None:
        """A step that also compiles; the speed on the progress lines leaves it out."""
        log.info("compiling the training step")
        started = time.perf_counter()
        self._step(step)
        jax.block_until_ready(self.state)
        log.info("compiled in %.0f s", time.perf_counter() - started)
        self._window.forget_speed()

    def _step(self, step: int) -> None:
        started = time.perf_counter()
        batch = next(self._batches)
        self._window.waited += time.perf_counter() - started
        self._window.units += self._objective.count(batch)
        self._window.flops += self._objective.training_flops(batch)
        self._window.steps += 1
        placed = self._run.place(batch)
        if not self._compiled:  # alone, so that what the compiler takes is given back before the step takes its own
            with interrupts.deferred(until_saved=False):
                compiled = self._run.train_step.lower(self.state, placed).compile()
            self._compiled = True
            give_memory_back()
            if jax.default_backend() == "cpu":
                keep_between_steps(getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0))
        self.state, sums, norm = self._run.train_step(self.state, placed)
        self._read_sums()  # the step before this one: reading it now keeps the device busy with this one
        self._unread = (step, sums, norm)

    def _read_sums(self) -> None:
        if self._unread is None:
            return
        step, sums, norm = self._unread
        self._unread = None
        sums, norm = jax.device_get((sums, norm))
        loss = mean_loss(sums, self._objective.parts)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._not_finite(step, f"loss {loss}, gradient norm {norm}")
        self._window.add(sums, float(norm))

    def _not_finite(self, step: int, what: str) -> NonFiniteLoss:
        go_on = self._go_on()
        key, rate = set_by(self._config, "optim.learning_rate"), self._config.optim.learning_rate
        return NonFiniteLoss(f"step {step}: {what}; {go_on}; a smaller {key} (now {rate}) or more warm-up may help")

    def _go_on(self) -> str:
        """Says from where the run can go on."""
        self._store.wait()
        last = self._store.latest
        none = "there is no checkpoint yet"
        return none if last is None else f"the last good checkpoint is step {last} in {self._workdir}"

    def _report(self, step: int) -> None:
        self._read_sums()
        scalars = self._window.scalars(self._peak) | {"learning_rate": float(self._rate(step - 1))}
        self._write(step, scalars)
        steps, unit = self._config.train.steps, self._objective.unit
        log.info(
            "step %d/%d  %s  %s %s/s  %.3g TFLOP/s%s  %.0f ms/step  %.1f %% waiting for data  ETA %s",
            step, steps, self._objective.progress_line(scalars), f"{scalars[f'{unit}_per_second']:,.0f}", unit,
            scalars["tflops_per_second"], f" (MFU {100 * scalars['mfu']:.1f} %)" if "mfu" in scalars else "",
            scalars["ms_per_step"], 100 * scalars["data_wait"],
            duration((steps - step) * scalars["ms_per_step"] / 1000),
        )  # fmt: skip
        self._window = Window(self._objective)
        self._window.start()

    def _evaluate(self, step: int) -> dict[str, float]:
        paused = time.perf_counter()
        metrics = evaluate(self._run, self.state.params, self._config.train.eval_words)
        if not math.isfinite(metrics["loss"]):
            raise self._not_finite(step, f"held-out loss {metrics['loss']}")
        self._write(step, {f"heldout_{name}": value for name, value in metrics.items()})
        unit = self._objective.unit
        line = self._objective.heldout_line(metrics)
        log.info("held-out at step %d: %s, %s %s read", step, line, f"{metrics[unit]:,.0f}", unit)
        self._watch()
        self._window.pause(time.perf_counter() - paused)
        return metrics

    def _watch(self) -> None:
        objective = self._objective
        if objective.watched:
            parts = hosts.on_host({name: self.state.params[name] for name in objective.watched})
            if hosts.is_primary():
                objective.watch(parts)

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is not None:
            try:
                self._writer.write(step, scalars)
            except ValueError as error:
                raise ValueError(f"step {step}: {error}; {self._go_on()}") from error

    def _save(self, step: int, heldout: dict[str, float] | None) -> None:
        paused = time.perf_counter()
        self._store.save(step, self.state, self._batches, heldout, self._window.unreported)
        self._window.pause(time.perf_counter() - paused)
