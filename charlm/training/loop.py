"""The training loop of pre-training and fine-tuning: take a batch, step, report, evaluate, save, stop.

A `Course` (`charlm.training.course`) tells the loop when to evaluate and report and when the run ends,
`charlm.training.assembly` puts it together. Open this module to change what every run does.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core import flops, hosts, interrupts
from charlm.core.frozen import Frozen, check_unchanged
from charlm.core.frozen_cost import share_left
from charlm.core.learning import Batch
from charlm.core.memory import give_memory_back, keep_between_steps
from charlm.core.profiling import StepProfiler
from charlm.core.progress_bar import ProgressBar, progress_bar
from charlm.core.spikes import Seen
from charlm.core.state import TrainState
from charlm.core.step import Sums, mean_loss
from charlm.core.types import Params
from charlm.core.watchdog import Watchdog
from charlm.training.course import Batches, Course, Judgement
from charlm.training.going_back import GoBack, GoingBack
from charlm.training.program import Program
from charlm.training.progress import SinceReport, duration, stop_signal
from charlm.training.records import RunRecorder
from charlm.training.saving import Saving
from charlm.training.spikes import Spikes

log = logging.getLogger("charlm")


class NonFiniteLoss(ValueError):
    """Raised if the loss or its gradient became NaN or infinite; the message names the step and the last checkpoint."""


class Loop:
    """Trains until the course is over, a signal arrives, or a loss is not finite.

    Args:
      state: the state to start from.
      saving: writes checkpoints.
      recorder: writes metrics and times.
      profiler: traces a few steps.
      frozen: fingerprint of the frozen parameters at the start of the run; None: none are frozen.
      spikes: what to do about loss spikes.

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
        saving: Saving,
        recorder: RunRecorder,
        profiler: StepProfiler,
        frozen: Frozen | None,
        spikes: Spikes,
    ) -> None:
        self.state, self.stopped = state, False
        self._program, self._course, self._batches = program, course, batches
        self._learning = program.learning
        self._saving, self._recorder, self._profiler = saving, recorder, profiler
        self._frozen, self._spikes, self._stopping = frozen, spikes, False
        self._watchdog = Watchdog(course.stall_minutes, "train.stall_minutes", hosts.end_now)
        self._going_back = GoingBack(spikes, saving, recorder, batches, course, self._watchdog.progress)
        peak = flops.peak(jax.devices()[0].device_kind, course.dtype)
        self._peak = peak and peak * jax.device_count()
        self._since = SinceReport(self._learning)
        self._share = 1.0  # of the cost of a step: what frozen parameters leave
        # Of the last step: its number, sums and norm, and whether to go back to a checkpoint if it is a spike.
        self._unread: tuple[int, Sums, jax.Array | Seen, int | None] | None = None
        self._bar: ProgressBar | None = None
        self._loss = math.nan  # the latest that was read
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
        with self._watchdog, progress_bar(self._course.steps, self._learning.unit) as self._bar:
            self._saving.begin(start)
            self._going_back.pass_over(start)
            over = self._steps(start)
            self._saving.wait()
        if over:
            self._saving.end()
        self._recorder.log_time()
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
                    over = self._after(step, stopped)
                except GoBack as back:
                    step = self._go_back(back)
                    continue
                if self._stopping:
                    self._saving.wait()
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
        planned = worth or over or self._saving.is_first(step) or step % course.checkpoint_every == 0
        if planned or self._stopping:
            self._read_sums()
            self._save(step, judgement and judgement.metrics, self._spikes.restores and not planned)
        elif self._saving.is_due_here(step):
            self._save_here(step)
        return over

    def _step(self, step: int) -> None:
        started = time.perf_counter()
        batch = next(self._batches)
        earliest = self._course.earliest() if self._spikes.restores else None
        self._since.waited += time.perf_counter() - started
        placed = self._program.place(batch)
        new = self._compile(placed)
        self._since.units += self._learning.count(batch)
        self._since.flops += self._learning.training_flops(batch) * self._share
        self._since.steps += 1
        self.state, sums, norm = self._program.train_step(self.state, placed)
        self._read_sums()  # reads the previous step's sums, while the device computes this step
        self._unread = (step, sums, norm, earliest)
        self._watchdog.progress(f"step {step}")
        if new:  # leave the step with the compilation out of the reported speed
            jax.block_until_ready(self.state)
            self._since.forget_speed()
        if self._bar is not None:
            self._bar.show(step, self._loss, self._since.speed)

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
            lowered = self._program.train_step.lower(self.state, batch)
            hosts.everywhere(lowered.compile)  # one that steps alone gives up after half a minute on CPUs
            compiled = lowered.compile()
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
        step, sums, norm, earliest = self._unread
        self._unread = None
        sums, norm = jax.device_get((sums, norm))
        loss = mean_loss(sums, self._learning.parts)
        if isinstance(norm, Seen):
            self._spikes.count(norm)
            if norm.spike:
                self._going_back.spike(step, loss, norm, earliest)
                return
            norm = norm.norm
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._not_finite(step, f"loss {loss}, gradient norm {norm}")
        self._since.add(sums, float(norm))
        self._loss = loss

    def _go_back(self, back: GoBack) -> int:
        """Goes back to a checkpoint and past the batches up to a spike; returns the checkpoint's step."""
        self._count_time(back.spike)
        self._unread = None
        abstract = self._program.abstract_state
        self.state = abstract  # frees the memory of the old state
        self.state, step, unreported = self._going_back.go_back(back, abstract)
        self._since = SinceReport(self._learning, unreported)
        self._since.start()
        return step

    def _not_finite(self, step: int, what: str) -> NonFiniteLoss:
        key, rate, go_on = self._course.rate_key, self._course.peak_rate, self._saving.where_to_go_on()
        advice = f"a smaller {key} (now {rate}) or more warm-up may help, in another --workdir"
        return NonFiniteLoss(f"step {step}: {what}; {go_on}; {advice}")

    def _report(self, step: int) -> None:
        self._read_sums()
        course = self._course
        if not self._since.unreported[-1]:
            log.info("%s  every step since the last line was a spike", course.where(step))
            return
        scalars = self._since.scalars(self._peak) | {"learning_rate": float(np.asarray(course.rate(step - 1)))}
        scalars |= self._count_time(step) | ({"spikes": float(self._spikes.total)} if self._spikes.on else {})
        self._recorder.write(step, course.scalars(step, scalars))
        log.info("%s  %s  %s", course.where(step), self._learning.progress_line(scalars), self._speed(step, scalars))
        self._since = SinceReport(self._learning)
        self._since.start()

    def _speed(self, step: int, scalars: dict[str, float]) -> str:
        """Returns the part of a progress line on speed and the time that is left."""
        unit = self._learning.unit
        if f"{unit}_per_second" not in scalars:
            return "speed not known yet"
        speed = f"{scalars[f'{unit}_per_second']:,.0f} {unit}/s"
        if scalars["tflops_per_second"]:
            speed += f"  {scalars['tflops_per_second']:.3g} TFLOP/s"
        if "mfu" in scalars:
            speed += f" (MFU {100 * scalars['mfu']:.1f} %)"
        left = duration(max(self._course.steps - step, 0) * scalars["ms_per_step"] / 1000)
        waiting = f"{100 * scalars['data_wait']:.1f} % waiting for data"
        return f"{speed}  {scalars['ms_per_step']:.0f} ms/step  {waiting}  ETA {left}"

    def _evaluate(self, step: int) -> Judgement:
        paused = time.perf_counter()
        judgement, metrics = self._course.evaluate(step, self.state)
        if not math.isfinite(judgement.loss):
            raise self._not_finite(step, f"{self._course.judged_on} loss {judgement.loss}")
        self._recorder.write(step, metrics)
        if not hosts.alone():  # `judged` may write a checkpoint with all processes: two writes at once would deadlock
            self._saving.wait()
        self._course.judged(step, self.state, metrics)
        self._since.pause(time.perf_counter() - paused)
        self._watchdog.progress(f"the evaluation at step {step}")
        return judgement

    def _count_time(self, step: int) -> dict[str, float]:
        """Adds the time of the last steps to the account of the run; returns the goodput, where this process has it."""
        return self._recorder.add_time(step, self._since.take_seconds())

    def _save(self, step: int, metrics: dict[str, float] | None, unplanned: bool) -> None:
        paused = time.perf_counter()
        self._recorder.sync(step)  # a checkpoint must not outlive what was measured before it
        self._saving.save(step, self.state, metrics, self._since.unreported, unplanned)
        self._saved(step, paused, "checkpoint")

    def _save_here(self, step: int) -> None:
        """Saves on the disk of this host, every process what its devices hold."""
        self._read_sums()
        paused = time.perf_counter()
        self._saving.save_here(step, self.state, self._since.unreported)
        self._saved(step, paused, "local checkpoint")

    def _saved(self, step: int, paused: float, what: str) -> None:
        """Leaves the time since `paused` out of the speed, and counts that of the steps before it."""
        self._since.pause(time.perf_counter() - paused)
        self._count_time(step)
        self._watchdog.progress(f"the {what} of step {step}")
