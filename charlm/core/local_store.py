"""Checkpoints on a disk of each host, between those in the workdir: written often, because the disk is near.

Every process writes what its own devices hold, and its own position in the data, so nothing is sent and no process
waits for another. Such a checkpoint can be resumed only with the same processes and mesh, so it does not replace those
in the workdir. After a crash, the processes agree on the newest step that all of them still have. Orbax's emergency
checkpoints do not serve here: they need at least two replicas on different hosts, and hold no position in the data.
Open it when a run does not go on from its local checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax
import ml_collections
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from charlm.core import checksums, hosts
from charlm.core.checkpoint import SPIKES, arrays_of, complete, complete_steps, description, reason, with_history
from charlm.core.checkpoint_parts import Positioned
from charlm.core.durable import TEMPORARY, remove_folder, replacing, write_json
from charlm.core.reading import read_json
from charlm.core.sharding import path_name
from charlm.core.spikes import to_json
from charlm.core.state import StoredState, TrainState
from charlm.core.types import JsonObject

log = logging.getLogger("charlm")

RUN_FILE = "local_checkpoints.json"  # in the workdir: whose local checkpoints are those of its run
KEPT = 2  # checkpoints; with several processes one more, because another process may still be writing its last but one
_RUN, _PLACES, _UNREPORTED = "run", "places", "unreported"
_ARRAYS, _POSITION = "state/arrays.safetensors", "data/position.json"


class LocalCheckpoints:
    """The local checkpoints of this process.

    Args:
      train: section of the config.
      workdir: the run's folder.
      new: whether a new run begins, to which no checkpoint belongs that is there; the same on all processes.

    Attributes:
      every: steps between two of them.
    """

    def __init__(self, train: ml_collections.ConfigDict, workdir: Path, new: bool) -> None:
        name = f"{workdir.name}-{hashlib.sha256(str(workdir.absolute()).encode()).hexdigest()[:12]}"
        self.every = train.local_checkpoint_every
        self._folder = Path(train.local_dir, name, f"process_{jax.process_index()}-of-{jax.process_count()}")
        self._run = hosts.from_primary(_run_of(workdir, new) if hosts.is_primary() else None)
        self._pool = ThreadPoolExecutor(1, "local checkpoint")
        self._writing: Future[None] | None = None

    def newest(self, above: int, abstract_state: TrainState) -> int | None:
        """Returns the newest step above another that all processes have undamaged; None: there is none.

        All processes must call it; the log says why none is used although there is one.
        """
        mine: list[int] = []
        for step in sorted((s for s in complete_steps(self._folder) if s > above), reverse=True):
            problem = self._problem(step, abstract_state)
            if problem:
                log.warning("%s is not used: %s", self._folder / str(step), problem)
            else:
                mine.append(step)
        everyones = hosts.everyones(mine)
        common = max(set(everyones[0]).intersection(*everyones), default=None)
        if common is None and any(everyones):
            most = max(everyones)
            lacking = next((i for i, steps in enumerate(everyones) if not set(steps) & set(most)), None)
            if lacking is None:
                log.warning("local checkpoints are not used: none of the steps %s is common to all", everyones)
            else:
                log.warning(
                    "local checkpoints are not used: process %d has none of the steps %s that another one has",
                    lacking, sorted(most),
                )  # fmt: skip
        return common

    def _problem(self, step: int, abstract_state: TrainState) -> str:
        """Returns why a checkpoint cannot be used; "": it can."""
        folder = self._folder / str(step)
        try:
            about = description(folder)
            if about.get(_RUN) != self._run:
                return "it is another run's"
            if about.get(_PLACES) != _places(arrays_of(abstract_state)):
                return "it was written for another mesh or by another optimizer"
            checksums.check(folder)
        except (ValueError, OSError) as error:
            return f"it is damaged ({error})"
        return ""

    def restore(self, step: int, abstract_state: TrainState, data: Positioned) -> tuple[TrainState, list[float]]:
        """Returns the state of a step that `newest` found and the sums not yet reported; moves `data` to its position.

        All processes must call it.
        """
        folder = self._folder / str(step)
        abstract = arrays_of(abstract_state)
        with safe_open(folder / _ARRAYS, framework="numpy") as file:
            pieces = {name: dict(_pieces_of(leaf)) for name, leaf in _named(abstract)}

            def whole(path: tuple[object, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
                name = path_name(path)
                read = {place: file.get_tensor(f"{name}@{place}") for place in set(pieces[name].values())}
                placed = [  # copies, because a step could not reuse the memory of NumPy's arrays
                    jax.device_put(read[place], device, may_alias=False) for device, place in pieces[name].items()
                ]
                return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, placed).block_until_ready()

            arrays = jax.tree_util.tree_map_with_path(whole, abstract)
        data.set_state(read_json(folder / _POSITION))
        about = description(folder)
        return with_history(folder, arrays, abstract_state), list(about[_UNREPORTED])

    def save(self, step: int, state: TrainState, data: Positioned, unreported: Sequence[float]) -> None:
        """Copies the state to this host and writes it in the background, after the write before has ended."""
        self.wait()
        arrays = arrays_of(state)
        copies = {f"{name}@{place}": np.array(piece) for name, leaf in _named(arrays) for place, piece in _held(leaf)}
        about: JsonObject = {_RUN: self._run, _PLACES: _places(arrays), _UNREPORTED: list(unreported)}
        if state.history is not None:
            about[SPIKES] = to_json(state.history)
        position = json.loads(json.dumps(data.get_state()))
        self._writing = self._pool.submit(self._write, step, copies, position, about)

    def _write(self, step: int, copies: dict[str, np.ndarray], position: JsonObject, about: JsonObject) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = KEPT if hosts.alone() else KEPT + 1
        for older in sorted(complete_steps(self._folder))[: -(kept - 1)]:
            remove_folder(self._folder / str(older))
        with replacing(self._folder / str(step)) as temporary:
            folder = Path(temporary)
            for part in (_ARRAYS, _POSITION):
                (folder / part).parent.mkdir(parents=True)
            save_file(copies, folder / _ARRAYS)
            write_json(folder / _POSITION, position)
            checksums.write(folder)
            stored = {"custom_metadata": checksums.described(about), "commit_timestamp_nsecs": time.time_ns()}
            write_json(folder / checksums.ABOUT, stored)
        assert complete(self._folder / str(step))

    def wait(self) -> None:
        """Waits until the last checkpoint is written; if that failed, the log says why, and the run goes on."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            writing.result()
        except Exception as error:  # of the system or of safetensors, whose errors have classes of their own
            log.warning("a checkpoint could not be written to %s: %s", self._folder, reason(error))

    def keep_up_to(self, step: int) -> None:
        """Removes what does not belong to the run's past when it goes on from a step."""
        self.wait()
        for left in self._folder.glob(f"*{TEMPORARY}"):
            shutil.rmtree(left, ignore_errors=True)
        for other in sorted(complete_steps(self._folder), reverse=True):
            if other > step or _run_in(self._folder / str(other)) != self._run:
                remove_folder(self._folder / str(other))

    def remove(self) -> None:
        """Removes all of them, since the run has ended."""
        self.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Waits for the last write."""
        self.wait()
        self._pool.shutdown()


def _run_of(workdir: Path, new: bool) -> str:
    """Returns what marks the local checkpoints of a run; a new run gets a mark of its own."""
    path = workdir / RUN_FILE
    try:
        if not new:
            return str(read_json(path)[_RUN])
    except (OSError, ValueError, KeyError, TypeError):  # the run had none until now
        pass
    run = secrets.token_hex(8)
    try:
        write_json(path, {_RUN: run})
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from error
    return run


def _run_in(checkpoint: Path) -> str | None:
    try:
        return description(checkpoint).get(_RUN)
    except ValueError:
        return None


def _named(tree: StoredState) -> list[tuple[str, jax.Array]]:
    return [(path_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _place(index: tuple[slice, ...], shape: tuple[int, ...]) -> str:
    """Returns where a piece lies in an array, such as "0:4,8:16"; "" for a scalar."""
    bounds = (cut.indices(size) for cut, size in zip(index, shape, strict=True))
    return ",".join(f"{start}:{stop}" for start, stop, _ in bounds)


def _pieces_of(leaf: jax.Array) -> Iterator[tuple[jax.Device, str]]:  # pyright: ignore[reportInvalidTypeForm]  # no stub
    """Yields each device of this process, and where the piece of an array, real or abstract, lies that it holds."""
    for device, index in leaf.sharding.addressable_devices_indices_map(leaf.shape).items():
        yield device, _place(index or (), leaf.shape)


def _held(leaf: jax.Array) -> Iterator[tuple[str, jax.Array]]:
    """Yields the pieces of an array that the devices of this process hold, each once."""
    yield from {_place(shard.index, leaf.shape): shard.data for shard in leaf.addressable_shards}.items()


def _places(arrays: StoredState) -> str:
    """Returns a digest of shapes, dtypes and places of all pieces that this process holds."""
    told = [
        [name, list(leaf.shape), str(leaf.dtype), sorted({place for _, place in _pieces_of(leaf)})]
        for name, leaf in _named(arrays)
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
