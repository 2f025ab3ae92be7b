"""Memory of the process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator

# Of glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
KEPT = 2**29  # bytes of a program's working memory that are kept between its steps


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


def use_one_arena() -> None:
    """Has all threads of the process share one heap, which `keep_between_steps` needs; before JAX starts its threads.

    Elsewhere than with glibc, or where the environment sets malloc's arenas: does nothing.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and "glibc.malloc.arena_max" not in os.environ.get("GLIBC_TUNABLES", ""):
        _set({_ARENA_MAX: 1})


def keep_between_steps(temporary: int) -> bool:
    """Has glibc keep the working memory of a small program that runs again and again; returns whether it does.

    XLA for processors takes a program's working memory anew for each run, and glibc gives a block of that size back to
    the system in between: each step then pays for having every page cleared, up to a quarter of a small model's time.
    Large programs gain less, and lose more if the block is cut: theirs goes back as before.

    Args:
      temporary: bytes that the program takes and lets go in a run.
    """
    if not 0 < temporary <= KEPT:
        return False
    return _set({_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1})


def _set(options: dict[int, int]) -> bool:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        return all(ctypes.CDLL(None).mallopt(option, value) == 1 for option, value in options.items())
    return False
