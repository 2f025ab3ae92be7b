"""Writes and restores the checkpoints of a run through orbax: in the background, and complete or not at all.

`charlm.core.checkpoint` has what a checkpoint holds, and how to find and read one without a run. Open this module to
change when a checkpoint counts as complete, or which checkpoints of a run are kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from orbax.checkpoint import v1 as ocp

from charlm.core import checksums, followers, hosts
from charlm.core.checkpoint import (
    BEST_METRIC,
    FILES,
    FOLDER,
    LEAST_PART,
    SPIKES,
    arrays_of,
    check_state,
    check_whole,
    clear_reads,
    complete,
    complete_steps,
    description,
    find_latest,
    load,
    reason,
    with_history,
)
from charlm.core.checkpoint_parts import Files, Position, Positioned, Positions
from charlm.core.durable import TEMPORARY, remove_folder, sync_tree
from charlm.core.spikes import to_json
from charlm.core.state import TrainState
from charlm.core.types import Json, JsonObject

UNPLANNED = "unplanned"  # in the description of a checkpoint that only a signal was the reason for
UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of a checkpoint that orbax has not finished


class _HasStep(Protocol):
    """What orbax says of a checkpoint, as far as it is read here."""

    @property
    def step(self) -> int: ...


class Checkpoints:
    """The checkpoints of one workdir: written in the background; the newest ones and the best one are kept.

    All processes must make the same calls. Each writes its part of a checkpoint. Where they share no folder (see
    `charlm.core.followers`), process 0 gathers all parts and writes them alone.

    Args:
      workdir: folder of the run.
      keep: how many of the newest checkpoints are kept beside the best one.
      metadata: JSON-able description stored with each checkpoint (config, vocabulary).
      folder: name of the folder in the workdir that holds the checkpoints.
      write_files: writes the content of the folder `FILES` of each checkpoint, such as a tokenizer; called on the
        first process.

    Raises:
      ValueError: the processes share no folder, and have different newest checkpoints.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        keep: int = 3,
        metadata: JsonObject | None = None,
        folder: str = FOLDER,
        write_files: Callable[[Path], None] | None = None,
    ) -> None:
        self._folder = Path(workdir).absolute() / folder
        self._gathers = followers.following()
        self._told = find_latest(self._folder)  # what `latest` is on process 0, as far as the others know
        if self._gathers and len(set(newest := hosts.everyones(self._told))) > 1:
            raise ValueError(f"{self._folder}: the newest checkpoints of the processes differ: steps {newest}")
        if hosts.is_primary():
            for left in self._folder.glob(f"*{TEMPORARY}"):  # by a run that was killed while it removed a checkpoint
                shutil.rmtree(left, ignore_errors=True)
        self._unplanned = {s for s in complete_steps(self._folder) if _described(self._folder / str(s)).get(UNPLANNED)}
        policies = ocp.training.preservation_policies
        best = policies.BestN(
            n=1,
            get_metric_fn=lambda metrics: metrics[BEST_METRIC],
            reverse=True,
            keep_checkpoints_without_metrics=False,
        )
        self._metadata = metadata
        self._write_files = write_files
        self._pending: int | None = None  # the step that was saved last; its write may not have finished
        context = ocp.Context()
        context.async_options.post_finalization_callback = self._add_checksums
        context.array.saving.min_slice_bytes_for_replica_parallel = LEAST_PART if hosts.alone() else None
        context.memory.deepcopy_host_arrays = not self._gathers  # what is gathered is a copy
        kept = policies.AnyPreservationPolicy([_Newest(keep, self._unplanned), best])
        self._checkpointer = ocp.training.Checkpointer(
            str(self._folder),
            context=context,
            save_decision_policy=_Always(),
            preservation_policy=kept,  # pyright: ignore[reportArgumentType]  # its own protocol has narrower arguments
            cleanup_tmp_directories=True,
        )

    def describe(self, **more: Json) -> None:
        """Adds to the metadata stored with each checkpoint from now on."""
        self._metadata = {**(self._metadata or {}), **more}

    @property
    def latest(self) -> int | None:
        """The step of the newest complete checkpoint; None if there is none."""
        if self._gathers and not hosts.is_primary():
            return self._told
        return find_latest(self._folder)  # orbax would also count a checkpoint that was copied only in part

    def save(
        self,
        step: int,
        state: TrainState,
        data: Positioned,
        metrics: dict[str, float] | None = None,
        unreported: Sequence[float] = (),
        unplanned: bool = False,
    ) -> None:
        """Saves the current `state` and position of the iterator `data` in the background, unless the step exists.

        Args:
          metrics: held-out metrics of this step, if it was evaluated.
          unreported: sums for the next progress line.
          unplanned: whether only a signal is the reason for this checkpoint; see `last_planned`.

        Raises:
          ValueError: this checkpoint or the previous one could not be written; names it and the last good one.
        """
        self.wait()  # orbax would wait, too, but report a failure of the previous checkpoint as one of this step
        present = step in (c.step for c in self._checkpointer.checkpoints)
        done = present and complete(self._folder / str(step))
        if self._gathers:
            done, present = hosts.from_primary([done, present])
        if done:
            return
        if self._gathers and present:  # incomplete; orbax would look for it on every process to overwrite it
            self._remove([step])
            present = False
        more: JsonObject = {} if state.history is None else {SPIKES: to_json(state.history)}
        if unplanned:
            more[UNPLANNED] = True
            self._unplanned.add(step)
        metadata = checksums.described({**(self._metadata or {}), **more, "unreported": list(unreported)})
        if self._gathers:
            parts = {"state": hosts.on_primary(arrays_of(state)), "data": Positions(hosts.everyones(data.get_state()))}
        else:
            parts = {"state": arrays_of(state), "data": Position(data)}
        if self._write_files is not None:
            parts[FILES] = Files(self._write_files)
        self._pending = step
        with self._clear_errors():
            self._checkpointer.save_checkpointables_async(
                step,
                parts,
                overwrite=present,
                metrics=None if metrics is None else {**metrics},
                custom_metadata=metadata,
            )

    def restore(self, step: int, abstract_state: TrainState, data: Positioned) -> TrainState:
        """Returns the state of a step, placed as `abstract_state` says, and moves the iterator `data` to its position.

        Raises:
          ValueError: when the checkpoint is damaged, naming the last good one before it; when it is the state of
            another model or optimizer.
        """
        followers.catch_up()
        if self._gathers:
            return load(self.folder(step), abstract_state, data)
        check_state(self.folder(step), abstract_state)
        with clear_reads(self.folder(step)):
            wanted = {"state": arrays_of(abstract_state), "data": Position(data)}
            arrays = self._checkpointer.load_checkpointables(step, wanted)["state"]
        return with_history(self.folder(step), arrays, abstract_state)

    def last_planned(self, most: int) -> int | None:
        """Returns the newest undamaged step up to `most`, without those that only a signal was the reason for.

        So a run that was stopped goes back to the same step as one that was not. All processes must call it.
        """
        self.wait()

        def find() -> int | None:
            for step in sorted(set(complete_steps(self._folder)) - self._unplanned, reverse=True):
                with suppress(ValueError, OSError):
                    if step <= most:
                        check_whole(self.folder(step))
                        return step
            return None

        return hosts.from_primary(find() if hosts.is_primary() else None)

    def remove_after(self, step: int) -> None:
        """Removes the checkpoints of later steps, the newest first; all processes must call it."""
        self.wait()
        self._remove(sorted((s for s in complete_steps(self._folder) if s > step), reverse=True))
        self._unplanned -= {later for later in self._unplanned if later > step}

    def _remove(self, steps: Sequence[int]) -> None:
        """Removes the checkpoints of steps, those that process 0 names, in its order."""
        if hosts.is_primary():
            for step in steps:
                with self._clear_errors():
                    remove_folder(self.folder(step))
        hosts.total(0)  # a barrier: after it, no process finds them
        followers.catch_up()
        self._pending, self._told = None, find_latest(self._folder)
        self._checkpointer.reload()

    def _add_checksums(self) -> None:
        """Adds checksums to the files of all processes; orbax calls it before the checkpoint gets its final name."""
        if not hosts.is_primary():
            return
        written = [folder for folder in self._folder.glob(f"*{UNFINISHED}*") if folder.is_dir()]
        if not written:
            raise FileNotFoundError(f"there is no unfinished checkpoint in {self._folder}")
        for folder in written:
            checksums.write(folder)
            sync_tree(folder)  # orbax syncs the arrays alone, and removes older checkpoints soon

    def folder(self, step: int) -> Path:
        """Returns the folder of a step's checkpoint."""
        return self._folder / str(step)

    def wait(self) -> None:
        """Waits until every saved checkpoint is on disk.

        Raises:
          ValueError: the last checkpoint could not be written; names it and the last good one.
        """
        with self._clear_errors():
            self._checkpointer.wait()
        self._told = self._told if self._pending is None else self._pending

    def close(self) -> None:
        """Waits as `wait` does, then closes orbax's checkpointer."""
        with self._clear_errors():
            self._checkpointer.close()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turns whatever orbax raises, of any class and often from a background thread, into a one-line ValueError."""
        try:
            yield
        except Exception as error:
            last = find_latest(self._folder)
            good = f"the last good checkpoint is step {last}" if last is not None else "there is no good checkpoint yet"
            what = "a checkpoint" if self._pending is None else f"the checkpoint of step {self._pending}"
            raise ValueError(f"{what} could not be written to {self._folder}: {reason(error)}; {good}") from error


def _described(checkpoint: Path) -> JsonObject:
    try:
        return description(checkpoint)
    except ValueError:  # it is damaged, which is reported where it is read
        return {}


class _Newest:
    """Keeps the newest checkpoint and the newest `keep` that were planned, so that signals push none of these out."""

    def __init__(self, keep: int, unplanned: set[int]) -> None:
        self._keep, self._unplanned = keep, unplanned

    def should_preserve(self, checkpoints: Sequence[_HasStep], *, context: object) -> Sequence[bool]:
        del context
        steps = [checkpoint.step for checkpoint in checkpoints]
        planned = sorted(step for step in steps if step not in self._unplanned)
        kept = {max(steps, default=0), *planned[-self._keep :]}
        return [step in kept for step in steps]


class _Always:
    """A save policy that always saves: the training loop decides when."""

    def should_save(self, *args: object, **kwargs: object) -> bool:
        return True
