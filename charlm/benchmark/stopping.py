"""Handles SIGTERM like Ctrl-C, so that the benchmark ends its processes, removes its folders, and keeps its figures.

`__main__` wraps the whole measurement in it. Open it to change how an interrupted benchmark ends, and with which exit
status.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Terminated(KeyboardInterrupt):
    """Raised when the process receives SIGTERM."""


def _raise(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM would interrupt the clean-up
    raise Terminated


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within this context, SIGTERM raises `Terminated` in the main thread; has no effect in other threads."""
    try:
        before = signal.signal(signal.SIGTERM, _raise)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def status_of(stop: KeyboardInterrupt) -> tuple[int, str]:
    """Returns the exit status of an interrupted program, and a word for its message."""
    if isinstance(stop, Terminated):
        return 128 + signal.SIGTERM, "terminated"
    return 128 + signal.SIGINT, "interrupted"
