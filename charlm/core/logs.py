"""Log lines of the command-line programs: ours on standard error, nothing of other libraries."""

from __future__ import annotations

import logging
import sys

import absl.logging


def start_logging() -> None:
    """Shows charlm's log lines, with the time of day; may be called again."""
    log = logging.getLogger("charlm")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    # orbax logs the traceback of a failed write, which then arrives as an exception and becomes one line.
    absl.logging.set_verbosity(absl.logging.FATAL)
