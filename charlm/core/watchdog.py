"""Ends a run that makes no progress, so that a scheduler can start it again: a hang costs minutes, not a weekend.

A step may wait for ever: for a collective over a broken link, for a file server that does not answer, for a lock. Since
the process is still alive, nothing restarts it. The run reports its progress to a `Watchdog`. After too long without
progress, the watchdog writes what every thread is doing, and ends the process. The training loop starts it; open it to
change what is written before the process is ended.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Self

_CHECKS = 20  # checks within the limit: a stall is noticed at most a twentieth of it late


class Watchdog:
    """Watches for progress while its block runs.

    Args:
      minutes: time without progress after which the process ends; 0: never. It must be longer than the longest step,
        its compilation, an evaluation and the writing of a checkpoint.
      key: the config key that sets `minutes`, for the message.
      end: a function that gets the message and ends the process.
    """

    def __init__(self, minutes: float, key: str, end: Callable[[str], object]) -> None:
        self._seconds, self._key, self._end = 60 * minutes, key, end
        self._done = "before the first step"
        self._last = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._last = time.monotonic()
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def progress(self, done: str) -> None:
        """Notes that something was finished; `done` says what, as "after step 7"."""
        self._done, self._last = done, time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(self._seconds / _CHECKS):
            if time.monotonic() - self._last < self._seconds:
                continue
            print(_stacks(), file=sys.stderr, flush=True)
            self._end(
                f"no progress for {self._seconds / 60:g} minutes ({self._key}), last {self._done}; above is what every "
                "thread was doing; the same command goes on from the last checkpoint"
            )
            return


def _stacks() -> str:
    """Returns what every thread is doing, the main one first; `faulthandler` would leave it out behind a hundred."""
    frames, main = sys._current_frames(), threading.main_thread()
    threads = sorted(threading.enumerate(), key=lambda thread: thread is not main)
    parts = []
    for thread in threads:
        if (frame := frames.get(thread.ident or 0)) is not None:
            parts.append(f"thread {thread.name}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)
