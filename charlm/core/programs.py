"""Keeps compiled programs from run to run in JAX's persistent compilation cache, unless the user turns that off.

Compiling takes the first minute of a short run and of many predictions. JAX's own variables stay in charge:
JAX_COMPILATION_CACHE_DIR names another folder, JAX_ENABLE_COMPILATION_CACHE=false turns it off. This module needs the
standard library alone, since it must be called before JAX is imported. Open it to change where the programs are kept or
when old ones are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import time
from pathlib import Path

from charlm.core.processor import instruction_sets

PROGRAMS_FOLDER = "programs"  # in the cache of charlm
KEPT_DAYS = 60  # a program that was written longer ago is removed
_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_LEAST = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_LEAST_SECONDS = "0.1"  # of compiling, from which a program is kept; JAX's second leaves out most of those that predict


def keep_programs() -> None:
    """Makes JAX keep compiled programs in the cache of charlm; does nothing where it cannot be written.

    Call it before JAX is imported, which the file of a config may do: afterwards it has no effect. It sets environment
    variables, so it holds for child processes, too.
    """
    if _VARIABLE in os.environ or "jax" in sys.modules:
        return
    root = os.environ.get("CHARLM_CACHE") or os.path.join("~", ".cache", "charlm")
    folder = Path(os.path.expanduser(root)).absolute() / PROGRAMS_FOLDER / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        _remove_old(folder)
        os.environ[_VARIABLE] = str(folder)
        os.environ.setdefault(_LEAST, _LEAST_SECONDS)


def _processor() -> str:
    """Returns a name for what this machine's processor can do.

    Programs for one processor may use instructions that another does not have, and a cache may be shared by both.
    """
    described = " ".join([platform.machine(), *sorted(instruction_sets())])
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _remove_old(folder: Path) -> None:
    limit = time.time() - KEPT_DAYS * 24 * 3600
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may have removed it
            if path.stat().st_mtime < limit:
                path.unlink()
