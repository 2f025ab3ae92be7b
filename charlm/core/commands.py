"""How a command ends: its status, and one line for whatever went wrong. Open it to add a command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from charlm.core import interrupts
from charlm.core.memory import clear_exhaustion
from charlm.core.programs import keep_programs


def run_command(command: Callable[[], int], smaller: str, interrupted: str = "") -> int:
    """Runs a command and returns its exit status; a mistake is one line on standard error, and status 1.

    Ctrl-C ends the process with status 130. A reader that has gone (`| head`) is no mistake.

    Args:
      command: returns its status; ValueError and OSError say what its user did wrong.
      smaller: what to do when memory does not suffice, such as "lower --batch-size (now 32)".
      interrupted: what is said besides after Ctrl-C.
    """
    keep_programs()
    try:
        with interrupts.ending_clearly(interrupted), clear_exhaustion(smaller):
            status = command()
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        return fail(str(error))


def fail(message: str) -> int:
    """Says what went wrong, in one line on standard error; returns the status of a command that failed."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 1
