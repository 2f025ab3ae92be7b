"""Memory of the process."""

from __future__ import annotations

import contextlib
import ctypes


def give_memory_back() -> None:
    """Has the C library return what was freed to the system: glibc keeps it, scattered over the arenas of its threads.

    After a checkpoint was read in parts by many threads, or parameters were drawn, that is as much as the model again.
    Elsewhere: does nothing.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
