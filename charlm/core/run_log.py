"""Keeps the log of a run in `log.txt` of its folder, beside what is shown on standard error.

`charlm.training.workdir.opened` starts it, and `charlm.training.assembly` begins to write when the run does. Open it to
change what is kept. Where the launcher or the shell already writes the output to that file, nothing is added to it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

LOG_FILE = "log.txt"
KEPT_ELSEWHERE = "CHARLM_LOG_FILE"  # the file that a launcher writes all output of the run to

log = logging.getLogger("charlm")


class RunLog(logging.Handler):
    """Adds log lines to a file; those before `begin` wait, and are lost if the run never begins.

    A folder in which no run begins stays as it is: a new one is removed, a finished run may lie on a read-only disk.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S"))
        self._path, self._begun = path, False
        self._waiting: list[str] = []

    def begin(self) -> None:
        """Writes the lines so far, and from now on every line at once."""
        self.acquire()  # other threads log, too
        try:
            self._begun = True
            self._write()
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line."""
        self._waiting.append(self.format(record))
        if self._begun:
            self._write()

    def _write(self) -> None:
        # A full disk ends the run by an error of the files that it needs; this one it can do without.
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(f"{line}\n" for line in self._waiting)
        self._waiting.clear()


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Keeps what is logged during the block, and the error that ends it, in `LOG_FILE` of a folder.

    Nothing is written before `begin` is called.
    """
    path = folder / LOG_FILE
    if _is_written_elsewhere(path):
        yield
        return
    handler = RunLog(path)
    with _heard():
        log.addHandler(handler)
        try:
            yield
        except Exception as error:
            said = " ".join(str(error).split())
            handler.emit(log.makeRecord(log.name, logging.ERROR, "", 0, "error: %s", (said,), None))
            raise
        finally:
            log.removeHandler(handler)


class _Onwards(logging.Handler):
    """Hands the records of a level on to the handlers of a logger's parents."""

    def emit(self, record: logging.LogRecord) -> None:
        if log.parent is not None:
            log.parent.callHandlers(record)


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """Lets progress reach the handlers of charlm's log during the block, where a program shows warnings alone.

    A program that calls charlm's functions sees no more than before.
    """
    if log.isEnabledFor(logging.INFO):
        yield
        return
    level, propagates, onwards = log.level, log.propagate, _Onwards(log.getEffectiveLevel())
    log.setLevel(logging.INFO)
    if propagates:
        log.propagate = False
        log.addHandler(onwards)
    try:
        yield
    finally:
        log.removeHandler(onwards)
        log.setLevel(level)
        log.propagate = propagates


def begin() -> None:
    """Begins to write the log of the run that is open; without one, it does nothing."""
    for handler in log.handlers:
        if isinstance(handler, RunLog):
            handler.begin()


def _is_written_elsewhere(path: Path) -> bool:
    """Returns whether the output of this process goes to the file already."""
    if (named := os.environ.get(KEPT_ELSEWHERE)) and Path(named).absolute() == path.absolute():
        return True
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # there is no such file, or no file descriptor
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return True
    return False
