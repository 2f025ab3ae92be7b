"""What a workdir in an object store consists of, files and checkpoints, which are copied as one each; its local folder.

`charlm.core.mirror` copies them. Open it when a file of a workdir is not copied, or is copied too early.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from charlm.core.durable import TEMPORARY
from charlm.core.files import default_cache_dir
from charlm.core.stores import WHOLE, Store

MARK = ".charlm-mirror.json"  # the object that identifies the last writer

# Files that tell of checkpoints that were removed before: in the store, too, these go first.
AFTER_REMOVALS = ("spikes.json",)

_GROWING = (".jsonl", ".txt")
_EVENTS = "tensorboard"
_ORBAX = ".orbax-checkpoint-tmp"  # in names of what orbax has not finished
_PROBES = (".writable.", ".shared.")


class State(NamedTuple):
    """Size of a file in bytes and time of its last change in ns: equal for a file that did not change."""

    size: int
    changed: int


class Unit:
    """A file, or a checkpoint with all its files.

    Attributes:
      name: the file, or the folder of the checkpoint.
      files: the state of each file, by name.
      changed: time of the latest change, in ns.
      growing: whether this is a file that only grows.
    """

    def __init__(self, name: str, files: dict[str, State]) -> None:
        self.name, self.files = name, files
        self.changed = max(state.changed for state in files.values())
        self.growing = name in files and is_growing(name)


def units_of(root: Path) -> list[Unit]:
    """Returns the units of copying: each checkpoint, and every file outside of checkpoints."""
    files: dict[str, State] = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            name = path.relative_to(root).as_posix()
            if _is_unfinished(name):
                continue
            with suppress(FileNotFoundError):  # removed meanwhile
                files[name] = state_of(path)
    whole = {name.removesuffix(f"/{WHOLE}") for name in files if name.endswith(f"/{WHOLE}")}
    units: dict[str, dict[str, State]] = {}
    for name, state in files.items():
        above = (str(parent) for parent in reversed(PurePosixPath(name).parents))
        units.setdefault(next((one for one in above if one in whole), name), {})[name] = state
    return [Unit(name, files) for name, files in units.items()]


def is_growing(name: str) -> bool:
    """Returns whether a file only grows, by its name."""
    path = PurePosixPath(name)
    return path.suffix in _GROWING or _EVENTS in path.parts


def _is_unfinished(name: str) -> bool:
    parts = PurePosixPath(name).parts
    marked = any(part.endswith(TEMPORARY) or _ORBAX in part for part in parts)
    return marked or parts[-1].startswith(_PROBES) or name == MARK


def state_of(path: Path) -> State:
    """Returns the state of a file; raises FileNotFoundError."""
    stat = path.stat()
    return State(stat.st_size, stat.st_mtime_ns)


class FolderLock:
    """Locks the local folder of a workdir against other processes of this machine.

    Raises:
      ValueError: another process holds the lock.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder.with_name(f"{folder.name}.lock"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise ValueError(f"--workdir={store.address}: another process is training there") from None

    def release(self) -> None:
        """Releases the lock."""
        os.close(self._file)


def local_folder(store: Store, root: str = "") -> Path:
    """Returns the local folder of a workdir in a store; `root` as in `Mirror`."""
    name = f"{PurePosixPath(store.address).name}-{hashlib.sha256(store.address.encode()).hexdigest()[:12]}"
    return Path(root or Path(default_cache_dir(), "workdirs")) / name


def whole_files(names: list[str]) -> list[str]:
    """Returns the names of a workdir's objects without `MARK` and the files of incomplete checkpoints.

    The folder of a checkpoint is named by its step, a number.
    """
    whole = {name.removesuffix(f"/{WHOLE}") for name in names if name.endswith(f"/{WHOLE}")}

    def counts(name: str) -> bool:
        above = [str(parent) for parent in PurePosixPath(name).parents]
        steps = [folder for folder in above if PurePosixPath(folder).name.isdigit()]
        return not steps or any(folder in whole for folder in above)

    return [name for name in names if name != MARK and counts(name)]
