"""Keeps the workdir of a run in an object store, for `--workdir=s3://bucket/run`; used by `charlm.main`.

Open it when a run does not resume from its store, or stops copying to it.

The run works in a local folder like any other run. A thread copies changes in that folder to the store. The store
always holds a state that the local folder could have had after a crash, so a run that is killed, or whose machine
disappears, can resume on any machine. Three rules ensure this:

- The files of a checkpoint are copied before the file that makes it count, and removed after that file.
- Files and checkpoints are copied in the order in which they were finished. Nothing is removed before all is copied.
- Files that only grow (metrics, logs) are copied first. A resumed run cuts off the lines after its checkpoint.

When a run starts, it copies the store's state to its local folder, unless this machine was the last to write to the
store; then the local folder is as new or newer. The object `MARK` identifies the last writer. A run that finds the mark
of another writer stops copying, is stopped as by SIGTERM, and ends with an error.

`charlm.core.mirror_files` says what a workdir consists of.

For a run of several processes, see `charlm.core.followers`.
"""

from __future__ import annotations

import _thread
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from charlm.core.durable import write_json
from charlm.core.local_paths import check_path, is_address
from charlm.core.mirror_files import (
    AFTER_REMOVALS,
    MARK,
    FolderLock,
    State,
    Unit,
    is_growing,
    local_folder,
    state_of,
    units_of,
    whole_files,
)
from charlm.core.reading import loads, read_json
from charlm.core.stores import WHOLE, Store, in_parallel

log = logging.getLogger("charlm")

POLL_SECONDS = 2.0  # time between two looks at the folder
SETTLE_SECONDS = 2.0  # a file or checkpoint that changed more recently may change again, and is copied later
GROWING_SECONDS = 60.0  # time between two copies of files that only grow, if nothing else changed
AGAIN_SECONDS = 30.0  # time until the next try after a failure
LARGE = 64 << 20  # bytes; larger files are copied one by one, because each is held in memory


@contextmanager
def mirrored(workdir: str) -> Iterator[str]:
    """Yields the local folder of a workdir in a store; after the block, the store holds everything in that folder.

    A workdir that is not an address is yielded unchanged.

    Raises:
      ValueError: the store cannot be read at the start; not everything could be copied at the end; or another run
        writes to the same workdir.
    """
    if not is_address(workdir):
        yield workdir
        return
    check_path("--workdir", workdir, stored=True)
    with closing(Mirror(workdir)) as mirror:
        mirror.begin()
        with mirror.saving_what_failed():
            yield str(mirror.folder)
        mirror.end()


class Mirror:
    """A workdir in a store and its local folder, `folder`.

    Args:
      address: the address of the workdir.
      root: the folder that contains the local folders of such runs; "": in the cache folder.
      end_run: ends the run, called with the reason when another run writes to the workdir; None: as by SIGTERM.
    """

    def __init__(self, address: str, root: str = "", end_run: Callable[[str], object] | None = None) -> None:
        self._store = Store(address)
        self.folder = local_folder(self._store, root)
        self._stop_run = end_run
        self._notes = self.folder.with_name(f"{self.folder.name}.json")
        self._copied: dict[str, State] = {}
        self._gone: set[str] = set()  # copied files that the last look did not find any more
        self._mark = ""  # the mark that this machine wrote last
        self._grown = -GROWING_SECONDS  # time at which growing files were last copied
        self._lock: FolderLock | None = None
        self._copying, self._paused = threading.Lock(), False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    # ---- A run ----

    def begin(self) -> None:
        """Takes the workdir over and starts copying; raises as `take_over`."""
        self.take_over()
        log.info("%s: working in %s, copied there as it is written", self._store.address, self.folder)
        self.start()

    def end(self) -> None:
        """Copies everything that is left, after the run has ended; raises as `copy`."""
        self.stop()
        self.copy(last=True)
        log.info("%s: everything is copied", self._store.address)

    @contextmanager
    def saving_what_failed(self) -> Iterator[None]:
        """Copies everything if an error leaves the block, which is raised whether or not that succeeds."""
        try:
            yield
        except BaseException:
            self.stop()
            try:
                self.copy(last=True)
            except (ValueError, OSError) as error:
                log.warning("%s", error)
            raise

    def copy_and_pause(self) -> None:
        """Copies everything, and then nothing until `resume` is called; raises as `copy`."""
        self._copying.acquire()
        try:
            self._copy_all(last=True)
            self._check_mark()  # also if there was nothing to copy
        except BaseException:
            self._copying.release()
            raise
        self._paused = True

    def resume(self) -> None:
        """Ends the pause if `copy_and_pause` began one."""
        if self._paused:
            self._paused = False
            self._copying.release()

    # ---- At the start ----

    def take_over(self) -> None:
        """Copies the store's state to the local folder, unless this machine wrote that state and still has it.

        A local folder that is not used is renamed to NAME.before, which replaces an earlier folder of that name.

        Raises:
          ValueError: the store cannot be read, or another process of this machine uses the local folder.
        """
        self._lock = FolderLock(self.folder, self._store)
        store = Store(self._store.address, impatient=True)
        mark = _mark_of(store.read(MARK))
        known = self._read_notes()
        if mark in known and self._is_kept():
            self._mark = mark
            return
        # Half of a run must never be in the local folder: the next start would take it for the run that was there.
        whole = self.folder.with_name(f"{self.folder.name}.incoming")
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        names = whole_files(store.names())
        if names:
            log.info("reading %d files of the run in %s", len(names), store.address)
        in_parallel(lambda name: store.download(name, whole / name), names)
        if self.folder.is_dir() and any(self.folder.iterdir()):
            aside = self.folder.with_name(f"{self.folder.name}.before")
            shutil.rmtree(aside, ignore_errors=True)
            self.folder.rename(aside)
            log.warning("%s was written from elsewhere and is taken over; what was here is in %s", store.address, aside)
        whole.replace(self.folder)
        self._copied, self._mark = {name: state_of(self.folder / name) for name in names}, mark
        self._write_notes(mark)

    def _is_kept(self) -> bool:
        """Returns whether the local folder still holds a run as far as the store does.

        If somebody emptied the folder, the store must not be emptied, too.
        """
        if not any(name.endswith(WHOLE) for name in self._copied):
            return self.folder.is_dir()
        return next(self.folder.rglob(WHOLE), None) is not None

    def close(self) -> None:
        """Releases the lock of the local folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _read_notes(self) -> list[str]:
        """Reads which files this machine has copied; returns the marks that it may have written last."""
        try:
            notes = read_json(self._notes)
            self._copied = {name: State(*state) for name, state in notes["copied"].items()}
            return [str(mark) for mark in notes["marks"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._copied = {}
            return []

    def _write_notes(self, *marks: str) -> None:
        write_json(self._notes, {"marks": marks, "copied": self._copied})

    # ---- Copying ----

    def start(self) -> None:
        """Starts the thread that copies."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its current work."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = POLL_SECONDS
        while not self._ending.wait(wait):
            wait = POLL_SECONDS
            try:
                self.copy()
            except Taken as error:
                log.error("%s; it ends", error)
                if self._stop_run is None:
                    self._end_run()
                else:
                    self._stop_run(str(error))
                return
            except Exception as error:  # if the thread ended, the store would silently stay as it is
                log.warning("%s; trying again in %.0f s", error or type(error).__name__, AGAIN_SECONDS)
                wait = AGAIN_SECONDS

    def _end_run(self) -> None:
        """Stops the training loop like SIGTERM, so that a run whose work would be lost does not go on for weeks.

        The last copy then raises `Taken`. Where nothing listens for the signal (before the first step, between the runs
        of several seeds), it does nothing, so it is sent until the run has ended. The main thread sees it between two
        of its own operations, so a step that is under way is finished first.
        """
        _thread.interrupt_main(signal.SIGTERM)
        while not self._ending.wait(POLL_SECONDS):
            _thread.interrupt_main(signal.SIGTERM)

    def copy(self, last: bool = False) -> None:
        """Copies everything that changed since the last time.

        Args:
          last: the run has ended, so recent changes are copied, too.

        Raises:
          Taken: another run writes to the workdir.
          ValueError: the store refuses.
          OSError: the local folder cannot be read.
        """
        with self._copying:
            self._copy_all(last)

    def _copy_all(self, last: bool) -> None:
        units = units_of(self.folder)
        changed = [unit for unit in units if self._differs(unit)]
        now = time.time_ns()
        finished = [unit for unit in changed if not unit.growing]
        settled = [unit for unit in finished if last or now - unit.changed > SETTLE_SECONDS * 1e9]
        # A file may have been removed because of another one that was written too late for this look (a result, after
        # which the state is removed). So files are removed from the store only if two looks did not find them.
        missing = self._copied.keys() - {name for unit in units for name in unit.files}
        gone = missing if last else missing & self._gone
        self._gone = missing
        due = last or time.monotonic() - self._grown > GROWING_SECONDS
        if not settled and not gone and not (due and changed):
            return
        self._check_mark()
        growing = [unit for unit in changed if unit.growing]
        try:
            in_order = sorted(settled, key=lambda unit: (unit.changed, unit.name))
            for unit in [*growing, *(unit for unit in in_order if unit.name not in AFTER_REMOVALS)]:
                self._copy(unit)
            self._grown = time.monotonic()
            if not any(self._differs(unit) for unit in finished if unit.name not in AFTER_REMOVALS):
                for name in sorted(gone, key=lambda name: (not name.endswith(WHOLE), name)):
                    self._store.remove(name)
                    self._copied.pop(name, None)
            if not missing & self._copied.keys():
                for unit in (unit for unit in in_order if unit.name in AFTER_REMOVALS):
                    self._copy(unit)
            self._set_mark()
        finally:
            self._write_notes(self._mark)

    def _differs(self, unit: Unit) -> bool:
        return any(self._copied.get(name) != state for name, state in unit.files.items())

    def _copy(self, unit: Unit) -> None:
        head = f"{unit.name}/{WHOLE}"
        changed = [name for name, state in unit.files.items() if self._copied.get(name) != state]
        if head in unit.files:
            if head in self._copied:  # the checkpoint was overwritten: it must not count until all of it is copied
                self._store.remove(head)
                del self._copied[head]
            changed = [name for name in changed if name != head]
        small = [name for name in changed if unit.files[name].size <= LARGE]
        in_parallel(lambda name: self._send(name, unit.files[name]), small)
        for name in changed:
            if name not in small:
                self._send(name, unit.files[name])
        others = [name for name in unit.files if name != head]
        if head in unit.files and all(self._copied.get(name) == unit.files[name] for name in others):
            self._send(head, unit.files[head])
            log.info("%s/%s is copied", self._store.address, unit.name)

    def _send(self, name: str, state: State) -> None:
        """Copies a file; if it changes or disappears meanwhile, the next copy deals with it."""
        path = self.folder / name
        try:
            self._store.upload(path, name)
        except FileNotFoundError:
            return
        with suppress(FileNotFoundError):
            if is_growing(name) or state_of(path) == state:  # lines added since are copied the next time
                self._copied[name] = state
                return
        self._copied[name] = State(-1, 0)  # the object is overwritten or removed the next time

    # ---- Who writes ----

    def _check_mark(self) -> None:
        if (found := _mark_of(self._store.read(MARK))) != self._mark:
            raise Taken(
                f"{self._store.address} is written by another run ({found or 'its mark is gone'}): this one is in "
                f"{self.folder} and no longer copied"
            )

    def _set_mark(self) -> None:
        mark = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"
        self._write_notes(self._mark, mark)
        self._store.write(MARK, json.dumps({"mark": mark}).encode())
        self._mark = mark


class Taken(ValueError):
    """Raised when another run writes to the workdir."""


def _mark_of(content: bytes | None) -> str:
    """Returns the mark in the content of `MARK`, or "" if the object does not exist."""
    if content is None:
        return ""
    found = loads(content)
    return str(found["mark"]) if isinstance(found, dict) and "mark" in found else ""
