"""Words of XRayEmb's cycles: the most frequent ones of a corpus, some of them now and then (Pinter et al., 4.1)."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from charlm.data.batching import bucket_of, in_rooms, word_table
from charlm.data.budgets import budget, choose_buckets

BUCKETS = 4  # length buckets at most when the config names none
BUCKET_COST = 128  # slots that a bucket must save: so many cost the steps of one more loop (measured on a CPU)
DRAWS = 512  # draws that budgets are measured on
SAMPLING = ("uniform", "sqrt", "frequency")


@dataclasses.dataclass(frozen=True)
class CycleWords:
    """Which words a shard has, by its number alone.

    Attributes:
      rows_NC: uint16, words as `charlm.text.xray_chars` has them, the most frequent first. counts_N: how often each
        was met.
      size: K, words of a shard that has some. every: steps from one with words to the next. micro_batches: of a step.
      sampling: chances of a word: all alike ("uniform"), by its count ("frequency") or the root of it ("sqrt").
      in_order: no draw: every shard has words, one after another; in evaluation.
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
    def _ends_N(self) -> np.ndarray:
        """Where the shares of words end in [0, 1]."""
        power = {"uniform": 0.0, "sqrt": 0.5, "frequency": 1.0}[self.sampling]
        ends_N = np.cumsum(self.counts_N.astype(np.float64) ** power)
        return ends_N / ends_N[-1]

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
            first = (shard * lanes + lane) * self.size
            return self.rows_NC[(first + np.arange(self.size)) % len(self.rows_NC)]
        if (shard // self.micro_batches + 1) % self.every:
            return self.none()
        seeds = np.random.SeedSequence((self.seed, lane, shard), spawn_key=(1,))  # text draws without such a key
        draws_K = np.random.Generator(np.random.Philox(seeds)).random(self.size)
        found_K = np.searchsorted(self._ends_N, draws_K, side="right")
        return self.rows_NC[np.minimum(found_K, len(self.rows_NC) - 1)]


def cycle_tables(words_KC: np.ndarray, slots: tuple[int, ...], rows: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Returns words by length, uint16 [rows, slots] of each bucket; zeros behind them.

    A word stands in the first bucket that is long enough or, where that is full, in one of longer words; those that
    find no room are left out. With the budgets of `measure_cycle` that is rare, and never happens in evaluation.

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
    """Returns length buckets and their rows, which hold nearly every draw, and all that evaluation asks for.

    Words may stand among longer ones, so what needs room is how many are longer than each bucket; and all of them
    together have exactly as many rows as there are words.

    Args:
      slots, rows: what is not to be measured.

    Raises:
      ValueError: `slots` do not ascend up to the longest word, or `rows` are not one for each, or hold too few words.
    """
    longest = cycle.rows_NC.shape[1]
    if slots and (tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != longest):
        raise ValueError(f"cycle.slots={tuple(slots)} must ascend and end at {longest}, model.char_slots")
    if not cycle.size:
        slots = slots or (longest,)
        return slots, (0,) * len(slots)
    windows_C = _longer_in_order(cycle)
    if not (slots and rows):
        most_C = _most_longer(cycle, windows_C)
        chosen = slots or _cheapest(most_C)
        found = (-np.diff(most_C[[0, *chosen[:-1]]], append=0)).tolist()
        if slots:
            rows = rows or tuple(max(n, 1) for n in found)
        else:
            slots = tuple(c for c, n in zip(chosen, found, strict=True) if n)
            rows = rows or tuple(n for n in found if n)
    if len(rows) != len(slots) or min(rows) < 1:
        raise ValueError(f"cycle.rows={rows} must name a positive number for each of {len(slots)} buckets")
    for bucket, shorter in enumerate((0, *slots[:-1])):
        if (room := sum(rows[bucket:])) < windows_C[shorter]:
            raise ValueError(
                f"cycle.rows={rows} have room for {room} words of more than {shorter} characters, and evaluation needs "
                f"{windows_C[shorter]}"
            )
    return slots, rows


def _most_longer(cycle: CycleWords, windows_C: np.ndarray) -> np.ndarray:
    """Returns for how many words longer than 0, 1, ... C - 1 slots there should be room, int64 [C], descending."""
    C, drawn = len(windows_C), dataclasses.replace(cycle, every=1, in_order=False)
    lengths = ((drawn.of(0, 1, shard) != 0).sum(axis=1) for shard in range(DRAWS))
    counts_DC = np.stack([np.bincount(lengths_K, minlength=C + 1) for lengths_K in lengths])
    longer_DC = cycle.size - counts_DC.cumsum(axis=1)[:, :C]
    # A budget of one number is that number, rounded as the others are.
    most = [max(budget(longer_DC[:, c]), budget(windows_C[c : c + 1])) for c in range(C)]
    return np.maximum.accumulate(np.minimum(most, cycle.size)[::-1])[::-1]


def _cheapest(most_C: np.ndarray) -> tuple[int, ...]:
    """Returns the length buckets that cost least, of words of which so many are longer than each length."""
    words_by_slots = -np.diff(most_C, prepend=most_C[:1], append=0)

    def cost(slots: tuple[int, ...]) -> int:
        return int(-np.diff(most_C[[0, *slots[:-1]]], append=0) @ np.array(slots)) + BUCKET_COST * len(slots)

    return min((choose_buckets(words_by_slots, buckets) for buckets in range(1, BUCKETS + 1)), key=cost)


def _longer_in_order(cycle: CycleWords) -> np.ndarray:
    """Returns how many words longer than 0, 1, ... C - 1 slots a shard may have at most in evaluation, int64 [C]."""
    N, C = cycle.rows_NC.shape
    longer_NC = (cycle.rows_NC != 0).sum(axis=1, keepdims=True) > np.arange(C)[None]
    before = np.concatenate([np.zeros((1, C), np.int64), np.concatenate([longer_NC, longer_NC]).cumsum(axis=0)])
    rounds, rest = divmod(cycle.size, N)
    first = np.arange(0, N, math.gcd(cycle.size, N))  # where shards begin
    return (rounds * before[N] + before[first + rest] - before[first]).max(axis=0)
