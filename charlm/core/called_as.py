"""How a command was called: as `charlm serve`, or as `python -m charlm.serve`.

Open it to change by which name the usage errors of a command call it.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="")


@contextlib.contextmanager
def called_as(name: str) -> Iterator[None]:
    """Makes `program` return a name inside the `with` block, such as "charlm serve"."""
    before = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(before)


def program(module: str) -> str:
    """Returns what a user typed to run a command: "charlm serve", or "python -m charlm.serve".

    Args:
      module: the module of the command, such as "charlm.serve".
    """
    return _NAME.get() or f"python -m {module}"


def as_typed(command: str) -> str:
    """Returns a command line as the user would type it: one of `python -m charlm.X` as `charlm X`, who uses that."""
    return command.replace("python -m charlm.", "charlm ") if _NAME.get() else command
