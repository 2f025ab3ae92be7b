"""Several processes, one run: how they start, what only the first does, and how they agree.

Every process runs the same program on its own devices. Process 0, the primary, prepares the text, and writes metrics
and descriptions; checkpoints are written by all. Alone, every function here is free.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from charlm.core.watch import Watch

log = logging.getLogger("charlm")

T = TypeVar("T")
Number = TypeVar("Number", int, float)

WAIT_SECONDS = 300  # for process 0 to start; JAX's own limit
WATCH_SECONDS = 5  # for the news that a process died, after what was done together failed
SHARED_SECONDS = 10  # until a new file must be seen on other hosts: network file systems take their time

LEAST_BYTES = 1024  # that a value of the primary is padded to

_watch: Watch | None = None


def start(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Joins the processes of a run; call it before anything else asks for a device.

    Args:
      coordinator: HOST:PORT of process 0. processes: how many. process: number of this one. All None: JAX finds them
        out, on Cloud TPU, Slurm, Open MPI and Kubernetes. (Under Slurm and Open MPI it takes one process for one GPU,
        unless JAX_LOCAL_DEVICE_IDS=0,1,... names those of this process.)

    JAX waits five minutes for all; process 0, when another does not come by then, is ended by JAX itself.

    Raises:
      ValueError: when they cannot be found out, or process 0 is not reached.
    """
    if coordinator is not None:
        _check_address(coordinator, processes, process)
        log.info("process %s of %s: waiting for the others at %s", process, processes, coordinator)
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except Exception as error:  # jax and the cluster detectors raise every kind
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
        log.setLevel(logging.WARNING)  # what the primary says is true of all


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
    """Checks what JAX would end the program for, or fail on in its own words."""
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
    """Says whether there is no other process."""
    return jax.process_count() == 1


def is_primary() -> bool:
    """Says whether this is process 0."""
    return jax.process_index() == 0


def from_primary(value: Any) -> Any:
    """Returns the JSON-able value of the primary on every process; all must call it."""
    if alone():
        return value
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    padded = np.zeros(max(LEAST_BYTES, 1 << (size - 1).bit_length()), np.uint8)  # few sizes: each is compiled
    if is_primary():
        padded[:size] = data
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).astype(np.uint8)[:size].tobytes())


def total(count: Number) -> Number:
    """Returns the sum of every process's number, of floats to seven digits; all must call it."""
    if alone():
        return count
    kind = np.int32 if isinstance(count, int) else np.float32
    return type(count)(np.sum(multihost_utils.process_allgather(kind(count)), dtype=np.float64))


def primary_first(work: Callable[[], T]) -> T:
    """Does the same work on the primary and then, when it is done there, on the others; for all of them or for none.

    What the primary left in a shared cache the others only find; without one, each does it for itself.

    Raises:
      ValueError: on every process, when the work raised it on one of them.
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
    """Puts what the work returns into `done`; returns its error, None without one."""
    try:
        done.append(work())
        return None
    except (ValueError, OSError) as error:
        return str(error) or type(error).__name__


def shares(folder: Path) -> bool:
    """Says whether a folder is the same on every process; all must call it, and all get the same answer."""
    if alone():
        return True
    name = from_primary(f".shared.{secrets.token_hex(8)}")
    if is_primary():
        (folder / name).touch()
    total(0)  # the file is there
    deadline = time.monotonic() + SHARED_SECONDS
    while not (seen := (folder / name).exists()) and time.monotonic() < deadline:
        time.sleep(0.5)
    missing = total(not seen)
    if is_primary():
        (folder / name).unlink(missing_ok=True)
    return not missing


def on_host(tree: Any) -> Any:
    """Returns the arrays of a tree, wherever their parts lie, as numpy arrays on every process; all must call it."""
    if alone():
        return jax.device_get(tree)

    def whole(x: Any) -> np.ndarray:
        here = not isinstance(x, jax.Array) or x.is_fully_replicated  # without a program for each shape of array
        return np.asarray(x if here else multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(whole, tree)


def end_now(why: str) -> NoReturn:
    """Ends this process from any thread, with one line on standard error and status 1; the others are told why."""
    if _watch is not None:
        _watch.fail(why)
    print(f"error: {why}" if alone() else f"error: process {jax.process_index()}: {why}", file=sys.stderr, flush=True)
    os._exit(1)


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """Ends this process at once when an error leaves the block, so that the others do not wait for it.

    The usual way out would first wait minutes for the others, who wait for this one inside a collective. They are told
    of the error, and end, too.
    """
    try:
        yield
    except BaseException as error:
        if alone():
            raise
        if _of_the_runtime(error):  # as a rule a collective that lost another process: `Watch` then ends this one
            time.sleep(WATCH_SECONDS)
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else " ".join(str(error).split())
        if not isinstance(error, ValueError | OSError | KeyboardInterrupt):
            traceback.print_exc()
            why = f"{type(error).__name__}: {why}"
        end_now(why)
    if _watch is not None:
        _watch.done()


def _of_the_runtime(error: BaseException) -> bool:
    """Says whether an error is one of XLA's, which may be a ValueError: they begin with a status, as "UNKNOWN: "."""
    return isinstance(error, jax.errors.JaxRuntimeError) or re.match(r"[A-Z_]{5,}: ", str(error)) is not None
