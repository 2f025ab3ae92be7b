"""Makes Ctrl-C and SIGTERM end a program promptly and with one line, whatever it is doing.

Python delivers a signal to the main thread only when that thread returns from compiled code, and compiling a program
may take minutes; inside a callback, the exception is lost, and printed with a traceback. Besides, the interpreter may
crash if it shuts down while other threads still compile or read. So a separate thread listens for Ctrl-C, gives the
main thread a moment to clean up, and ends the process without shutting the interpreter down. Command lines use
`ending_clearly`; the training loop uses `deferred`, to save first. Commands that have started processes or written
unfinished files use `terminable`, so that SIGTERM lets them clean up as well; `limited` ends a block in the same way
after some time. Open it when Ctrl-C does not end a program, or ends it too early.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

EXIT_STATUS = 128 + signal.SIGINT
TIMED_OUT = 124  # as the command `timeout` returns it
CLEAN_UP_SECONDS = 3.0  # time for the main thread to remove unfinished files

_terminable = False  # True while SIGTERM raises an exception
_deferred = False  # True while the main thread handles the signal itself, at the end of a step
_left: list[int] | None = None  # within `left_signals`: those that were left to a block
_unfinished: set[Path] = set()  # folders that are removed if the process ends before they are done
_ending = threading.Lock()  # held by the one thread that prints the message and ends the process


class Terminated(KeyboardInterrupt):
    """Raised in a `terminable` block when the process receives SIGTERM."""


class OutOfTime(KeyboardInterrupt):
    """Raised in a `limited` block when its time is over."""


@contextmanager
def ending_clearly(advice: str = "") -> Iterator[None]:
    """Ends the process with status 130 and a one-line message if Ctrl-C interrupts the block.

    Inside it, SIGTERM does the same in a block that is `terminable`, with status 143.

    Args:
      advice: text added to the message.
    """
    more = f"; {advice}" if advice else ""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    except ValueError:  # not in the main thread, which alone receives signals
        os.close(reader)
        os.close(writer)
        yield
        return
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    listener = threading.Thread(target=_listen, args=(reader, more), name="interrupts", daemon=True)
    listener.start()
    unraisable = sys.unraisablehook
    # What is lost in a callback, such as the garbage collector's, needs no traceback: the listener ends the process.
    sys.unraisablehook = lambda lost: None if issubclass(lost.exc_type, KeyboardInterrupt) else unraisable(lost)
    try:
        yield
    except KeyboardInterrupt as stop:
        status, word = status_of(stop)
        _end(word + more, status)
    finally:
        sys.unraisablehook = unraisable
        signal.set_wakeup_fd(before)
        os.close(writer)
        listener.join()


@contextmanager
def unfinished(folder: Path) -> Iterator[None]:
    """Has a folder removed if Ctrl-C ends the process within the block, where the main thread may be unable to."""
    _unfinished.add(folder)
    try:
        yield
    finally:
        _unfinished.discard(folder)


def end_at_once() -> None:
    """Has Ctrl-C end the process with a line and no traceback, from now until `ending_clearly` takes over.

    For the time in which a program imports its modules: it has nothing to clean up, and an exception that is raised
    within the import of a compiled module may abort the process.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have had it ignored
        signal.signal(signal.SIGINT, _stop)


@contextmanager
def deferred(until_saved: bool = True) -> Iterator[None]:
    """Leaves the first Ctrl-C to the block, which checks for it and saves before it ends; a second ends the process.

    So it does with SIGTERM if the process is `terminable`, and the block has set a handler that raises nothing.

    Args:
      until_saved: False, inside such a block, makes both end the process at once, while there is nothing to save.
    """
    global _deferred
    before, _deferred = _deferred, until_saved
    try:
        yield
    finally:
        _deferred = before


@contextmanager
def left_signals() -> Iterator[list[int]]:
    """Yields a list that grows by each signal that is left to a `deferred` block, which ends early for it."""
    global _left
    before, _left = _left, []
    try:
        yield _left
    finally:
        _left = before


def leave(number: int) -> None:
    """Notes for `left_signals` that a block is to end early for a signal."""
    if _left is not None:
        _left.append(number)


@contextmanager
def terminable() -> Iterator[None]:
    """Within this context, SIGTERM raises `Terminated` in the main thread; has no effect in other threads."""
    global _terminable
    try:
        before = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    _terminable = True
    try:
        yield
    finally:
        _terminable = False
        signal.signal(signal.SIGTERM, before)


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Within this context, `OutOfTime` is raised in the main thread after so many seconds; None: never.

    Only in the main thread, and where the system has such a timer.
    """
    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def status_of(stop: KeyboardInterrupt) -> tuple[int, str]:
    """Returns the exit status of an interrupted program, and a word for its message."""
    if isinstance(stop, Terminated):
        return 128 + signal.SIGTERM, "terminated"
    if isinstance(stop, OutOfTime):
        return TIMED_OUT, "out of time"
    return EXIT_STATUS, "interrupted"


def _stop(signum: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_STATUS)


def _terminate(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM would interrupt the clean-up
    raise Terminated


def _out_of_time(signum: int, frame: FrameType | None) -> None:
    raise OutOfTime


def _listen(reader: int, more: str) -> None:
    heard, terminated, deadline = 0, False, None  # `heard` counts what asks to end
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if select.select([reader], [], [], left)[0]:
            data = os.read(reader, 64)
            if not data:  # the block has ended
                break
            terms = data.count(signal.SIGTERM) if _terminable else 0
            heard += data.count(signal.SIGINT) + terms
            terminated |= terms > 0
            if heard and deadline is None:
                deadline = time.monotonic() + CLEAN_UP_SECONDS
        elif _deferred and heard == 1:
            deadline = None  # the block saves, and ends by itself
        else:
            status, word = status_of(Terminated() if terminated else KeyboardInterrupt())
            _end(word + more, status)
    os.close(reader)


def _end(message: str, status: int) -> NoReturn:
    _ending.acquire()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    for folder in [*_unfinished]:
        shutil.rmtree(folder, ignore_errors=True)
    print(message, file=sys.stderr, flush=True)
    os._exit(status)
