"""The batches of a fine-tuning run over all epochs, and its position in them, which is saved with checkpoints.

Open it when a resumed run continues at the wrong batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from charlm.core.types import JsonObject
from charlm.finetune.batching import Packed, Packer
from charlm.finetune.strips import Group
from charlm.tasks.base import Row


class Place(NamedTuple):
    """The next batch: its epoch and its number in the epoch, both from 0."""

    epoch: int
    batch: int


class Best:
    """The best development score so far (None: none yet), and how many epochs ago it was first reached."""

    def __init__(self, score: float | None = None, since: int = 0) -> None:
        self.score, self.since = score, since

    def add(self, score: float) -> bool:
        """Adds the score of an epoch; returns whether it is strictly better than all before.

        A score that is not finite (such as a correlation with a constant) counts as worse than any other.
        """
        score = score if math.isfinite(score) else -math.inf
        better = self.score is None or score > self.score
        self.score, self.since = (score, 0) if better else (self.score, self.since + 1)
        return better


class RunPosition:
    """The position of a run: its next batch, its best score so far, and what batches are made by.

    Attributes:
      lengths: lengths of batches, ascending, which decide what rows make a batch (`charlm.finetune.strips`). They
        depend on the devices, and a run that goes on with others keeps those that it began with, so that each row is
        in one batch of an epoch.
    """

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths = lengths
        self.place = Place(0, 0)
        self.best: Best | None = Best()  # None after loading a checkpoint that does not store it

    def get_state(self) -> JsonObject:
        """Returns the position as JSON-able values."""
        best = self.best and {"score": self.best.score, "since": self.best.since}
        return self.place._asdict() | {"best": best, "lengths": [*self.lengths]}

    def set_state(self, state: JsonObject) -> None:
        """Moves to a saved position."""
        self.place = Place(state["epoch"], state["batch"])
        self.best = Best(**state["best"]) if state.get("best") else None
        self.lengths = tuple(state.get("lengths", self.lengths))

    def best_among(self, scores: Iterable[float]) -> Best:
        """Returns the best score; if the checkpoint did not store it, computes it from `scores`, one per epoch."""
        if self.best is None:
            self.best = Best()
            for score in scores:
                self.best.add(score)
        return self.best


class EpochBatches:
    """An endless iterator over packed batches, epoch after epoch; `charlm.training.loop.Loop` reads it.

    Args:
      rows_of: epoch and lengths of batches -> the rows of the epoch, and the groups of rows that form batches.
      packer: packs them.
      lengths: those of a run that begins; one that goes on has its own.
      ahead: number of batches that a thread packs in advance.

    Attributes:
      position: position of the next batch.
      taken: epoch of the last batch taken and its number in the epoch, both from 1, and the number of batches of that
        epoch.
    """

    def __init__(
        self,
        rows_of: Callable[[int, tuple[int, ...]], tuple[Sequence[Row], Sequence[Group]]],
        packer: Packer,
        lengths: tuple[int, ...],
        ahead: int,
    ) -> None:
        self.position = RunPosition(lengths)
        self.taken = (1, 0, 1)
        self._rows_of, self._packer, self._ahead = rows_of, packer, ahead
        self._source: Generator[Packed, None, None] | None = None
        self._count = 0
        packer.measure(*rows_of(0, lengths))

    def __next__(self) -> Packed:
        """Returns the next batch."""
        epoch, at = self.position.place
        if self._source is None:
            rows, groups = self._rows_of(epoch, self.position.lengths)
            self._count = len(groups)
            self._source = self._packed(rows, groups[at:])
        packed = next(self._source)
        self.taken = (epoch + 1, at + 1, self._count)
        if at + 1 == self._count:
            self.close()
            self.position.place = Place(epoch + 1, 0)
        else:
            self.position.place = Place(epoch, at + 1)
        return packed

    def _packed(self, rows: Sequence[Row], groups: Sequence[Group]) -> Generator[Packed, None, None]:
        if not self._ahead:
            yield from (self._packer.pack(rows, group) for group in groups)
            return
        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(self._packer.pack, rows, group) for group in groups[: self._ahead]]
            try:
                for group in [*groups[self._ahead :], *[None] * min(self._ahead, len(groups))]:
                    yield waiting.pop(0).result()
                    if group is not None:
                        waiting.append(pool.submit(self._packer.pack, rows, group))
            finally:
                for future in waiting:
                    future.cancel()

    @property
    def epoch_ended(self) -> bool:
        """Whether the last batch taken was the last of its epoch."""
        return self.taken[1] == self.taken[2]

    def get_state(self) -> JsonObject:
        """Returns the position as JSON-able values."""
        return self.position.get_state()

    def set_state(self, state: JsonObject) -> None:
        """Moves to a saved position."""
        self.close()
        before = self.position.lengths
        self.position.set_state(state)
        if self.position.lengths != before:
            self._packer.measure(*self._rows_of(0, self.position.lengths))

    def close(self) -> None:
        """Ends the thread, if there is one."""
        if self._source is not None:
            self._source.close()
            self._source = None
