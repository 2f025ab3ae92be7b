"""Ctrl-C ends a program promptly, in one line, whatever it is doing.

Python tells the main thread of a signal when that is back from compiled code, for which it may compile a program for
minutes; and the exception is lost where the signal comes inside a callback. An interpreter that ends while other
threads still compile or read may crash, besides. So a thread of its own hears of Ctrl-C, gives the main thread a moment
to clean up, and ends the process without tearing the interpreter down.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

STATUS = 128 + signal.SIGINT
CLEAN_UP_SECONDS = 3.0  # for the main thread to leave nothing half-made behind

_deferred = False  # the main thread looks for the signal itself, at the end of a step
_ending = threading.Lock()  # held by the one thread that says that the program ends


@contextmanager
def ending_clearly(advice: str = "") -> Iterator[None]:
    """Ends the process with status 130 and a line when Ctrl-C interrupts the block.

    Args:
      advice: what the line says besides.
    """
    message = f"interrupted{f'; {advice}' if advice else ''}"
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    except ValueError:  # not in the main thread: signals are not for this block
        os.close(reader)
        os.close(writer)
        yield
        return
    listener = threading.Thread(target=_listen, args=(reader, message), name="interrupts", daemon=True)
    listener.start()
    try:
        yield
    except KeyboardInterrupt:
        _end(message)
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        listener.join()


@contextmanager
def deferred(until_saved: bool = True) -> Iterator[None]:
    """Leaves Ctrl-C to the block, which looks for it and saves first; a second one still ends the process.

    Args:
      until_saved: False inside such a block: there is nothing to save yet, Ctrl-C is to end the process at once.
    """
    global _deferred
    before, _deferred = _deferred, until_saved
    try:
        yield
    finally:
        _deferred = before


def _listen(reader: int, message: str) -> None:
    heard, deadline = 0, None
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if select.select([reader], [], [], left)[0]:
            data = os.read(reader, 64)
            if not data:  # the block has ended
                break
            heard += data.count(signal.SIGINT)
            if heard and deadline is None:
                deadline = time.monotonic() + CLEAN_UP_SECONDS
        elif _deferred and heard == 1:
            deadline = None  # the block saves, and ends by itself
        else:
            _end(message)
    os.close(reader)


def _end(message: str) -> NoReturn:
    _ending.acquire()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)
    os._exit(STATUS)
