"""Runs of several processes whose workdir is in an object store, so that they share no folder.

Process 0 alone writes to the workdir: all others send it their parts of a checkpoint, through the network of the
devices. `charlm.core.mirror` keeps its local folder in the store by the same rules as that of a single process, so
there is no checkpoint of which one host has copied its part and another has not. The other processes, the followers,
only read. Each has a local folder, which `catch_up` makes equal to the store's state after process 0 has copied
everything there. It is called at every point where the processes must see the same files: at the start, before a
checkpoint is restored, and where one training run follows another. So they all resume from the same step, which the
store holds, and what a machine has left in its folder of an earlier run does not matter, except to process 0.

Open it when a follower does not find a file, or to change what process 0 alone does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import PurePosixPath

import jax

from charlm.core import hosts
from charlm.core.local_paths import check_path, is_address
from charlm.core.mirror import Mirror, mirrored
from charlm.core.mirror_files import FolderLock, local_folder, whole_files
from charlm.core.stores import Store, in_parallel, newest_alone
from charlm.core.types import Json

_side: Leader | Follower | None = None


def following() -> bool:
    """Returns whether process 0 alone writes to the workdir, and the others read copies of it."""
    return _side is not None


def catch_up() -> None:
    """Makes the local folders of all processes equal, if each has its own; all must call it.

    Of a run's checkpoints, the followers get only the newest. Process 0 must not be writing a checkpoint.

    Raises:
      ValueError: a process could not copy; raised on every process.
    """
    if _side is None:
        return
    try:
        hosts.everywhere(_side.give)
        hosts.everywhere(_side.take)
    finally:
        _side.go_on()


def without_folder(value: Json) -> Json:
    """Returns a config value in which the folder of this process, if each has its own, is replaced by the address."""
    if _side is None or not isinstance(value, str) or not value.startswith(str(_side.folder)):
        return value
    return _side.address + value.removeprefix(str(_side.folder))


@contextmanager
def mirrored_by_all(workdir: str) -> Iterator[str]:
    """Yields this process's local folder of a workdir; the same as `mirrored` in a run of one process.

    All processes must enter it.

    Raises:
      ValueError: as in `mirrored`, on every process.
    """
    global _side
    if hosts.alone() or not is_address(workdir):
        with mirrored(workdir) as folder:
            yield folder
        return
    check_path("--workdir", workdir, stored=True)
    with ExitStack() as stack:
        side = stack.enter_context(closing(Leader(workdir) if hosts.is_primary() else Follower(workdir)))
        hosts.everywhere(side.begin)
        _side = side
        stack.callback(_clear)
        catch_up()
        with side.saving_what_failed():
            yield str(side.folder)
        hosts.everywhere(side.end)


def _clear() -> None:
    global _side
    _side = None


class Leader(Mirror):
    """The workdir as process 0 has it."""

    def __init__(self, address: str) -> None:
        super().__init__(address, end_run=hosts.end_now)
        self.address = address

    def give(self) -> None:
        """Copies everything to the store, and then nothing until `go_on`."""
        self.copy_and_pause()

    def take(self) -> None:
        """Does nothing, while the followers take what is in the store."""

    def go_on(self) -> None:
        """Goes on copying."""
        self.resume()


class Follower:
    """The workdir as another process has it: `folder`, a copy of what is in the store.

    Args:
      address: the address of the workdir.
      root: as in `charlm.core.mirror.Mirror`.
      process: number of the process.
    """

    def __init__(self, address: str, root: str = "", process: int | None = None) -> None:
        self.address = address
        self._store = Store(address)
        leaders = local_folder(self._store, root)
        # Processes may share a machine or a cache.
        self.folder = leaders.with_name(f"{leaders.name}.process_{jax.process_index() if process is None else process}")
        self._held: dict[str, bytes] = {}  # the generation of each file
        self._lock: FolderLock | None = None

    def begin(self) -> None:
        """Locks the folder and empties it: what is in the store may have changed meanwhile.

        Raises:
          ValueError: another process of this machine uses the folder.
          OSError: it cannot be written.
        """
        self._lock = FolderLock(self.folder, self._store)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir()

    def give(self) -> None:
        """Does nothing, while process 0 copies to the store."""

    def take(self) -> None:
        """Makes the folder equal to what is in the store, without incomplete checkpoints and older ones.

        Raises:
          ValueError: the store cannot be read.
          OSError: a file cannot be written.
        """
        names = newest_alone(whole_files(self._store.names()))
        for name in self._held.keys() - set(names):
            (self.folder / name).unlink(missing_ok=True)
            del self._held[name]
            for above in PurePosixPath(name).parents:
                if any(part.isdigit() for part in above.parts):  # orbax takes an empty folder for a checkpoint
                    with suppress(OSError):  # it is not empty
                        (self.folder / above).rmdir()

        def bring(name: str) -> None:
            self._held[name] = self._store.download(name, self.folder / name, self._held.get(name, b""))

        in_parallel(bring, names)

    def go_on(self) -> None:
        """Does nothing."""

    @contextmanager
    def saving_what_failed(self) -> Iterator[None]:
        """Does nothing; see `charlm.core.mirror.Mirror`."""
        yield

    def end(self) -> None:
        """Removes the folder: what it holds is in the store."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Releases the lock of the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
