"""Keeps what Beam prints off the screen while it works on this machine, so that users see lines of charlm alone.

Beam's worker processes print while they start, and tracebacks when Ctrl-C reaches them; none of it can be configured.
Open it when the output of a DirectRunner is needed: it is in the file `LOG` of the cache.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator

from charlm.core.files import clear_write_errors
from charlm.data.beam.workers import DIRECT

LOG = "beam.log"


@contextlib.contextmanager
def own_lines_only(runner: str, folder: str) -> Iterator[None]:
    """Writes standard error of this process and those that it starts to a file, but for lines of charlm.

    Other runners than the DirectRunner keep theirs: services tell where a job is found.

    Args:
      folder: folder of the cache, where the file `LOG` is written anew.

    Raises:
      ValueError: the file cannot be written.
    """
    if runner != DIRECT:
        yield
        return
    with clear_write_errors(folder):
        os.makedirs(folder, exist_ok=True)
        sink = open(os.path.join(folder, LOG), "w", buffering=1)  # noqa: SIM115  # `restore` closes it
    terminal, before, hook = os.dup(2), sys.stderr, threading.excepthook
    before.flush()
    os.dup2(sink.fileno(), 2)
    sys.stderr = os.fdopen(os.dup(terminal), "w", buffering=1)
    handlers = _handlers_of(before)
    for handler in handlers:
        handler.setStream(sys.stderr)
    # Of threads of Beam; what matters is raised in the main thread, too.
    threading.excepthook = lambda told: traceback.print_exception(told.exc_value, file=sink)
    levels = {name: logging.getLogger(name).level for name in ("apache_beam", "grpc")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    def restore() -> None:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        threading.excepthook = hook
        for handler in handlers:
            handler.setStream(before)
        ours, sys.stderr = sys.stderr, before
        ours.close()
        os.dup2(terminal, 2)
        os.close(terminal)
        sink.close()

    try:
        yield
    except KeyboardInterrupt:  # the process ends, and Beam's threads print until then
        raise
    except BaseException:
        restore()
        raise
    restore()


def _handlers_of(stream: object) -> list[logging.StreamHandler]:
    found = logging.getLogger("charlm").handlers
    return [one for one in found if isinstance(one, logging.StreamHandler) and one.stream is stream]
