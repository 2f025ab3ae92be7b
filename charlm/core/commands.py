"""Runs the commands of charlm and ends them with an exit status, and with one line on standard error for any mistake.

The command lines that take plain options use it (`charlm.cli` is for those that read a config). Open it to change which
errors are shown as one line instead of a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from charlm.core import interrupts
from charlm.core.help_text import columns, wrapped
from charlm.core.logs import print_error
from charlm.core.memory import clear_exhaustion
from charlm.core.programs import keep_programs


def run_command(command: Callable[[], int], smaller: str, interrupted: str = "") -> int:
    """Runs a command and returns its exit status; an error is printed as one line on standard error, with status 1.

    Ctrl-C ends the process with status 130. A closed output pipe (`| head`) is not an error.

    Args:
      command: returns its status, and raises ValueError or OSError for mistakes of the user.
      smaller: advice for when memory runs out, such as "lower --batch-size (now 32)".
      interrupted: text added to the line that Ctrl-C prints.
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
    except OSError as error:
        if not isinstance(error.filename, str | bytes) or not error.strerror:  # it may be a descriptor
            return fail(str(error))
        return fail(f"{os.fsdecode(error.filename)}: {error.strerror}")
    except ValueError as error:
        return fail(str(error))


def print_lines(lines: Callable[[], list[str]], argv: list[str] | None, about: str) -> int:
    """Runs a command that takes no arguments and prints lines; returns its exit status.

    Args:
      lines: returns what it prints.
      argv: its arguments; None: those of the process.
      about: what --help prints.
    """
    arguments = sys.argv[1:] if argv is None else argv

    def show() -> int:
        if unexpected := [one for one in arguments if one not in ("-h", "--help")]:
            raise ValueError(f"unexpected argument {unexpected[0]!r}: the command takes none")
        print(wrapped(about, columns()) if arguments else "\n".join(lines()))
        return 0

    return run_command(show, "")


def fail(message: str) -> int:
    """Prints an error as one line on standard error; returns the exit status of a failed command."""
    print_error(" ".join(message.split()))
    return 1
