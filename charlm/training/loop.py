"""The one loop of pre-training and fine-tuning: take a batch, step, report, evaluate, save, stop.

What a run is like beside its steps, when it is looked at and when it ends, its `Course` says: `charlm.training.train`
has that of pre-training, `charlm.finetune.course` that of fine-tuning. Open this to change what every run does.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import optax

from charlm.core import flops, hosts, interrupts
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.frozen import Frozen, check_unchanged
from charlm.core.learning import Batch
from charlm.core.memory import give_memory_back, keep_between_steps
from charlm.core.metric_writer import MetricWriter
from charlm.core.profiling import StepProfiler
from charlm.core.state import TrainState
from charlm.core.step import Sums, mean_loss
from charlm.core.watchdog import Watchdog
from charlm.training.goodput import Goodput
from charlm.training.program import Program
from charlm.training.progress import Window, duration, stop_signal

log = logging.getLogger("charlm")


class NonFiniteLoss(ValueError):
    """The loss or its gradient became NaN or infinite; the message says when, and from where to go on."""


class Judgement(NamedTuple):
    """What an evaluation found.

    Attributes:
      loss: on text that is not learned from. worth_saving: whether the state is to be saved. metrics: saved with it, by
        which the best one is kept.
    """

    loss: float
    worth_saving: bool
    metrics: dict[str, float] | None = None


class Course(abc.ABC):
    """What a run is like beside its steps.

    Attributes:
      steps: that are planned. log_every, checkpoint_every: steps between progress lines, and between checkpoints.
      stall_minutes: without progress after which the run ends; 0: never.
      rate: of learning, by step. peak_rate, rate_key: its highest value, and the key of the config that says it.
      dtype: of matrix products. freeze: `optim.freeze`. judged_on: what is evaluated, for messages.
    """

    steps: int
    log_every: int
    checkpoint_every: int
    stall_minutes: float
    rate: optax.Schedule
    peak_rate: float
    rate_key: str
    dtype: str
    freeze: tuple[str, ...]
    judged_on: str

    @abc.abstractmethod
    def over(self, step: int) -> bool:
        """Says whether training is over after this step, and after its evaluation if there is one."""

    @abc.abstractmethod
    def evaluates(self, step: int) -> bool:
        """Says whether to evaluate after this step; 0: before the first."""

    @abc.abstractmethod
    def evaluate(self, step: int, state: TrainState) -> tuple[Judgement, dict[str, float]]:
        """Evaluates; returns what was found, and the metrics to be written."""

    @abc.abstractmethod
    def judged(self, step: int, state: TrainState, metrics: dict[str, float]) -> None:
        """Tells of an evaluation, when its metrics are written; keeps what is to be kept of it."""

    def reports(self, step: int) -> bool:
        """Says whether there is a progress line after this step."""
        return step % self.log_every == 0 or step == self.steps

    def scalars(self, step: int, scalars: dict[str, float]) -> dict[str, float]:
        """Returns the metrics of a progress line as they are written."""
        del step
        return scalars

    @abc.abstractmethod
    def where(self, step: int) -> str:
        """Returns the beginning of a progress line: how far the run is."""


class Batches(Protocol):
    """Host batches in their order; the position can be saved and restored."""

    def __next__(self) -> Batch:
        """Returns the next batch."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Returns the position, JSON-able."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a position."""
        ...


class Loop:
    """Steps until the course is over, a signal comes, or a loss is not finite.

    Args:
      workdir: as the user named it. frozen: what the frozen parameters were at first; None: none are.
      writer, goodput: of metrics, and of what became of the run's time; None: another process has them.

    Attributes:
      state: of the run, after the last step that was done. stopped: whether a signal asked it to stop.
    """

    def __init__(
        self,
        program: Program,
        course: Course,
        state: TrainState,
        batches: Batches,
        store: Checkpoints,
        writer: MetricWriter | None,
        goodput: Goodput | None,
        workdir: str | Path,
        profiler: StepProfiler,
        frozen: Frozen | None,
    ) -> None:
        self.state, self.stopped = state, False
        self._program, self._course, self._batches = program, course, batches
        self._learning = program.learning
        self._store, self._writer, self._workdir, self._profiler = store, writer, workdir, profiler
        self._frozen, self._goodput = frozen, goodput
        self._watchdog = Watchdog(course.stall_minutes, "train.stall_minutes", hosts.end_now)
        peak = flops.peak(jax.devices()[0].device_kind, course.dtype)
        self._peak = peak and peak * jax.device_count()
        self._window = Window(self._learning)
        self._unread: tuple[int, Sums, jax.Array] | None = None
        self._compiled: set[tuple[tuple[int, ...], ...]] = set()  # shapes of batches that there is a program for

    def run(self, start: int, unreported: list[float]) -> bool:
        """Steps; returns whether the course is over. `stopped` says whether a signal came; everything is saved then.

        Args:
          start: step of the state. unreported: sums that were saved for the next progress line.

        Raises:
          ValueError: what is frozen changed, or something cannot be written. NonFiniteLoss: training diverged.
        """
        self._window = Window(self._learning, unreported)
        with self._watchdog:
            over = self._steps(start)
            self._store.wait()
        if self._goodput is not None:
            log.info("%s", self._goodput.line())
        return over

    def _steps(self, start: int) -> bool:
        course = self._course
        if start == 0 and course.evaluates(0):
            self._evaluate(0)
        with stop_signal() as stopped:
            self._window.start()
            for step in itertools.count(start + 1):
                if course.over(step - 1):
                    break
                self._profiler.before(step - start)
                self._step(step)
                self._profiler.after(step - start, self.state)
                if course.reports(step):
                    self._report(step)
                judgement = self._evaluate(step) if course.evaluates(step) else None
                over = course.over(step)
                stop = stopped(step)  # asked once, so that what is said to be saved is: a signal may come at any time
                if over and self._frozen is not None:  # before it is saved, or the run would pass for finished
                    log.info("%s", check_unchanged(self.state.params, course.freeze, self._frozen))
                worth = judgement is not None and judgement.worth_saving
                if worth or stop or over or step % course.checkpoint_every == 0:
                    self._read_sums()
                    self._save(step, judgement and judgement.metrics)
                if stop:
                    self._store.wait()
                    log.info("stopped by signal at step %d, saved; the same command goes on from there", step)
                    self.stopped = True
                    return over
        return True

    def _step(self, step: int) -> None:
        started = time.perf_counter()
        batch = next(self._batches)
        self._window.waited += time.perf_counter() - started
        self._window.units += self._learning.count(batch)
        self._window.flops += self._learning.training_flops(batch)
        self._window.steps += 1
        placed = self._program.place(batch)
        new = self._compile(placed)
        self.state, sums, norm = self._program.train_step(self.state, placed)
        self._read_sums()  # the step before this one: reading it now keeps the device busy with this one
        self._unread = (step, sums, norm)
        self._watchdog.progress(f"step {step}")
        if new:  # the speed on the progress lines leaves such a step out
            jax.block_until_ready(self.state)
            self._window.forget_speed()

    def _compile(self, batch: Batch) -> bool:
        """Compiles the step for a batch of another shape than those before; returns whether it is one."""
        shape = tuple(x.shape for x in jax.tree.leaves(batch))
        if shape in self._compiled:
            return False
        first, started = not self._compiled, time.perf_counter()
        if first:
            log.info("compiling the training step")
        # Alone, so that what the compiler takes is given back before the step takes its own. Before the first step
        # there is nothing to be saved.
        with interrupts.deferred(until_saved=not first):
            compiled = self._program.train_step.lower(self.state, batch).compile()
        self._watchdog.progress("the compilation of a step")
        self._compiled.add(shape)
        give_memory_back()
        if jax.default_backend() == "cpu":
            keep_between_steps(getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0))
        if first:
            log.info("compiled in %.0f s", time.perf_counter() - started)
        return True

    def _read_sums(self) -> None:
        if self._unread is None:
            return
        step, sums, norm = self._unread
        self._unread = None
        sums, norm = jax.device_get((sums, norm))
        loss = mean_loss(sums, self._learning.parts)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._not_finite(step, f"loss {loss}, gradient norm {norm}")
        self._window.add(sums, float(norm))

    def _not_finite(self, step: int, what: str) -> NonFiniteLoss:
        key, rate = self._course.rate_key, self._course.peak_rate
        return NonFiniteLoss(
            f"step {step}: {what}; {self._go_on()}; a smaller {key} (now {rate}) or more warm-up may help"
        )

    def _go_on(self) -> str:
        """Says from where the run can go on."""
        self._store.wait()
        last = self._store.latest
        none = "there is no checkpoint yet"
        return none if last is None else f"the last good checkpoint is step {last} in {self._workdir}"

    def _report(self, step: int) -> None:
        self._read_sums()
        course, unit = self._course, self._learning.unit
        scalars = self._window.scalars(self._peak) | {"learning_rate": float(np.asarray(course.rate(step - 1)))}
        scalars |= self._count_time(step)
        self._write(step, course.scalars(step, scalars))
        speed = f"{scalars[f'{unit}_per_second']:,.0f} {unit}/s"
        if scalars["tflops_per_second"]:
            speed += f"  {scalars['tflops_per_second']:.3g} TFLOP/s"
        if "mfu" in scalars:
            speed += f" (MFU {100 * scalars['mfu']:.1f} %)"
        log.info(
            "%s  %s  %s  %.0f ms/step  %.1f %% waiting for data  ETA %s",
            course.where(step), self._learning.progress_line(scalars), speed, scalars["ms_per_step"],
            100 * scalars["data_wait"], duration(max(course.steps - step, 0) * scalars["ms_per_step"] / 1000),
        )  # fmt: skip
        self._window = Window(self._learning)
        self._window.start()

    def _evaluate(self, step: int) -> Judgement:
        paused = time.perf_counter()
        judgement, metrics = self._course.evaluate(step, self.state)
        if not math.isfinite(judgement.loss):
            raise self._not_finite(step, f"{self._course.judged_on} loss {judgement.loss}")
        self._write(step, metrics)
        if not hosts.alone():  # what is kept is written by all processes, too: orbax's two writes would wait crosswise
            self._store.wait()
        self._course.judged(step, self.state, metrics)
        self._window.pause(time.perf_counter() - paused)
        self._watchdog.progress(f"the evaluation at step {step}")
        return judgement

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is not None:
            with self._naming(step):
                self._writer.write(step, scalars)

    def _count_time(self, step: int) -> dict[str, float]:
        """Adds the time of the last steps to the account of the run; returns the goodput, where this process has it."""
        seconds = self._window.take_seconds()
        if self._goodput is None:
            return {}
        with self._naming(step):
            return {"goodput": self._goodput.add(step, seconds).share}

    @contextlib.contextmanager
    def _naming(self, step: int) -> Iterator[None]:
        """Adds the step, and from where the run can go on, to what could not be written."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"step {step}: {error}; {self._go_on()}") from error

    def _save(self, step: int, metrics: dict[str, float] | None) -> None:
        paused = time.perf_counter()
        self._store.save(step, self.state, self._batches, metrics, self._window.unreported)
        self._window.pause(time.perf_counter() - paused)
        self._count_time(step)
        self._watchdog.progress(f"the checkpoint of step {step}")
