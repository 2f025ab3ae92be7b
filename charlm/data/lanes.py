"""Batches packed from lanes: one grain iterator whose position can be saved.

Each of a batch's S shards is packed from a lane of its own, every S-th record. So what a shard holds depends on S
alone, and a process packs only the lanes whose shards lie on its devices. Packing is stateful: the iterator saves what
its lanes hold back beside grain's positions, and a resumed run, on however many processes, sees exactly the batches
that the unbroken run would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grain
import numpy as np


class Lane(Protocol):
    """Packs records into shards, one after another."""

    def shard(self) -> tuple[Any, bool]:
        """Returns the next shard, its arrays of a fixed shape, and whether it holds any text."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Returns what the lane holds back, JSON-able."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        ...


Tree = TypeVar("Tree")
MakeLane = Callable[[int, Iterator[Any]], Lane]  # number of the lane, its records


def stack(trees: Sequence[Tree]) -> Tree:
    """Returns equal trees of tuples and arrays as one, with a new leading axis on every array; None stays None."""
    return _stacked(trees)


def _stacked(trees: Sequence[Any]) -> Any:  # types do not go through a tree
    first = trees[0]
    if isinstance(first, tuple):
        make = getattr(type(first), "_make", tuple)
        return make(_stacked(parts) for parts in zip(*trees, strict=True))
    return None if first is None else np.stack(trees)


class LaneBatches(grain.IterDataset[Any]):
    """Batches [accumulation, S', ...], one shard for each lane that is given.

    Args:
      lanes: for each shard that is wanted, its index among all `of` shards, and its records.
    """

    def __init__(self, lanes: Mapping[int, grain.IterDataset[Any]], make: MakeLane, of: int, accumulation: int) -> None:
        super().__init__(list(lanes.values()))
        self.lanes, self.make, self.of, self.accumulation = tuple(lanes), make, of, accumulation

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _LaneIterator([iter(records) for records in self._parents], self)


class _LaneIterator(grain.DatasetIterator[Any]):
    def __init__(self, records: list[grain.DatasetIterator[Any]], settings: LaneBatches) -> None:
        super().__init__(records)
        self._of, self._accumulation = settings.of, settings.accumulation
        made = zip(settings.lanes, records, strict=True)
        self._lanes = {number: settings.make(number, lane_records) for number, lane_records in made}

    def __next__(self) -> Any:
        micro_batches = [[lane.shard() for lane in self._lanes.values()] for _ in range(self._accumulation)]
        if not any(filled for shards in micro_batches for _, filled in shards):
            raise StopIteration
        return stack([stack([shard for shard, _ in shards]) for shards in micro_batches])

    def get_state(self) -> dict[str, Any]:
        states = {
            str(number): {"records": records.get_state(), "stream": lane.get_state()}
            for (number, lane), records in zip(self._lanes.items(), self._parents, strict=True)
        }
        return {"of": self._of, "lanes": states}

    def set_state(self, state: dict[str, Any]) -> None:
        if state.get("of") != self._of:
            raise ValueError(f"the saved data position belongs to data.table_shards={state.get('of')}, not {self._of}")
        for (number, lane), records in zip(self._lanes.items(), self._parents, strict=True):
            saved = state["lanes"][str(number)]
            records.set_state(saved["records"])
            lane.set_state(saved["stream"])


def lane_batches(
    lanes: Mapping[int, grain.IterDataset[Any]],
    make: MakeLane,
    *,
    of: int,
    accumulation: int,
    prefetch: int,
) -> grain.IterDataset[Any]:
    """Returns `LaneBatches`; with `prefetch` > 0 prepared in a thread, so that its iterators must be closed."""
    return prefetched(LaneBatches(lanes, make, of, accumulation), prefetch)


def prefetched(batches: grain.IterDataset[Any], prefetch: int) -> grain.IterDataset[Any]:
    """Returns batches prepared ahead in a thread, so that their iterators must be closed; 0: as they are."""
    return grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=prefetch) if prefetch else batches


def empty_batch(shard: Tree, shards: int, accumulation: int = 1) -> Tree:
    """Returns a batch [accumulation, shards, ...] of an empty shard, for a process whose lanes end before another's."""
    return stack([stack([shard] * shards)] * accumulation)
