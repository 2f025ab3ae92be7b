"""Draws the words of XRayEmb's cycles from the most frequent words of a corpus (Pinter et al., 2021, section 4).

Open it to change which words the two cycle losses (`loss`) see.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from charlm.data.batching import bucket_of, in_rooms, word_table
from charlm.data.budgets import check_rows, check_slots, choose_tables

SAMPLING = ("uniform", "sqrt", "frequency")


@dataclasses.dataclass(frozen=True)
class CycleWords:
    """Chooses the words of each shard; the choice depends only on the seed and the shard's number.

    Attributes:
      rows_NC: uint16, words as `charlm.families.xrayemb.chars` encodes them, the most frequent first.
      counts_N: how often each word occurs.
      size: K, words of a shard in steps with cycles.
      every: steps on text from one with cycles to the next.
      micro_batches: micro-batches of a step.
      seed: seed of the draws.
      sampling: probability of a word: the same for all ("uniform"), in proportion to its count ("frequency") or to the
        square root of its count ("sqrt").
      apart: whether steps with cycles have no text, and stand between those of text.
      in_order: for evaluation: every shard has words, and all words take turns instead of being drawn. Evaluation may
        stop before all had a turn, where its text ends or at `train.eval_words`.
    """

    rows_NC: np.ndarray
    counts_N: np.ndarray
    size: int
    every: int
    micro_batches: int
    seed: int
    sampling: str = "uniform"
    in_order: bool = False
    apart: bool = False

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLING:
            raise ValueError(f"cycle.sampling={self.sampling!r} is not one of {', '.join(SAMPLING)}")

    @functools.cached_property
    def by_length_N(self) -> np.ndarray:
        """Indices of the words, int64, the shortest first; words of one length by falling frequency."""
        return np.argsort((self.rows_NC != 0).sum(axis=1), kind="stable")

    @functools.cached_property
    def ends_N(self) -> np.ndarray:
        """The cumulative probabilities of the words in the order of `by_length_N`."""
        power = {"uniform": 0.0, "sqrt": 0.5, "frequency": 1.0}[self.sampling]
        ends_N = np.cumsum(self.counts_N[self.by_length_N].astype(np.float64) ** power)
        return ends_N / ends_N[-1]

    @property
    def windows(self) -> int:
        """The number of shards that all words take when they come in order."""
        return -(-len(self.rows_NC) // self.size)

    def none(self) -> np.ndarray:
        """Returns the rows of a shard without words: zeros, uint16 [K, C]."""
        return np.zeros((self.size, self.rows_NC.shape[1]), np.uint16)

    def alone(self, shard: int) -> bool:
        """Says whether a lane's shard has words of cycles and no text."""
        return self.apart and not self.in_order and self.size > 0 and self._in_turn(shard)

    def _in_turn(self, shard: int) -> bool:
        return (shard // self.micro_batches + 1) % (self.every + self.apart) == 0

    def of(self, lane: int, lanes: int, shard: int) -> np.ndarray:
        """Returns the words of a lane's shard, uint16 [K, C]; zeros in steps without cycles.

        Args:
          shard: number of the shard in the lane, from 0.
        """
        if not self.size:
            return self.none()
        if self.in_order:
            words_KC = self.rows_NC[self.by_length_N[(shard * lanes + lane) % self.windows :: self.windows]]
            return np.concatenate([words_KC, self.none()])[: self.size]
        if not self._in_turn(shard):
            return self.none()
        seeds = np.random.SeedSequence((self.seed, lane, shard), spawn_key=(1,))  # draws of text have no spawn key
        found_K = stratified(self.ends_N, self.size, np.random.Generator(np.random.Philox(seeds)))
        return self.rows_NC[self.by_length_N[found_K]]


def stratified(ends_N: np.ndarray, size: int, draw: np.random.Generator) -> np.ndarray:
    """Returns stratified draws, int64 [size]: divides [0, 1] into `size` equal parts and draws one point in each.

    Every item is as frequent as in independent draws. Of neighbouring items with the joint probability p, the number
    drawn differs from p * size by less than two; so where items are ordered by length, all draws have nearly the same
    lengths.

    Args:
      ends_N: cumulative probabilities of the items, ascending up to 1.
    """
    places_K = (np.arange(size) + draw.random(size)) / size
    return np.minimum(np.searchsorted(ends_N, places_K, side="right"), len(ends_N) - 1)


def cycle_tables(words_KC: np.ndarray, slots: tuple[int, ...], rows: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Returns words sorted into length buckets, uint16 [rows, slots] per bucket; rows of zeros pad.

    A word goes into the first bucket with enough slots or, if that is full, into a bucket of longer words. The rows
    that `measure_cycle` returns have room for all words of a shard; words without room are left out.

    Args:
      words_KC: uint16, the words; a row of zeros is no word.
      slots: character slots of the buckets, ascending; the last bucket fits every word.
      rows: rows of the buckets.
    """
    lengths_K = (words_KC != 0).sum(axis=1)
    (real,) = np.nonzero(lengths_K)
    placed, _ = in_rooms(bucket_of(lengths_K[real], slots), rows)
    return tuple(word_table(words_KC, real[now], n, c) for now, c, n in zip(placed, slots, rows, strict=True))


def measure_cycle(
    cycle: CycleWords, slots: tuple[int, ...] = (), rows: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns length buckets and their rows, with room for the words of every shard.

    Args:
      slots, rows: slots and rows of the buckets, where the config gives them; (): they are measured.

    Raises:
      ValueError: `slots` do not ascend up to the longest word, or `rows` is not one number per bucket or too few.
    """
    longest = cycle.rows_NC.shape[1]
    check_slots("cycle.slots", slots, longest, f"{longest}, model.char_slots")
    if not cycle.size:
        slots = slots or (longest,)
        return slots, (0,) * len(slots)
    most_C = _most_longer(cycle)
    slots, found = choose_tables(most_C, slots)
    rows = rows or found
    check_rows("cycle.rows", rows, slots)
    for bucket, shorter in enumerate((0, *slots[:-1])):
        if (room := sum(rows[bucket:])) < most_C[shorter]:
            raise ValueError(
                f"cycle.rows={rows} have room for {room} words of more than {shorter} characters, expected room for "
                f"{most_C[shorter]}"
            )
    return slots, rows


def _most_longer(cycle: CycleWords) -> np.ndarray:
    """Returns the most words of a shard that are longer than 0, 1, ... C - 1 slots, int64 [C], descending."""
    N, C = cycle.rows_NC.shape
    longer_C = ((cycle.rows_NC != 0).sum(axis=1, keepdims=True) > np.arange(C)).sum(axis=0)
    begin_C = np.concatenate([[0.0], cycle.ends_N])[N - longer_C]  # where the shares of the longer words begin
    drawn_C = (np.arange(1, cycle.size + 1) / cycle.size > begin_C[:, None]).sum(axis=1)
    in_order_C = -(-longer_C // cycle.windows)
    return np.maximum(drawn_C, in_order_C)
