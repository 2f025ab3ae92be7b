"""The batches of all epochs in their order, and where a fine-tuning run stands in them; saved with its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from charlm.finetune.batching import Group, Packed, Packer
from charlm.tasks.base import Row


class Place(NamedTuple):
    """The next batch: of which epoch, from 0, and which of its batches."""

    epoch: int
    batch: int


class Best:
    """The best development score so far, and how many epochs ago it was first reached; None: there is none yet."""

    def __init__(self, score: float | None = None, since: int = 0) -> None:
        self.score, self.since = score, since

    def add(self, score: float) -> bool:
        """Counts an epoch with its score; returns whether it is better than all before. An equal one is not.

        A score that is not a number (a correlation with a constant, say) is worse than any other.
        """
        score = score if math.isfinite(score) else -math.inf
        better = self.score is None or score > self.score
        self.score, self.since = (score, 0) if better else (self.score, self.since + 1)
        return better


class Position:
    """Where a run stands."""

    def __init__(self) -> None:
        self.place = Place(0, 0)
        self.best: Best | None = Best()  # None: of a checkpoint that does not hold it

    def get_state(self) -> dict[str, Any]:
        """Returns it as JSON."""
        best = self.best and {"score": self.best.score, "since": self.best.since}
        return self.place._asdict() | {"best": best}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes there."""
        self.place = Place(state["epoch"], state["batch"])
        self.best = Best(**state["best"]) if state.get("best") else None

    def best_among(self, scores: Iterable[float]) -> Best:
        """Returns the best score; where the checkpoint did not hold it, that of these, of all epochs in order."""
        if self.best is None:
            self.best = Best()
            for score in scores:
                self.best.add(score)
        return self.best


class EpochBatches:
    """Packed batches, one epoch after another without end, as `charlm.training.loop.Loop` takes them.

    Args:
      rows_of: epoch -> its rows, and which of them form a batch. packer: lays them out.
      ahead: batches packed before they are asked for, in a thread.

    Attributes:
      position: of the next batch. taken: epoch and number of the batch that was taken last, both from 1, and how many
        its epoch has.
    """

    def __init__(
        self, rows_of: Callable[[int], tuple[Sequence[Row], Sequence[Group]]], packer: Packer, ahead: int
    ) -> None:
        self.position = Position()
        self.taken = (1, 0, 1)
        self._rows_of, self._packer, self._ahead = rows_of, packer, ahead
        self._source: Generator[Packed, None, None] | None = None
        self._count = 0

    def __next__(self) -> Packed:
        """Returns the next batch."""
        epoch, at = self.position.place
        if self._source is None:
            rows, groups = self._rows_of(epoch)
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
        """Whether the batch that was taken last was the last of its epoch."""
        return self.taken[1] == self.taken[2]

    def get_state(self) -> dict[str, Any]:
        """Returns the position as JSON."""
        return self.position.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a position."""
        self.close()
        self.position.set_state(state)

    def close(self) -> None:
        """Ends the thread, if there is one."""
        if self._source is not None:
            self._source.close()
            self._source = None
