"""The training loop of pre-training and fine-tuning: take a batch, step, report, evaluate, save, stop.

A `Course` tells the loop when to evaluate and report and when the run ends; `charlm.training.train` has the course of
pre-training, `charlm.finetune.course` that of fine-tuning. Open this module to change what every run does.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from charlm.core import checkpoint as checkpoints
from charlm.core import flops, hosts, interrupts
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.frozen import Frozen, check_unchanged
from charlm.core.frozen_cost import share_left
from charlm.core.learning import Batch
from charlm.core.local_store import LocalCheckpoints
from charlm.core.memory import give_memory_back, keep_between_steps
from charlm.core.metric_writer import MetricWriter
from charlm.core.profiling import StepProfiler
from charlm.core.spikes import Seen
from charlm.core.state import TrainState
from charlm.core.step import Sums, mean_loss
from charlm.core.types import JsonObject, Params
from charlm.core.watchdog import Watchdog
from charlm.training.goodput import Goodput
from charlm.training.program import Program
from charlm.training.progress import SinceReport, duration, stop_signal
from charlm.training.spikes import GoBack, Spikes

log = logging.getLogger("charlm")


class NonFiniteLoss(ValueError):
    """Raised if the loss or its gradient became NaN or infinite; the message names the step and the last checkpoint."""


class Judgement(NamedTuple):
    """The result of an evaluation.

    Attributes:
      loss: the loss on text that is not trained on.
      worth_saving: whether to save the state now.
      metrics: metrics saved with the checkpoint, by which the best checkpoint is chosen.
    """

    loss: float
    worth_saving: bool
    metrics: dict[str, float] | None = None


class Course(abc.ABC):
    """The schedule of a run: when to report, evaluate and end, and how to evaluate.

    Attributes:
      steps: number of planned steps.
      log_every: steps between progress lines.
      checkpoint_every: steps between checkpoints.
      stall_minutes: minutes without progress after which the run ends; 0: never.
      rate: learning rate by step.
      peak_rate: the highest learning rate.
      rate_key: the config key that sets it.
      dtype: dtype of matrix products.
      freeze: `optim.freeze`.
      judged_on: name of the evaluated text, for messages.
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
        """Returns whether training is over after this step, including its evaluation if there is one."""

    @abc.abstractmethod
    def evaluates(self, step: int) -> bool:
        """Returns whether to evaluate after this step; step 0 means before the first step."""

    @abc.abstractmethod
    def evaluate(self, step: int, state: TrainState) -> tuple[Judgement, dict[str, float]]:
        """Evaluates the state; returns the judgement, and the metrics to write to the metrics file."""

    @abc.abstractmethod
    def judged(self, step: int, state: TrainState, metrics: dict[str, float]) -> None:
        """Logs an evaluation after its metrics were written, and keeps the model if it is to be kept."""

    @abc.abstractmethod
    def went_back(self, step: int) -> None:
        """Takes over what is known at this earlier step, from which the run goes on; the metrics end with it."""

    def may_go_back(self) -> bool:
        """Returns whether the batches up to the last one taken may be passed over if its step is a spike."""
        return True

    def reports(self, step: int) -> bool:
        """Returns whether to log a progress line after this step."""
        return step % self.log_every == 0 or step == self.steps

    def scalars(self, step: int, scalars: dict[str, float]) -> dict[str, float]:
        """Returns the metrics of a progress line in the form in which they are written to the metrics file."""
        del step
        return scalars

    @abc.abstractmethod
    def where(self, step: int) -> str:
        """Returns the beginning of a progress line, which says how far the run is."""


class Batches(Protocol):
    """An iterator over host batches whose position can be saved and restored, to be closed in the end."""

    def __next__(self) -> Batch:
        """Returns the next batch."""
        ...

    def get_state(self) -> JsonObject:
        """Returns the position as JSON-able values."""
        ...

    def set_state(self, state: JsonObject) -> None:
        """Moves to a saved position."""
        ...

    def close(self) -> None:
        """Ends the threads or processes that make batches ahead."""
        ...


class Loop:
    """Trains until the course is over, a signal arrives, or a loss is not finite.

    Args:
      workdir: the folder as the user named it.
      frozen: fingerprint of the frozen parameters at the start of the run; None: none are frozen.
      writer: writer of metrics; None: another process writes them.
      goodput: account of the run's time; None: another process keeps it.
      spikes: what to do about loss spikes.
      local: checkpoints on a disk of this host; None: there are none.

    Attributes:
      state: the state after the last completed step.
      stopped: whether a signal stopped the run.
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
        spikes: Spikes,
        local: LocalCheckpoints | None = None,
    ) -> None:
        self.state, self.stopped = state, False
        self._spikes, self._stopping, self._local = spikes, False, local
        self._begun = False  # whether the workdir holds a checkpoint, or will as soon as it is written
        self._program, self._course, self._batches = program, course, batches
        self._learning = program.learning
        self._store, self._writer, self._workdir, self._profiler = store, writer, workdir, profiler
        self._frozen, self._goodput = frozen, goodput
        self._watchdog = Watchdog(course.stall_minutes, "train.stall_minutes", hosts.end_now)
        peak = flops.peak(jax.devices()[0].device_kind, course.dtype)
        self._peak = peak and peak * jax.device_count()
        self._since = SinceReport(self._learning)
        self._share = 1.0  # of the cost of a step: what frozen parameters leave
        # Of the last step: its number, sums and norm, and whether to go back to a checkpoint if it is a spike.
        self._unread: tuple[int, Sums, jax.Array | Seen, bool] | None = None
        self._compiled: set[tuple[tuple[int, ...], ...]] = set()  # batch shapes whose program is compiled

    def run(self, start: int, unreported: list[float]) -> bool:
        """Trains; returns whether the course is over. After a signal, everything is saved and `stopped` is True.

        Args:
          start: step of the state.
          unreported: sums that were saved for the next progress line.

        Raises:
          ValueError: frozen parameters changed, or a file cannot be written.
          NonFiniteLoss: training diverged.
        """
        self._since = SinceReport(self._learning, unreported)
        with self._watchdog:
            if self._local is not None:
                self._local.keep_up_to(start)
                self._begun = hosts.from_primary(self._store.latest is not None)
            self._pass_over(start)
            over = self._steps(start)
            self._store.wait()
        if self._local is not None and over:
            self._local.remove()
        if self._goodput is not None:
            log.info("%s", self._goodput.line())
        return over

    def _steps(self, start: int) -> bool:
        course = self._course
        if start == 0 and course.evaluates(0):
            self._evaluate(0)
        with stop_signal() as stopped:
            self._since.start()
            step = start
            for taken in itertools.count(1):  # more than `step - start` in a run that went back to a checkpoint
                if course.over(step):
                    break
                step += 1
                try:
                    self._profiler.before(taken)
                    self._step(step)
                    self._profiler.after(taken, self.state)
                    over = self._after(step, lambda taken=taken: stopped(start + taken))
                except GoBack as back:
                    step = self._go_back(back)
                    continue
                if self._stopping:
                    self._store.wait()
                    log.info("stopped by signal at step %d, saved; the same command goes on from there", step)
                    self.stopped = True
                    return over
        return True

    def _after(self, step: int, stopped: Callable[[], bool]) -> bool:
        """Reports, evaluates and saves after a step, where it is due; returns whether the course is over."""
        course = self._course
        if course.reports(step):
            self._report(step)
        if self._spikes.on and course.evaluates(step):
            self._read_sums()  # the state of a spike is not evaluated
        judgement = self._evaluate(step) if course.evaluates(step) else None
        over = course.over(step)
        # Asked once a step: a signal after this line must not be reported as saved.
        self._stopping = stopped() or self._stopping
        if over and self._frozen is not None:  # check before saving, or the run would count as finished
            log.info("%s", check_unchanged(self.state.params, course.freeze, self._frozen))
        worth = judgement is not None and judgement.worth_saving
        every = 0 if self._local is None else self._local.every
        between = every > 0 and step % every == 0
        first = between and (not self._begun or step == every)  # local ones need one in the workdir
        planned = worth or over or first or step % course.checkpoint_every == 0
        if planned or self._stopping:
            self._read_sums()
            self._save(step, judgement and judgement.metrics, self._spikes.restores and not planned)
        elif between:
            self._save_here(step)
        return over

    def _step(self, step: int) -> None:
        started = time.perf_counter()
        batch = next(self._batches)
        may_go_back = self._spikes.restores and self._course.may_go_back()
        self._since.waited += time.perf_counter() - started
        placed = self._program.place(batch)
        new = self._compile(placed)
        self._since.units += self._learning.count(batch)
        self._since.flops += self._learning.training_flops(batch) * self._share
        self._since.steps += 1
        self.state, sums, norm = self._program.train_step(self.state, placed)
        self._read_sums()  # reads the previous step's sums, while the device computes this step
        self._unread = (step, sums, norm, may_go_back)
        self._watchdog.progress(f"step {step}")
        if new:  # leave the step with the compilation out of the reported speed
            jax.block_until_ready(self.state)
            self._since.forget_speed()

    def _compile(self, batch: Batch) -> bool:
        """Compiles the step if the batch has a new shape; returns whether it has."""
        shape = tuple(x.shape for x in jax.tree.leaves(batch))
        if shape in self._compiled:
            return False
        self._since.keep_seconds()
        first, started = not self._compiled, time.perf_counter()
        if first:
            log.info("compiling the training step")
            self._share = self._cost(batch)
        # Compiled separately, so that the compiler's memory is returned before the step allocates its own. Before the
        # first step there is nothing to save, so Ctrl-C ends the process at once.
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

    def _cost(self, batch: Batch) -> float:
        """Returns the cost of a step as a share of one in which no parameter is frozen."""
        learning, freeze = self._learning, self._course.freeze
        if not freeze or learning.counts_frozen:
            return 1.0
        part = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch)

        def loss(params: Params) -> jax.Array:
            zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), part)
            sums = learning.loss_sums(params, zeros, jax.random.key(0))
            return sum(sums[: 2 * learning.parts : 2], jnp.zeros(()))

        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.state.params)
        return share_left(loss, shapes, freeze)

    def _read_sums(self) -> None:
        if self._unread is None:
            return
        step, sums, norm, may_go_back = self._unread
        self._unread = None
        sums, norm = jax.device_get((sums, norm))
        loss = mean_loss(sums, self._learning.parts)
        if isinstance(norm, Seen):
            self._spikes.count(norm)
            if norm.spike:
                self._spike(step, loss, norm, may_go_back)
                return
            norm = norm.norm
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._not_finite(step, f"loss {loss}, gradient norm {norm}")
        self._since.add(sums, float(norm))

    def _spike(self, step: int, loss: float, seen: Seen, may_go_back: bool) -> None:
        """Logs a spike, whose update the step left out; raises `GoBack` if there is a checkpoint to go back to."""
        with self._naming(step):
            self._spikes.note(step, loss, seen)
        checkpoint = self._store.last_planned(self._spikes.most(step)) if may_go_back else None
        if checkpoint is not None:
            raise GoBack(checkpoint, step)

    def _go_back(self, back: GoBack) -> int:
        """Goes back to a checkpoint and past the batches up to a spike; returns the checkpoint's step.

        A run that is killed before the file is written comes to the same spike again, since later checkpoints are gone.
        """
        step, store, abstract = back.checkpoint, self._store, self._program.abstract_state
        self._count_time(back.spike)
        with self._naming(back.spike):
            restored = self._spikes.restored(step, back.spike)
        if self._local is not None:
            self._local.keep_up_to(step)
        store.remove_after(step)
        with self._naming(back.spike):
            self._spikes.add(restored)
        log.warning("going back to step %d", step)
        self.state = abstract  # frees the memory of the old state
        self.state = store.restore(step, abstract, self._batches)
        self._unread = None
        if self._writer is not None:
            self._writer.go_back(step)
        if self._goodput is not None:
            self._goodput.go_back(step)
        self._pass_over(step)
        self._course.went_back(step)
        self._since = SinceReport(self._learning, checkpoints.unreported(store.folder(step)))
        self._since.start()
        return step

    def _pass_over(self, step: int) -> None:
        """Takes the batches that are passed over after a checkpoint, if it has any."""
        count = self._spikes.to_pass_over(step)
        if count:
            log.warning("passing over %d batches after step %d, up to a spike", count, step)
        for at in range(count):
            next(self._batches)
            self._watchdog.progress(f"passing over batch {at + 1}")

    def _not_finite(self, step: int, what: str) -> NonFiniteLoss:
        key, rate = self._course.rate_key, self._course.peak_rate
        return NonFiniteLoss(
            f"step {step}: {what}; {self._go_on()}; a smaller {key} (now {rate}) or more warm-up may help"
        )

    def _go_on(self) -> str:
        """Returns the text that says from which checkpoint the run can resume."""
        self._store.wait()
        last = self._store.latest
        none = "there is no checkpoint yet"
        return none if last is None else f"the last good checkpoint is step {last} in {self._workdir}"

    def _report(self, step: int) -> None:
        self._read_sums()
        course, unit = self._course, self._learning.unit
        if not self._since.unreported[-1]:
            log.info("%s  every step since the last line was a spike", course.where(step))
            return
        scalars = self._since.scalars(self._peak) | {"learning_rate": float(np.asarray(course.rate(step - 1)))}
        scalars |= self._count_time(step) | ({"spikes": float(self._spikes.total)} if self._spikes.on else {})
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
        self._since = SinceReport(self._learning)
        self._since.start()

    def _evaluate(self, step: int) -> Judgement:
        paused = time.perf_counter()
        judgement, metrics = self._course.evaluate(step, self.state)
        if not math.isfinite(judgement.loss):
            raise self._not_finite(step, f"{self._course.judged_on} loss {judgement.loss}")
        self._write(step, metrics)
        if not hosts.alone():  # `judged` may write a checkpoint with all processes: two writes at once would deadlock
            self._store.wait()
        self._course.judged(step, self.state, metrics)
        self._since.pause(time.perf_counter() - paused)
        self._watchdog.progress(f"the evaluation at step {step}")
        return judgement

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is not None:
            with self._naming(step):
                self._writer.write(step, scalars)

    def _count_time(self, step: int) -> dict[str, float]:
        """Adds the time of the last steps to the account of the run; returns the goodput, where this process has it."""
        seconds = self._since.take_seconds()
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

    def _save(self, step: int, metrics: dict[str, float] | None, unplanned: bool) -> None:
        paused = time.perf_counter()
        self._store.save(step, self.state, self._batches, metrics, self._since.unreported, unplanned)
        self._begun = True
        self._since.pause(time.perf_counter() - paused)
        self._count_time(step)
        self._watchdog.progress(f"the checkpoint of step {step}")

    def _save_here(self, step: int) -> None:
        """Saves on the disk of this host, every process what its devices hold."""
        if self._local is None:
            return
        self._read_sums()
        paused = time.perf_counter()
        self._local.save(step, self.state, self._batches, self._since.unreported)
        self._since.pause(time.perf_counter() - paused)
        self._count_time(step)
        self._watchdog.progress(f"the local checkpoint of step {step}")
