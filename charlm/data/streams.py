"""Turns records into sequences, sequences into shards and shards into batches, for every family.

Open it to see how sequences are numbered, what a saved position holds, and what a family has to provide: a
`SequenceMaker`, which builds sequences, and a `Shard`, which decides how many sequences fit into one shard.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import grain
import numpy as np

from charlm.core.types import JsonObject, Tree
from charlm.data.lanes import AnyRecord, Lane, Records, lane_batches

Part = TypeVar("Part")  # of a record; the `SequenceMaker` of a family makes parts and joins them to sequences
Made = TypeVar("Made")  # a sequence, which the maker makes and the family's `Shard` takes
Taken = TypeVar("Taken", contravariant=True)  # the same for the shard, which only takes sequences

SAMPLE_SHARDS = 24  # shards that are read to measure the budgets
SAMPLE_SEQUENCES = 4096  # sequences that are read at most, but for whole shards: large ones differ little
FEWEST_SHARDS = 6  # shards that are read, however large


def generator(*numbers: int) -> np.random.Generator:
    """Returns a random generator seeded by these numbers, the same on every machine."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(numbers)))


class SequenceMaker(Protocol[Part, Made]):
    """Builds sequences from the parts of records; a part is a sentence or a word, depending on the family."""

    def parts(self, record: AnyRecord, number: int, /) -> Iterable[Part]:
        """Returns the parts of a record in order; each part fits into a sequence on its own.

        Args:
          number: number of the record; random draws for the record depend on the seed and this number alone.
        """
        ...

    def filled(self, used: Any, part: Part, /) -> Any:  # each maker counts what it must
        """Returns how full a sequence is after one more part, or None when the part does not fit.

        Args:
          used: the value returned for the parts before; None for the first part.
        """
        ...

    def make(self, parts: list[Part], number: tuple[int, ...], /) -> Made:
        """Returns a sequence made of some parts; random draws depend on the seed and `number` alone."""
        ...

    def halves(self, sequence: Made, /) -> tuple[Made, Made]:
        """Cuts a sequence that exceeds the budgets of a shard on its own into two."""
        ...

    def held(self, parts: Sequence[Part], returned: Sequence[Made], /) -> JsonObject:
        """Returns the parts and the whole sequences that still wait for a shard, in a form that JSON can store."""
        ...

    def restored(self, state: JsonObject, /) -> tuple[Iterable[Part], Iterable[Made]]:
        """Returns the parts and sequences that were given to `held`."""
        ...


# A maker where code is the same for all families, whose parts and sequences have types of their own.
AnyMaker: TypeAlias = SequenceMaker[Any, Any]


class SequenceStream(Generic[Part, Made]):
    """Makes sequences from the parts of records, in order: each sequence takes parts until the next does not fit.

    The sequences of a lane are numbered `lane`, `lane + lanes`, `lane + 2 * lanes` and so on, and so are its records.
    With `by_record`, no sequence holds parts of two records and sequences are numbered within their record. The same
    sequences with the same random draws then come out for any number of lanes.
    """

    def __init__(
        self,
        records: Iterator[AnyRecord],
        maker: SequenceMaker[Part, Made],
        lane: int = 0,
        lanes: int = 1,
        by_record: bool = False,
    ) -> None:
        self._records, self._maker = records, maker
        self._lane, self._lanes, self._by_record = lane, lanes, by_record
        self._parts: deque[Part] = deque()
        self._returned: deque[Made] = deque()
        self._made = 0  # sequences made so far; with `by_record`, from the current record
        self._read_records = 0

    def next(self) -> Made | None:
        """Returns the next sequence, or None when the records are used up."""
        if self._returned:
            return self._returned.popleft()
        taken: list[Part] = []
        used = None
        while self._parts or (not (taken and self._by_record) and self._read()):
            used = self._maker.filled(used, self._parts[0])
            if used is None:
                break
            taken.append(self._parts.popleft())
        if not taken:
            return None
        record, number = self._number(self._read_records - 1), self._number(self._made)
        sequence = self._maker.make(taken, (record, self._made) if self._by_record else (number,))
        self._made += 1
        return sequence

    def give_back(self, *sequences: Made) -> None:
        """Puts sequences back in front of the stream; `next` returns them first, in the given order."""
        self._returned.extendleft(reversed(sequences))

    def halve(self, sequence: Made) -> None:
        """Puts the halves of a sequence in front of the stream."""
        self.give_back(*self._maker.halves(sequence))

    def _number(self, count: int) -> int:
        return self._lane + self._lanes * count

    def _read(self) -> bool:
        """Reads records up to the next one that has a part; returns False when the records are used up."""
        for record in self._records:
            self._parts.extend(self._maker.parts(record, self._number(self._read_records)))
            self._read_records += 1
            self._made = 0 if self._by_record else self._made
            if self._parts:
                return True
        return False

    def get_state(self) -> JsonObject:
        """Returns the counters and the parts and sequences not yet handed out, in a form that JSON can store."""
        counts = {"made": self._made, "records": self._read_records}
        return counts | self._maker.held(self._parts, self._returned)

    def set_state(self, state: JsonObject) -> None:
        """Restores the state that `get_state` returned."""
        self._made, self._read_records = state["made"], state["records"]
        parts, returned = self._maker.restored(state)
        self._parts, self._returned = deque(parts), deque(returned)


class Shard(Protocol[Taken]):
    """Collects the sequences of one shard as long as they fit."""

    @property
    def full(self) -> bool:
        """True when the shard takes no more sequences."""
        ...

    def __len__(self) -> int:
        """Returns the number of sequences in the shard."""
        ...

    def add(self, sequence: Taken, /) -> bool:
        """Takes the sequence if it fits; returns whether it did. A refused sequence changes nothing."""
        ...

    def build(self) -> Tree:
        """Returns the shard's arrays, which have a fixed shape and no shard axis."""
        ...


class ShardLane(Generic[Part, Made]):
    """A lane of `charlm.data.lanes`: it fills shards with the sequences of a stream. `start` returns an empty shard."""

    def __init__(self, stream: SequenceStream[Part, Made], start: Callable[[], Shard[Made]]) -> None:
        self._stream, self._start = stream, start

    def shard(self) -> tuple[Tree, bool]:
        """Returns the next shard, and whether it holds any sequence."""
        shard = self._start()
        while not shard.full and (sequence := self._stream.next()) is not None:
            if shard.add(sequence):
                continue
            if len(shard):
                self._stream.give_back(sequence)
                break
            self._stream.halve(sequence)
        return shard.build(), len(shard) > 0

    def get_state(self) -> JsonObject:
        """Returns the state of the stream behind the lane."""
        return self._stream.get_state()

    def set_state(self, state: JsonObject) -> None:
        """Restores the state that `get_state` returned."""
        self._stream.set_state(state)


def sequence_batches(
    lanes: Mapping[int, Records],
    maker: SequenceMaker[Part, Made],
    start: Callable[[], Shard[Made]],
    *,
    of: int,
    accumulation: int,
    prefetch: int,
    by_record: bool = False,
    wrap: Callable[[Lane, int], Lane] = lambda lane, number: lane,
) -> grain.IterDataset[Tree]:
    """Returns batches [accumulation, S', ...] with one shard for each lane of records.

    Args:
      lanes: the records of each wanted shard, by the shard's index among all `of` shards.
      start: returns an empty shard.
      prefetch: number of batches prepared ahead in a thread, whose iterators must then be closed; 0: no thread.
      wrap: returns the lane to read in place of a lane with a number, for families that add to its shards.
    """

    def lane(number: int, records: Iterator[AnyRecord]) -> Lane:
        return wrap(ShardLane(SequenceStream(records, maker, number, of, by_record), start), number)

    return lane_batches(lanes, lane, of=of, accumulation=accumulation, prefetch=prefetch)


def sampled(
    records: Iterable[AnyRecord], maker: SequenceMaker[Part, Made], sequences: int, shards: int = SAMPLE_SHARDS
) -> list[list[Made]]:
    """Returns the first sequences of the records as shards, to measure budgets on.

    A short corpus is read repeatedly, because budgets must hold whole shards.

    Args:
      sequences: number of sequences in a shard.
      shards: number of shards; fewer are read if they hold more than `SAMPLE_SEQUENCES` sequences.

    Raises:
      ValueError: the records give no sequence.
    """
    shards = min(shards, max(FEWEST_SHARDS, -(-SAMPLE_SEQUENCES // sequences)))
    stream = SequenceStream(iter(records), maker)
    sample = list(itertools.islice(iter(stream.next, None), shards * sequences))
    if not sample:
        raise ValueError("data.train: no sentence to measure batches on")
    found = itertools.cycle(sample)
    return [list(itertools.islice(found, sequences)) for _ in range(shards)]
