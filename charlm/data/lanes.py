"""Builds batches from lanes of records, as a grain iterator whose position can be saved.

Each of a batch's S shards is packed from a lane of its own, which gets every S-th record. So the content of a shard
depends on S alone, and a process packs only the lanes whose shards lie on its devices. Packing is stateful: beside
grain's positions, the iterator saves what its lanes have read but not yet returned. A resumed run, on any number of
processes, therefore sees exactly the batches that the unbroken run would have seen. Open it when a resumed run reads
other text than it should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import grain

from charlm.core.trees import Arrays, stack
from charlm.core.types import JsonObject, Tree

# A record of a corpus. The reader that a family names decides its type, which grain's datasets do not keep.
AnyRecord: TypeAlias = Any
Records: TypeAlias = grain.IterDataset[AnyRecord]


class Lane(Protocol):
    """Packs records into shards, one after another."""

    def shard(self) -> tuple[Tree, bool]:
        """Returns the next shard, arrays of a fixed shape, and whether it holds any text."""
        ...

    def get_state(self) -> JsonObject:
        """Returns what the lane has read but not yet returned, in a form that JSON can store."""
        ...

    def set_state(self, state: JsonObject) -> None:
        """Restores the state that `get_state` returned."""
        ...


MakeLane = Callable[[int, Iterator[AnyRecord]], Lane]  # (number of the lane, its records) -> the lane


class LaneBatches(grain.IterDataset[Tree]):
    """Batches [accumulation, S', ...] with one shard for each of the given lanes.

    Args:
      lanes: the records of each wanted shard, by the shard's index among all `of` shards.
    """

    def __init__(self, lanes: Mapping[int, Records], make: MakeLane, of: int, accumulation: int) -> None:
        super().__init__(list(lanes.values()))
        self.lanes, self.make, self.of, self.accumulation = tuple(lanes), make, of, accumulation

    def __iter__(self) -> grain.DatasetIterator[Tree]:
        return _LaneIterator([iter(records) for records in self._parents], self)


class _LaneIterator(grain.DatasetIterator[Tree]):
    def __init__(self, records: list[grain.DatasetIterator[AnyRecord]], settings: LaneBatches) -> None:
        super().__init__(records)
        self._of, self._accumulation = settings.of, settings.accumulation
        made = zip(settings.lanes, records, strict=True)
        self._lanes = {number: settings.make(number, lane_records) for number, lane_records in made}

    def __next__(self) -> Tree:
        micro_batches = [[lane.shard() for lane in self._lanes.values()] for _ in range(self._accumulation)]
        if not any(filled for shards in micro_batches for _, filled in shards):
            raise StopIteration
        return stack([stack([shard for shard, _ in shards]) for shards in micro_batches])

    def get_state(self) -> JsonObject:
        states = {
            str(number): {"records": records.get_state(), "stream": lane.get_state()}
            for (number, lane), records in zip(self._lanes.items(), self._parents, strict=True)
        }
        return {"of": self._of, "lanes": states}

    def set_state(self, state: JsonObject) -> None:
        check_shards(state, self._of)
        for (number, lane), records in zip(self._lanes.items(), self._parents, strict=True):
            saved = state["lanes"][str(number)]
            records.set_state(saved["records"])
            lane.set_state(saved["stream"])


def check_shards(state: JsonObject, of: int) -> None:
    """Raises ValueError unless a saved data position belongs to batches of `of` shards."""
    if state.get("of") != of:
        raise ValueError(f"the saved data position belongs to data.table_shards={state.get('of')}, not {of}")


def lane_batches(
    lanes: Mapping[int, Records],
    make: MakeLane,
    *,
    of: int,
    accumulation: int,
    prefetch: int,
) -> grain.IterDataset[Tree]:
    """Returns `LaneBatches`; with `prefetch` > 0 a thread prepares them, and their iterators must be closed."""
    return prefetched(LaneBatches(lanes, make, of, accumulation), prefetch)


def prefetched(batches: grain.IterDataset[Tree], prefetch: int) -> grain.IterDataset[Tree]:
    """Returns batches that a thread prepares ahead, so their iterators must be closed; 0: no thread."""
    return grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=prefetch) if prefetch else batches


def empty_batch(shard: Arrays, shards: int, accumulation: int = 1) -> Arrays:
    """Returns a batch [accumulation, shards, ...] of empty shards, for a process whose lanes end before the others'."""
    return stack([stack([shard] * shards)] * accumulation)
