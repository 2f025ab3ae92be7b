"""Memory of the process: returning freed memory to the system, and clear errors when memory runs out.

Open it when a process holds more memory than its arrays need, or when an out-of-memory error is hard to read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator

# Options of `mallopt`, from glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
KEPT_BYTES = 2**29  # bytes; the working memory of programs up to this size is kept between steps


def give_memory_back() -> None:
    """Makes glibc return freed memory, which it otherwise keeps in the arenas of its threads, to the system.

    After many threads read a checkpoint, or after parameters were initialised, this memory is as large as the model.
    Without glibc, the function does nothing.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def clear_exhaustion(advice: str) -> Iterator[None]:
    """Turns out-of-memory errors of XLA and Python inside the block into a one-line ValueError.

    Args:
      advice: what the user can do about it.

    Raises:
      ValueError: memory ran out; says how much was requested, and the advice.
    """
    try:
        yield
    except MemoryError as error:
        raise ValueError(f"out of memory: {str(error) or 'this machine has no more'}; {advice}") from error
    except RuntimeError as error:  # the base class of JaxRuntimeError, so that this module need not import jax
        found = re.search(r"RESOURCE_EXHAUSTED:? *([^\n]*)", str(error))
        if found is None:
            raise
        raise ValueError(f"out of memory on the device: {found[1][:160].rstrip('. ')}; {advice}") from error


def use_one_arena() -> None:
    """Makes all threads share one heap, as `keep_between_steps` requires; call it before JAX starts its threads.

    Does nothing without glibc, or if the environment sets malloc's number of arenas.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and "glibc.malloc.arena_max" not in os.environ.get("GLIBC_TUNABLES", ""):
        _set({_ARENA_MAX: 1})


def keep_between_steps(temporary: int) -> bool:
    """Makes glibc keep the working memory of a small, repeatedly run program; returns whether it does.

    XLA for CPUs allocates a program's working memory anew for each run, and glibc returns blocks of that size to the
    system in between. Each step then pays for clearing every page, up to a quarter of a small model's time. Large
    programs gain less, and lose more if the heap fragments, so their memory is still returned.

    Args:
      temporary: bytes of working memory that the program allocates and frees in each run.
    """
    if not 0 < temporary <= KEPT_BYTES:
        return False
    return _set({_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1})


def _set(options: dict[int, int]) -> bool:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        return all(ctypes.CDLL(None).mallopt(option, value) == 1 for option, value in options.items())
    return False
