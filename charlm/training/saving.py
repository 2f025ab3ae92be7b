"""The checkpoints of a run while it trains, in the workdir and on local disks: when one is due, and how it is written.

Open it to change when a run saves. `charlm.core.checkpoint_store` and `charlm.core.local_store` write the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.local_store import LocalCheckpoints
from charlm.core.state import TrainState
from charlm.training.course import Batches
from charlm.training.first_state import Start


class Saving:
    """The checkpoints of a run; all processes must make the same calls.

    Args:
      store: the checkpoints in the workdir.
      local: those on a disk of this host; None: there are none.
      batches: the batches, whose position is saved and restored.
      workdir: the folder as the user named it.
    """

    def __init__(
        self, store: Checkpoints, local: LocalCheckpoints | None, batches: Batches, workdir: str | Path
    ) -> None:
        self.workdir = workdir
        self._store, self._local, self._batches = store, local, batches
        self._every = 0 if local is None else local.every
        self._begun = False  # whether the workdir holds a checkpoint, or will as soon as it is written

    def begin(self, start: int) -> None:
        """Removes local checkpoints that do not belong to the past of a run that starts from a step."""
        if self._local is not None:
            self._local.keep_up_to(start)
            self._begun = hosts.from_primary(self._store.latest is not None)

    def end(self) -> None:
        """Removes local checkpoints, since the run is over."""
        if self._local is not None:
            self._local.remove()

    def wait(self) -> None:
        """Waits until every checkpoint is in the workdir; ValueError if the last could not be written."""
        self._store.wait()

    def is_due_here(self, step: int) -> bool:
        """Returns whether a checkpoint on local disks is due."""
        return self._every > 0 and step % self._every == 0

    def is_first(self, step: int) -> bool:
        """Returns whether one in the workdir is due because local ones need one there."""
        return self.is_due_here(step) and (not self._begun or step == self._every)

    def save(
        self,
        step: int,
        state: TrainState,
        metrics: dict[str, float] | None,
        unreported: Sequence[float],
        unplanned: bool,
    ) -> None:
        """Saves in the workdir, as `charlm.core.checkpoint_store.Checkpoints.save` does."""
        self._store.save(step, state, self._batches, metrics, unreported, unplanned)
        self._begun = True

    def save_here(self, step: int, state: TrainState, unreported: Sequence[float]) -> None:
        """Saves the shards of this process on the local disk of its host."""
        if self._local is not None:
            self._local.save(step, state, self._batches, unreported)

    def last_planned(self, most: int) -> int | None:
        """Returns the newest undamaged step up to `most`; those that were saved because of a signal do not count."""
        return self._store.last_planned(most)

    def remove_after(self, step: int) -> None:
        """Removes the checkpoints of later steps."""
        if self._local is not None:
            self._local.keep_up_to(step)
        self._store.remove_after(step)

    def restore(self, step: int, abstract_state: TrainState) -> Start:
        """Returns what a checkpoint in the workdir holds, and moves the batches to its position."""
        state = self._store.restore(step, abstract_state, self._batches)
        return Start(state, step, checkpoints.unreported(self._store.folder(step)))

    def where_to_go_on(self) -> str:
        """Returns the text that says from which checkpoint the run can resume."""
        self._store.wait()
        last = self._store.latest
        none = "there is no checkpoint yet"
        return none if last is None else f"the last good checkpoint is step {last} in {self.workdir}"

    @contextmanager
    def naming(self, step: int) -> Iterator[None]:
        """Adds the step, and from where the run can go on, to what could not be written."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"step {step}: {error}; {self.where_to_go_on()}") from error
