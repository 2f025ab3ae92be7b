"""Goodput: the share of the wall time since a run was first started that went into steps which lasted.

Time is lost while a run starts, compiles, evaluates and writes checkpoints, while nothing runs between a crash and the
next start, and in steps that are done again because the crash came before they were saved. Each start appends to
`GOODPUT_FILE` in the workdir; open this to change what counts as lost.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from charlm.core.durable import write_text
from charlm.core.reading import loads
from charlm.training.progress import duration

GOODPUT_FILE = "goodput.jsonl"


class RunStart(NamedTuple):
    """One start of a run.

    Attributes:
      time: when it started, in seconds since 1970.
      step: the step of the state that it started from.
      steps: some later steps, ascending.
      seconds: for each of `steps`, the time that went into steps since the start.
      again: whether the run was not started, but went back to an earlier step by itself.
    """

    time: float
    step: int
    steps: list[int]
    seconds: list[float]
    again: bool = False

    def until(self, step: int) -> float:
        """Returns the seconds that went into the steps up to `step`, interpolated between two steps of `steps`."""
        steps, seconds = [self.step, *self.steps], [0.0, *self.seconds]
        after = bisect_right(steps, step)
        if after == len(steps):
            return seconds[-1]
        if after == 0:
            return 0.0
        share = (step - steps[after - 1]) / (steps[after] - steps[after - 1])
        return seconds[after - 1] + share * (seconds[after] - seconds[after - 1])


class Account(NamedTuple):
    """What became of the time of a run so far.

    Attributes:
      lasted: seconds that went into steps that lasted.
      lost: seconds that went into steps that had to be done again.
      wall: seconds since the first start.
      starts: how often the run was started.
    """

    lasted: float
    lost: float
    wall: float
    starts: int

    @property
    def share(self) -> float:
        """The goodput, from 0 to 1."""
        return min(1.0, self.lasted / self.wall) if self.wall > 0 else 0.0


def account(starts: Iterable[RunStart], now: float) -> Account:
    """Returns what became of the time of a run until `now` (seconds since 1970).

    The steps of a start lasted up to the earliest step that a later start went on from.
    """
    starts = list(starts)
    lasted = done = 0.0
    for number, start in enumerate(starts):
        end = max([start.step, *start.steps])
        done += start.until(end)
        lasted += start.until(min([end, *(later.step for later in starts[number + 1 :])]))
    wall, count = now - starts[0].time if starts else 0.0, sum(not start.again for start in starts)
    return Account(lasted, done - lasted, wall, count)


def read_starts(folder: Path) -> list[RunStart]:
    """Returns the starts of the run in a workdir, the oldest first; lines that are damaged are left out."""
    starts: list[RunStart] = []
    try:
        lines = (folder / GOODPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return starts
    for line in lines:
        try:
            found = loads(line)
            when, step, seconds = float(found["time"]), int(found["step"]), found.get("seconds")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if seconds is None:
            starts.append(RunStart(when, step, [], [], found.get("again") is True))
        elif starts and isinstance(seconds, int | float) and step > max([starts[-1].step, *starts[-1].steps]):
            starts[-1].steps.append(step)
            starts[-1].seconds.append(float(seconds))
    return starts


class Goodput:
    """Keeps the account of a run; one process of it does.

    Args:
      folder: the workdir of the run.
      step: the step of the state that it starts from now.

    Raises:
      ValueError: the file cannot be written.
    """

    def __init__(self, folder: Path, step: int, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = folder / GOODPUT_FILE, clock
        self._starts = [*read_starts(folder), RunStart(clock(), step, [], [])]
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            write_text(self._path, self._path.read_text(encoding="utf-8", errors="replace") + "\n")  # cut by a crash
        self._append({"time": self._starts[-1].time, "step": step})

    def go_back(self, step: int) -> None:
        """Notes that the run goes on from this earlier step."""
        self._starts.append(RunStart(self._clock(), step, [], [], again=True))
        self._append({"time": self._starts[-1].time, "step": step, "again": True})

    def add(self, step: int, seconds: float) -> Account:
        """Notes that the steps up to this one took so many more seconds; returns the account so far."""
        now, start = self._clock(), self._starts[-1]
        total = (start.seconds[-1] if start.seconds else 0.0) + seconds
        start.steps.append(step)
        start.seconds.append(total)
        self._append({"time": now, "step": step, "seconds": round(total, 3)})
        return account(self._starts, now)

    def line(self) -> str:
        """Returns the account so far as people read it."""
        found = account(self._starts, self._clock())
        again = f", {duration(found.lost)} of steps done again" if found.lost >= 1 else ""
        starts = f", {found.starts} starts" if found.starts > 1 else ""
        return (
            f"goodput {100 * found.share:.1f} %: {duration(found.lasted)} of steps in the {duration(found.wall)} since "
            f"the first start{starts}{again}"
        )

    def _append(self, line: dict[str, float]) -> None:
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise ValueError(f"{self._path} cannot be written: {error.strerror}") from error
