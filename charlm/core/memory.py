"""Memory of the process."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator


def give_memory_back() -> None:
    """Has the C library return what was freed to the system: glibc keeps it, scattered over the arenas of its threads.

    After a checkpoint was read in parts by many threads, or parameters were drawn, that is as much as the model again.
    Elsewhere: does nothing.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def clear_exhaustion(advice: str) -> Iterator[None]:
    """Turns what XLA, or Python, raises when memory does not suffice into one line.

    Args:
      advice: what to do about it.

    Raises:
      ValueError: saying how much was asked for, and the advice.
    """
    try:
        yield
    except MemoryError as error:
        raise ValueError(f"out of memory: {str(error) or 'this machine has no more'}; {advice}") from error
    except RuntimeError as error:  # a JaxRuntimeError; whoever only reads the advice needs no jax
        found = re.search(r"RESOURCE_EXHAUSTED:? *([^\n]*)", str(error))
        if found is None:
            raise
        raise ValueError(f"out of memory on the device: {found[1][:160].rstrip('. ')}; {advice}") from error
