"""Logging of the command-line programs: charlm's lines go to standard error; other libraries' are not shown.

Open it to change the format of log lines or errors; call `start_logging` first in a new command.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable

import absl.logging

_COMMAND = re.compile(r"\bpython -m |\bcharlm [a-z]|\bpip install ")
_unraisable: Callable[[sys.UnraisableHookArgs], object] = sys.unraisablehook  # the hook before `start_logging`


class _Lines(logging.Formatter):
    """Breaks long lines between words where a person reads them: the terminal itself would break words.

    A line that holds a command stays whole, so that it can be copied, and so does every line in a file or pipe.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        width = terminal_width()
        if not width or _COMMAND.search(text):
            return text
        indent = " " * len(text.partition(" ")[0])
        wrapped = (
            textwrap.wrap(line, width, subsequent_indent=f"{indent} ", break_long_words=False, break_on_hyphens=False)
            for line in text.split("\n")
        )
        return "\n".join(line for lines in wrapped for line in lines or [""])


def terminal_width() -> int:
    """Returns the columns of the terminal that standard error is; 0: it is none, or does not tell."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
    except (OSError, ValueError):
        return 0


def start_logging() -> None:
    """Starts showing charlm's log lines, with the time of day; may be called more than once."""
    log = logging.getLogger("charlm")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Lines("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    # orbax logs the traceback of a failed write, but also raises an exception, which charlm reports in one line.
    absl.logging.set_verbosity(absl.logging.FATAL)
    global _unraisable
    if sys.unraisablehook is not _without_closed_loops:
        _unraisable, sys.unraisablehook = sys.unraisablehook, _without_closed_loops


def print_error(message: str) -> None:
    """Prints `error: message` on standard error, in one write.

    `print` writes the end of the line apart from its text, and XLA's threads write to the same file: in between, a line
    of theirs would join ours.
    """
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()


def _without_closed_loops(what: sys.UnraisableHookArgs) -> None:
    """Shows an exception that nobody can catch, unless it is one of TensorStore's after a failed write.

    After a full disk, orbax closes the event loop in which it waits for TensorStore, whose other writes then find it
    closed, each with a traceback. The failed write itself is an exception, which charlm reports in one line.
    """
    if not (isinstance(what.exc_value, RuntimeError) and str(what.exc_value) == "Event loop is closed"):
        _unraisable(what)
