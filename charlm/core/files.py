"""Helpers for the on-disk cache of encoded corpora: its folder, its keys, and clear errors when it is not writable.

The readers, vocabularies and corpora of `charlm.data` use it. Open it to change where the cache lies, how its names are
hashed, or when leftovers of killed runs are removed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import ml_collections

from charlm.core.durable import TEMPORARY
from charlm.core.local_paths import check_path
from charlm.core.types import Json

log = logging.getLogger("charlm")

Made = TypeVar("Made")

STALE_SECONDS = 3600  # a temporary file that has not been written to for this long is left from a killed run


def cache_dir(config: ml_collections.ConfigDict) -> str:
    """Returns the folder of encoded corpora: data.cache_dir, which fine-tuning lacks, else `default_cache_dir`."""
    default = default_cache_dir()
    return os.path.abspath(os.path.expanduser(config.data.get("cache_dir", "") or default))


def default_cache_dir() -> str:
    """Returns $CHARLM_CACHE, else ~/.cache/charlm; ValueError if it is an address."""
    named = os.environ.get("CHARLM_CACHE", "")
    check_path("CHARLM_CACHE", named)
    return os.path.abspath(os.path.expanduser(named or os.path.join("~", ".cache", "charlm")))


def stable_hash(*values: Json) -> str:
    """Returns a sha256 (hex) of plain values, equal in every process."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def load_cached(path: str, load: Callable[[str], Made], make: Callable[[], None]) -> Made:
    """Returns the content of a cached file or folder, which is created if missing and recreated if damaged.

    Args:
      load: reads `path`; raises ValueError or OSError if it is damaged.
      make: writes `path`.
    """
    if os.path.exists(path):
        try:
            return load(path)
        except (ValueError, OSError) as error:
            log.warning("%s is damaged: it is made again (%s)", path, error)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    make()
    return load(path)


@contextlib.contextmanager
def clear_write_errors(folder: str) -> Iterator[None]:
    """Turns an OSError into a ValueError that names the folder and says what to do."""
    try:
        yield
    except OSError as error:
        advice = "set data.cache_dir to a writable folder with free space"
        raise ValueError(f"cannot write the corpus cache {folder}: {error}; {advice}") from error


def remove_stale(folder: str) -> None:
    """Removes temporary files of killed runs; keeps recent ones, which another process may be writing."""
    for path in glob.glob(os.path.join(glob.escape(folder), f"*{TEMPORARY}")):
        with contextlib.suppress(OSError):
            if is_stale(path):
                os.remove(path)


def is_stale(path: str | os.PathLike[str]) -> bool:
    """Returns whether a temporary file is so old that nobody writes it any more."""
    return time.time() - os.path.getmtime(path) > STALE_SECONDS
