"""Logging of the command-line programs: charlm's lines go to standard error; other libraries' are not shown."""

from __future__ import annotations

import logging
import sys

import absl.logging


def start_logging() -> None:
    """Starts showing charlm's log lines, with the time of day; may be called more than once."""
    log = logging.getLogger("charlm")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    # orbax logs the traceback of a failed write, but also raises an exception, which charlm reports in one line.
    absl.logging.set_verbosity(absl.logging.FATAL)
