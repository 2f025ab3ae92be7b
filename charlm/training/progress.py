"""The log lines of a run at its start, during training and at its end, the metrics behind them, and stop signals.

Open it to change what a run logs, how its speed is measured, or how it reacts to SIGTERM.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import jax
from jax.experimental import multihost_utils

from charlm.core import hosts, interrupts
from charlm.core.called_as import as_typed
from charlm.core.learning import Learning
from charlm.core.metric_writer import METRICS_FILE as METRICS_FILE
from charlm.core.metric_writer import parse_line
from charlm.core.step import Sums
from charlm.families.objective import Objective
from charlm.training.run import Run, count_parameters

log = logging.getLogger("charlm")


def report_start(run: Run, workdir: str) -> None:
    """Logs devices, parameters by part, the text, and the objective's lines about vocabularies and batches."""
    log.info("writing to %s; devices: %d x %s", workdir, jax.device_count(), jax.devices()[0].device_kind)
    for part, count in count_parameters(run.abstract_state.params).items():
        log.info("parameters  %-25s %13s", part, f"{count:,}")
    data = run.objective.data
    for name, corpora in (("train", data.train), ("held-out", data.heldout)):
        words = sum(corpus.stats.words for corpus in corpora)
        if corpora:
            log.info("text  %-8s %s words, %d corpora", name, f"{words:,}", len(corpora))
    for line in run.objective.start_lines():
        log.info("%s", line)


class SinceReport:
    """Sums and timing since the last progress line.

    The sums are saved with checkpoints, so that a resumed run reports the same metrics as an uninterrupted one.
    """

    def __init__(self, learning: Learning, unreported: Sequence[float] = ()) -> None:
        self._learning = learning
        self.steps = self.units = 0  # counts of this process, for the speed
        self.waited = self.flops = 0.0
        # The sums of the loss and its metrics, then the sum of gradient norms, then the number of steps.
        self.unreported = list(unreported or [0.0] * (len(learning.sums._fields) + 2))
        self._started, self._taken = time.perf_counter(), 0.0
        self._kept = 0.0

    def start(self) -> None:
        """Starts the clock."""
        self._started, self._taken = time.perf_counter(), 0.0

    def keep_seconds(self) -> None:
        """Keeps the seconds so far for `take_seconds`, since the clock is about to be started afresh."""
        self._kept += self._new_seconds()

    def forget_speed(self) -> None:
        """Restarts the clock and the counts for the speed."""
        self.steps = self.units = 0
        self.waited = self.flops = 0.0
        self.start()

    def pause(self, seconds: float) -> None:
        """Leaves `seconds`, spent on evaluation or saving, out of the speed."""
        self._started += seconds

    def take_seconds(self) -> float:
        """Returns the seconds in steps since this was last asked, without those of a step that was compiled."""
        seconds, self._kept = self._kept + self._new_seconds(), 0.0
        return seconds

    def _new_seconds(self) -> float:
        before, self._taken = self._taken, time.perf_counter() - self._started
        return max(self._taken - before, 0.0)

    @property
    def speed(self) -> float:
        """Units a second of this process; 0.0 before the first step whose speed counts."""
        return self.units / max(time.perf_counter() - self._started, 1e-9)

    def add(self, sums: Sums, norm: float) -> None:
        """Adds the sums and the gradient norm of a step."""
        added = [*(float(x) for x in sums), norm, 1.0]
        self.unreported = [a + b for a, b in zip(self.unreported, added, strict=True)]

    def scalars(self, peak: float | None = None) -> dict[str, float]:
        """Returns the metrics of the window, including the speed if it is known; all processes must call it.

        It is not known of a window whose last step was the first of its shape, which was compiled.

        Args:
          peak: peak FLOP/s of all devices together. If it is given and operations are counted, the metrics include
            "mfu", the share of it that was used.
        """
        units, flops = hosts.total(self.units), hosts.total(self.flops)
        seconds = max(time.perf_counter() - self._started, 1e-9)
        *sums, norms, steps = self.unreported
        found = self._learning.summarize(self._learning.sums(*sums)) | {"grad_norm": norms / steps}
        if not self.steps:
            return found
        return (
            found
            | {
                f"{self._learning.unit}_per_second": units / seconds,
                "tflops_per_second": flops / seconds / 1e12,
                "ms_per_step": 1000 * seconds / self.steps,
                "data_wait": self.waited / seconds,
            }
            | ({"mfu": flops / seconds / peak} if peak and flops else {})
        )


@contextmanager
def stop_signal() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns, after a step, whether SIGTERM or SIGINT arrived: the loop then saves and ends.

    With several processes, all must call it equally often. A signal to one of them is enough, also one that arrived
    before this context: it returns True on all of them at the same call.
    """
    if not hosts.alone():
        yield from _stop_together()
        return
    received: list[int] = []
    handled = (signal.SIGTERM, signal.SIGINT)
    try:
        before = [signal.getsignal(number) for number in handled]

        def receive(signum: int, frame: FrameType | None) -> None:
            received.append(signum)
            interrupts.leave(signum)
            signal.signal(signum, before[handled.index(signum)])  # a second one ends the program

        for number in handled:
            signal.signal(number, receive)
    except ValueError:  # not in the main thread (a notebook's worker): signals keep their usual effect
        yield lambda: False
        return
    try:
        with interrupts.deferred():
            yield lambda: bool(received)
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)


_asked = itertools.count(1)  # how often the processes asked each other whether to stop


def _stop_together() -> Iterator[Callable[[], bool]]:
    """The version of `stop_signal` for several processes, which turns Ctrl-C into SIGTERM.

    JAX listens for SIGTERM itself, and lets the processes agree on the number after the largest that any has passed:
    at this one alone it says yes. So calls are numbered through all runs of a process; numbers of steps begin anew in
    the next run, go on from a checkpoint's, and are left out where a run goes back. A second Ctrl-C ends this process
    at once.
    """

    def interrupted(signum: int, frame: FrameType | None) -> None:
        interrupts.leave(signum)
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with interrupts.deferred():
            yield lambda: multihost_utils.reached_preemption_sync_point(next(_asked))
    finally:
        signal.signal(signal.SIGINT, before)


def duration(seconds: float) -> str:
    """Returns seconds in readable form: "2d 3h", "3h 5m" or "5m 7s"."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days}d {hours % 24}h"
    return f"{hours}h {minutes % 60}m" if hours else f"{minutes}m {int(seconds) % 60}s"


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Returns the lines of a run's metrics file, oldest first."""
    path = folder / METRICS_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [metrics for line in lines if (metrics := parse_line(line)) is not None]


def report_heldout(objective: type[Objective] | Objective, folder: Path) -> None:
    """Logs the held-out metrics before and after training."""
    curve = [m for m in read_metrics(folder) if "heldout_loss" in m]
    if curve:  # the user may have moved the metrics file
        log.info("%s", objective.change(curve[0], curve[-1]))


def report_finished(objective: type[Objective], folder: Path, workdir: str, step: int, steps_key: str) -> None:
    """Logs the results of a run that has done all its steps, and what the user can do next.

    Args:
      steps_key: the config key to raise for further training.
    """
    log.info("%s holds a finished run of %d steps: nothing to do", workdir, step)
    report_heldout(objective, folder)
    log.info("train on with a larger --config.%s, start afresh with another --workdir,", steps_key)
    log.info("or try it: %s", as_typed(objective.use.format(workdir=workdir)))
