"""Words of XRayEmb's cycles: the most frequent ones of a corpus, some of them now and then (Pinter et al., 4.1)."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from charlm.data.batching import bucket_of, in_rooms, word_table
from charlm.data.budgets import check_rows, check_slots, choose_tables

SAMPLING = ("uniform", "sqrt", "frequency")


@dataclasses.dataclass(frozen=True)
class CycleWords:
    """Which words a shard has, by its number alone.

    Attributes:
      rows_NC: uint16, words as `charlm.families.xrayemb.chars` has them, the most frequent first. counts_N: how often
      each
        was met.
      size: K, words of a shard that has some. every: steps from one with words to the next. micro_batches: of a step.
      sampling: chances of a word: all alike ("uniform"), by its count ("frequency") or the root of it ("sqrt").
      in_order: no draw: every shard has words, all in turn and each once before any comes again; in evaluation, which
        ends where its text does, or with `train.eval_words`.
    """

    rows_NC: np.ndarray
    counts_N: np.ndarray
    size: int
    every: int
    micro_batches: int
    seed: int
    sampling: str = "uniform"
    in_order: bool = False

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLING:
            raise ValueError(f"cycle.sampling={self.sampling!r} is not one of {', '.join(SAMPLING)}")

    @functools.cached_property
    def by_length_N(self) -> np.ndarray:
        """Numbers of the words, int64: the shortest first, of each length the most frequent first."""
        return np.argsort((self.rows_NC != 0).sum(axis=1), kind="stable")

    @functools.cached_property
    def ends_N(self) -> np.ndarray:
        """Where the shares of words end in [0, 1], in the order of `by_length_N`."""
        power = {"uniform": 0.0, "sqrt": 0.5, "frequency": 1.0}[self.sampling]
        ends_N = np.cumsum(self.counts_N[self.by_length_N].astype(np.float64) ** power)
        return ends_N / ends_N[-1]

    @property
    def windows(self) -> int:
        """In how many shards all words come in turn."""
        return -(-len(self.rows_NC) // self.size)

    def none(self) -> np.ndarray:
        """Returns the words of a shard without any: zeros, uint16 [K, C]."""
        return np.zeros((self.size, self.rows_NC.shape[1]), np.uint16)

    def of(self, lane: int, lanes: int, shard: int) -> np.ndarray:
        """Returns the words of a lane's shard, uint16 [K, C]; zeros in steps without.

        Args:
          shard: its number in the lane, from 0.
        """
        if not self.size:
            return self.none()
        if self.in_order:
            words_KC = self.rows_NC[self.by_length_N[(shard * lanes + lane) % self.windows :: self.windows]]
            return np.concatenate([words_KC, self.none()])[: self.size]
        if (shard // self.micro_batches + 1) % self.every:
            return self.none()
        seeds = np.random.SeedSequence((self.seed, lane, shard), spawn_key=(1,))  # text draws without such a key
        found_K = stratified(self.ends_N, self.size, np.random.Generator(np.random.Philox(seeds)))
        return self.rows_NC[self.by_length_N[found_K]]


def stratified(ends_N: np.ndarray, size: int, draw: np.random.Generator) -> np.ndarray:
    """Returns draws of things that have shares of [0, 1]: one from each of as many equal parts, int64 [size].

    So a thing comes as often as in independent draws, and the number of neighbours that share a part of length p is
    off p * size by less than two: where things stand by length, every draw has nearly the same lengths.

    Args:
      ends_N: where shares end, ascending up to 1.
    """
    places_K = (np.arange(size) + draw.random(size)) / size
    return np.minimum(np.searchsorted(ends_N, places_K, side="right"), len(ends_N) - 1)


def cycle_tables(words_KC: np.ndarray, slots: tuple[int, ...], rows: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Returns words by length, uint16 [rows, slots] of each bucket; zeros behind them.

    A word stands in the first bucket that is long enough or, where that is full, in one of longer words; all of a
    shard find room in the rows of `measure_cycle`. Others are left out.

    Args:
      words_KC: uint16, the words; a row of zeros is none. slots: of the buckets, ascending; the last holds every word.
    """
    lengths_K = (words_KC != 0).sum(axis=1)
    (real,) = np.nonzero(lengths_K)
    placed, _ = in_rooms(bucket_of(lengths_K[real], slots), rows)
    return tuple(word_table(words_KC, real[now], n, c) for now, c, n in zip(placed, slots, rows, strict=True))


def measure_cycle(
    cycle: CycleWords, slots: tuple[int, ...] = (), rows: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns length buckets and their rows, which hold the words of every shard.

    Args:
      slots, rows: what is not to be measured.

    Raises:
      ValueError: `slots` do not ascend up to the longest word, or `rows` are not one for each, or hold too few words.
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
    """Returns how many words longer than 0, 1, ... C - 1 slots a shard has at most, int64 [C], descending."""
    N, C = cycle.rows_NC.shape
    longer_C = ((cycle.rows_NC != 0).sum(axis=1, keepdims=True) > np.arange(C)).sum(axis=0)
    begin_C = np.concatenate([[0.0], cycle.ends_N])[N - longer_C]  # where their shares begin: they are the last
    drawn_C = (np.arange(1, cycle.size + 1) / cycle.size > begin_C[:, None]).sum(axis=1)
    in_order_C = -(-longer_C // cycle.windows)
    return np.maximum(drawn_C, in_order_C)
