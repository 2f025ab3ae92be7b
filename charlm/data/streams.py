"""Records -> sequences -> shards -> batches: the one state machine behind the batches of every family.

Open it to see how sequences are numbered, what a saved position holds, and what a family says of its own: a
`SequenceMaker` says what a sequence is, a `Shard` how many of them it holds.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import grain
import numpy as np

from charlm.data.lanes import lane_batches

SAMPLE_SHARDS = 24  # shards read to measure budgets


def generator(*numbers: int) -> np.random.Generator:
    """Returns a generator whose draws these numbers decide, on every machine alike."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(numbers)))


class SequenceMaker(Protocol):
    """What makes sequences of the parts of records: of sentences, or of words."""

    def parts(self, record: Any, number: int, /) -> Iterable[Any]:
        """Returns what of a record goes into sequences, in order; each part fits into a sequence alone.

        Args:
          number: of the record; what is drawn for it depends on the seed and this number alone.
        """
        ...

    def filled(self, used: Any, part: Any, /) -> Any:
        """Returns how much of a sequence is used with one more part, None when that does not fit.

        Args:
          used: what was returned for the parts before it; None: it is the first.
        """
        ...

    def make(self, parts: list[Any], number: tuple[int, ...], /) -> Any:
        """Returns a sequence of some parts; what is drawn for it depends on the seed and this number alone."""
        ...

    def halves(self, sequence: Any, /) -> tuple[Any, Any]:
        """Cuts a sequence that alone exceeds the budgets of a shard into two."""
        ...

    def held(self, parts: Sequence[Any], returned: Sequence[Any], /) -> dict[str, Any]:
        """Returns parts and whole sequences that wait for a shard, JSON-able."""
        ...

    def restored(self, state: dict[str, Any], /) -> tuple[Iterable[Any], Iterable[Any]]:
        """Returns what `held` was given."""
        ...


class SequenceStream:
    """Makes sequences of the parts of records, in order: each takes parts until the next one does not fit.

    The sequences of a lane are numbered `lane`, `lane + lanes`, `lane + 2 * lanes` and so on, its records likewise.
    With `by_record` no sequence holds parts of two records, and numbers are those of the records: the same sequences
    with the same draws, however many lanes there are.
    """

    def __init__(
        self, records: Iterator[Any], maker: SequenceMaker, lane: int = 0, lanes: int = 1, by_record: bool = False
    ) -> None:
        self._records, self._maker = records, maker
        self._lane, self._lanes, self._by_record = lane, lanes, by_record
        self._parts: deque[Any] = deque()
        self._returned: deque[Any] = deque()
        self._made = 0  # sequences; with `by_record`, those of the record
        self._read_records = 0

    def next(self) -> Any | None:
        """Returns the next sequence, or None when the records are used up."""
        if self._returned:
            return self._returned.popleft()
        taken: list[Any] = []
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

    def give_back(self, *sequences: Any) -> None:
        """Puts sequences in front of the stream, the first to come out first."""
        self._returned.extendleft(reversed(sequences))

    def halve(self, sequence: Any) -> None:
        """Puts the halves of a sequence in front of the stream."""
        self.give_back(*self._maker.halves(sequence))

    def _number(self, count: int) -> int:
        return self._lane + self._lanes * count

    def _read(self) -> bool:
        """Reads the next record that has a part."""
        for record in self._records:
            self._parts.extend(self._maker.parts(record, self._number(self._read_records)))
            self._read_records += 1
            self._made = 0 if self._by_record else self._made
            if self._parts:
                return True
        return False

    def get_state(self) -> dict[str, Any]:
        """Returns what the stream holds back, JSON-able."""
        counts = {"made": self._made, "records": self._read_records}
        return counts | self._maker.held(self._parts, self._returned)

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._made, self._read_records = state["made"], state["records"]
        self._parts, self._returned = map(deque, self._maker.restored(state))


class Shard(Protocol):
    """Sequences of one shard, taken while they fit."""

    @property
    def full(self) -> bool:
        """True when it takes no more."""
        ...

    def __len__(self) -> int:
        """Returns how many it has taken."""
        ...

    def add(self, sequence: Any, /) -> bool:
        """Takes a sequence if it fits; returns whether it did. A refused one leaves no trace."""
        ...

    def build(self) -> Any:
        """Returns the arrays, of a fixed shape and without the axis of shards."""
        ...


class ShardLane:
    """A lane of `charlm.data.lanes` that fills shards with the sequences of a stream; `start` returns an empty one."""

    def __init__(self, stream: SequenceStream, start: Callable[[], Shard]) -> None:
        self._stream, self._start = stream, start

    def shard(self) -> tuple[Any, bool]:
        """Returns the next shard, and whether it holds a sequence."""
        shard = self._start()
        while not shard.full and (sequence := self._stream.next()) is not None:
            if shard.add(sequence):
                continue
            if len(shard):
                self._stream.give_back(sequence)
                break
            self._stream.halve(sequence)
        return shard.build(), len(shard) > 0

    def get_state(self) -> dict[str, Any]:
        """Returns what the lane holds back."""
        return self._stream.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._stream.set_state(state)


def sequence_batches(
    lanes: Mapping[int, grain.IterDataset[Any]],
    maker: SequenceMaker,
    start: Callable[[], Shard],
    *,
    of: int,
    accumulation: int,
    prefetch: int,
    by_record: bool = False,
) -> grain.IterDataset[Any]:
    """Returns batches [accumulation, S', ...], one shard for each lane of records.

    Args:
      lanes: for each shard that is wanted, its index among all `of` shards, and its records.
      start: returns an empty shard.
      prefetch: batches prepared ahead in a thread, so that the iterators must be closed; 0: none.
    """

    def lane(number: int, records: Iterator[Any]) -> ShardLane:
        return ShardLane(SequenceStream(records, maker, number, of, by_record), start)

    return lane_batches(lanes, lane, of=of, accumulation=accumulation, prefetch=prefetch)


def sampled(
    records: Iterable[Any], maker: SequenceMaker, sequences: int, shards: int = SAMPLE_SHARDS
) -> list[list[Any]]:
    """Returns the first sequences of records as so many shards, to measure budgets on; ValueError when there is none.

    A short corpus is read round and round: budgets must hold whole shards.

    Args:
      sequences: of a shard.
    """
    stream = SequenceStream(iter(records), maker)
    sample = list(itertools.islice(iter(stream.next, None), shards * sequences))
    if not sample:
        raise ValueError("data.train: no sentence to measure batches on")
    found = itertools.cycle(sample)
    return [list(itertools.islice(found, sequences)) for _ in range(shards)]
