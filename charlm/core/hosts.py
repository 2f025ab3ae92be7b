"""Runs with several processes: how they start, exchange values, and end together.

Every process runs the same program on its own devices. Process 0, the primary, prepares the text and writes metrics and
descriptions; all processes write checkpoints. In a run of one process the functions here cost nothing. Open it to see
how processes agree on a value, or to find out why all of them end when one fails.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.typing import ArrayLike

from charlm.core.logs import print_error
from charlm.core.types import Json, Tree
from charlm.core.watch import Watch

log = logging.getLogger("charlm")

T = TypeVar("T")
Number = TypeVar("Number", int, float)

WAIT_SECONDS = 300  # how long to wait for process 0 to start; JAX's own limit
WATCH_SECONDS = 5  # how long to wait, after a collective failed, for the message that a process died
EXCHANGE_SECONDS = 1.0  # how often processes that work at once ask each other whether they are done
SHARED_SECONDS = 10  # how soon other hosts must see a new file: network file systems are slow

LEAST_BYTES = 1024  # least size that `from_primary` pads a value to

_watch: Watch | None = None


def start(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Joins the processes of a run; must be called before anything else asks for a device.

    JAX waits five minutes for all processes. If another one is still missing then, JAX itself ends process 0.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: the number of processes.
      process: the number of this process. If all three are None, JAX detects them on Cloud TPU, Slurm, Open MPI and
        Kubernetes. (Under Slurm and Open MPI it assumes one GPU per process, unless JAX_LOCAL_DEVICE_IDS=0,1,... names
        the devices of this process.)

    Raises:
      ValueError: the processes cannot be detected, or process 0 is not reached.
    """
    if coordinator is not None:
        _check_address(coordinator, processes, process)
        log.info("process %s of %s: waiting for the others at %s", process, processes, coordinator)
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except Exception as error:  # jax and its cluster detectors raise exceptions of many classes
        raise ValueError(
            f"--multihost: {' '.join(str(error).split())[:300] or type(error).__name__}; give --coordinator=HOST:PORT, "
            "--processes=N and --process=I, the same but for I on every host"
        ) from error
    if jax.default_backend() == "cpu":
        # The processes would not compile alike: one that finds its program waits for the others, and their network
        # (Gloo) gives up after half a minute.
        jax.config.update("jax_enable_compilation_cache", False)
    _start_watch(coordinator)
    if not is_primary():
        log.setLevel(logging.WARNING)  # the primary logs for all


def _start_watch(coordinator: str | None) -> None:
    global _watch
    if alone():
        return
    _watch = Watch(jax.process_index())
    address = from_primary(_watch.address() if is_primary() else None)
    if not is_primary():
        _watch.connect(address, [coordinator.rpartition(":")[0].strip("[]")] if coordinator else [])
    _watch.start()


def _check_address(coordinator: str, processes: int | None, process: int | None) -> None:
    """Checks the options, and that process 0 is reachable; JAX would end the program or raise an unclear error."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--coordinator={coordinator}: expected HOST:PORT, such as 10.0.0.1:1234")
    if processes is None or process is None or not 0 <= process < processes:
        raise ValueError(f"--processes={processes} --process={process}: expected N and a number from 0 to N - 1")
    deadline = time.monotonic() + WAIT_SECONDS
    while process:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"--coordinator={coordinator}: process 0 was not reached in {WAIT_SECONDS} s: {error}"
                ) from None
            time.sleep(1)


def alone() -> bool:
    """Returns whether this is the only process."""
    return jax.process_count() == 1


def is_primary() -> bool:
    """Returns whether this is process 0."""
    return jax.process_index() == 0


def from_primary(value: Json) -> Json:
    """Returns the primary's value, which must be JSON-able, on every process; all must call it."""
    if alone():
        return value
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    padded = np.zeros(max(LEAST_BYTES, 1 << (size - 1).bit_length()), np.uint8)  # each size is compiled, so use few
    if is_primary():
        padded[:size] = data
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).astype(np.uint8)[:size].tobytes())


def everyones(value: Json) -> list[Json]:
    """Returns the values of all processes, which must be JSON-able, in their order; all must call it."""
    if alone():
        return [value]
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(np.int32(len(data)))).ravel()
    padded = np.zeros(max(LEAST_BYTES, 1 << (int(sizes.max()) - 1).bit_length()), np.uint8)  # few sizes to compile for
    padded[: len(data)] = data
    rows = np.asarray(multihost_utils.process_allgather(padded)).astype(np.uint8)
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def total(count: Number) -> Number:
    """Returns the sum of a number over all processes (floats in float32 precision); all must call it."""
    if alone():
        return count
    if not isinstance(count, int):
        return type(count)(np.sum(multihost_utils.process_allgather(np.float32(count)), dtype=np.float64))
    halves = np.asarray([count >> 31, count & 2**31 - 1], np.int32)  # an array that is exchanged has 32 bits a number
    high, low = np.asarray(multihost_utils.process_allgather(halves)).astype(np.int64).sum(axis=0).tolist()
    return type(count)((high << 31) + low)


def primary_first(work: Callable[[], T]) -> T:
    """Runs `work` on the primary and then on the other processes, and returns its result.

    With a shared cache, the other processes find there what the primary computed; otherwise each computes it itself.

    Raises:
      ValueError: the work failed on some process; raised on every process.
    """
    if alone():
        return work()
    done: list[T] = []
    error = from_primary(_attempt(work, done) if is_primary() else None)
    if error is None and not is_primary():
        error = _attempt(work, done)
    if total(error is not None):
        raise ValueError(error or "another process failed; its own log says why")
    return done[0]


def _attempt(work: Callable[[], T], done: list[T]) -> str | None:
    """Appends the result of the work to `done`; returns the error message, or None if it succeeded."""
    try:
        done.append(work())
        return None
    except (ValueError, OSError) as error:
        return str(error) or type(error).__name__


def everywhere(work: Callable[[], object]) -> None:
    """Runs `work` on every process at once, and returns when it is done on all; all must call it.

    The work may take long: it runs in a thread, while the processes exchange every second how far they are. Waiting
    for each other inside a collective is limited to half a minute on CPUs.

    Raises:
      ValueError: it failed on some process; raised on every process.
    """
    if alone():
        work()
        return
    with ThreadPoolExecutor(1, "everywhere") as pool:
        error = pool.submit(_attempt, work, [])
        wait = EXCHANGE_SECONDS / 50
        while True:
            futures.wait([error], wait)
            wait = min(2 * wait, EXCHANGE_SECONDS)
            states = everyones([error.done(), error.result() if error.done() else None])
            if all(done for done, _ in states):
                break
    failed = {process: why for process, (_, why) in enumerate(states) if why is not None}
    if failed:
        own, first = failed.get(jax.process_index()), min(failed)
        raise ValueError(own if own is not None else f"process {first} failed: {failed[first]}")


def on_primary(tree: Tree) -> Tree:
    """Returns the arrays of a tree, however sharded, as numpy arrays on process 0, gathered one after the other.

    All must call it. The arrays are copies; on the other processes, arrays of zeros that take no memory.
    """

    def whole(x: jax.Array | np.ndarray) -> np.ndarray:
        if is_primary():
            return np.array(on_host(x))
        if not _is_whole_here(x):
            on_host(x)
        return np.broadcast_to(np.zeros((), x.dtype), np.shape(x))

    return jax.tree.map(whole, tree)


def shares(folder: Path) -> bool:
    """Returns whether all processes see the same folder; all must call it, and all get the same answer."""
    if alone():
        return True
    name = from_primary(f".shared.{secrets.token_hex(8)}")
    if is_primary():
        (folder / name).touch()
    total(0)  # a barrier: after it the file exists
    deadline = time.monotonic() + SHARED_SECONDS
    while not (seen := (folder / name).exists()) and time.monotonic() < deadline:
        time.sleep(0.5)
    missing = total(not seen)
    if is_primary():
        (folder / name).unlink(missing_ok=True)
    return not missing


def on_host(tree: Tree) -> Tree:
    """Returns the arrays of a tree, however sharded, as numpy arrays on every process; all must call it."""
    if alone():
        return jax.device_get(tree)

    def whole(x: ArrayLike) -> np.ndarray:
        # No gathering, which would compile a program for each shape of array, for arrays that are whole here.
        return np.asarray(x if _is_whole_here(x) else multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(whole, tree)


def _is_whole_here(x: ArrayLike) -> bool:
    return not isinstance(x, jax.Array) or x.is_fully_replicated


def end_now(why: str) -> NoReturn:
    """Ends this process from any thread, with one line on standard error and status 1; the others are told why."""
    if _watch is not None:
        _watch.fail(why)
    print_error(why if alone() else f"process {jax.process_index()}: {why}")
    os._exit(1)


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """Ends this process at once if an error leaves the block, and tells the other processes, which then end, too.

    A normal exit would first wait minutes for the other processes, which wait for this one inside a collective.
    """
    try:
        yield
    except BaseException as error:
        if alone():
            raise
        if _of_the_runtime(error):  # usually a collective that lost a process: give `Watch` time to end this one
            time.sleep(WATCH_SECONDS)
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else " ".join(str(error).split())
        if not isinstance(error, ValueError | OSError | KeyboardInterrupt):
            traceback.print_exc()
            why = f"{type(error).__name__}: {why}"
        end_now(why)
    if _watch is not None:
        _watch.done()


def _of_the_runtime(error: BaseException) -> bool:
    """Returns whether an error is XLA's. It may be a ValueError that begins with a status such as "UNKNOWN: "."""
    return isinstance(error, jax.errors.JaxRuntimeError) or re.match(r"[A-Z_]{5,}: ", str(error)) is not None
