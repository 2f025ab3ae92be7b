"""SIGTERM as Ctrl-C: whoever ends the benchmark, its processes and folders go with it, and figures are kept."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def _raise(signum: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would stop the cleaning up
    raise Terminated


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raises `Terminated` where the program is when SIGTERM comes; changes nothing outside the main thread."""
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
    """Returns the exit status of a program that was stopped, and what it says."""
    if isinstance(stop, Terminated):
        return 128 + signal.SIGTERM, "terminated"
    return 128 + signal.SIGINT, "interrupted"
