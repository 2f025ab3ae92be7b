"""Measures the shape of every batch on the corpus: the length buckets, and how many words each bucket holds.

Open it when batches hold too much padding, or when a measured shape does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from charlm.data.batching import BatchShape, WordSequence, bucket_of
from charlm.data.masking import Masking
from charlm.data.pipeline import SentenceMaker
from charlm.data.records import EncodedRecord
from charlm.data.streams import SAMPLE_SHARDS, sampled

WORD_BUCKETS = 6  # most length buckets that are chosen when the config names none
# Character slots that one more bucket must save to be worth it. Each bucket reads and differentiates all parameters
# again, which costs as much as 130 slots on a CPU, and it makes compilation longer.
BUCKET_COST = 200
# The same on accelerators. There three more buckets move as many bytes as 2,300 slots (HLM-Base, compiled for one H100:
# 213 GB a step with three buckets and with six), and each has hundreds of kernels to start.
ACCELERATOR_BUCKET_COST = 1300
MOST_TABLES = 4  # most tables of words that are read in one loop over characters
TABLE_COST = 32  # slots that one more table must save: it costs as much as this many (measured on a CPU)
SPREADS = 4.0  # standard deviations between the mean and the budget, so that few batches close early


def measure_shape(
    records: Iterable[EncodedRecord],
    *,
    sequences: int,
    shards: int,
    max_words: int,
    char_slots: int,
    masking: Masking,
    unique_words: bool = True,
    bucket_slots: tuple[int, ...] = (),
    sample_shards: int = SAMPLE_SHARDS,
    platform: str = "cpu",
    maker: SentenceMaker | None = None,
    room: int = 0,
) -> BatchShape:
    """Chooses length buckets and budgets from a sample of the corpus.

    Buckets minimise the number of character slots that are computed, as long as each is worth its cost. Each budget
    lies `SPREADS` standard deviations above the mean of the sampled shards, so that nearly every shard gets all its
    sequences. Words of which only the vector is read may be placed in a bucket of longer words; the budget of a bucket
    therefore leaves room for all words that need a bucket at least as long, and some budgets are 0.

    Args:
      records: a stream of records, of which some shards are read (`charlm.data.streams.sampled`).
      sequences: sequences B of a shard.
      shards: shards S of a batch.
      bucket_slots: given buckets; (): they are chosen here.
      sample_shards: the number of shards that are read, at most.
      platform: of the devices, such as "cpu", on which the cost of a bucket depends.
      maker: makes the sequences; None: one that masks words.
      room: as in `BatchShape`.
    """
    maker = maker or SentenceMaker(max_words, char_slots, masking, seed=0)
    sample = sampled(records, maker, sequences, sample_shards)
    counts = np.array([_count_slots(shard, char_slots, room) for shard in sample])  # [shards, 3, C + 1]
    cost = BUCKET_COST if platform == "cpu" else ACCELERATOR_BUCKET_COST
    slots = bucket_slots or _cheapest_buckets(counts[:, :2].sum(axis=1).mean(axis=0), cost)
    end = f"model.char_slots={char_slots}, the longest word; () measures them"
    check_slots("data.bucket_slots", slots, char_slots, end)
    bucket_C = np.minimum(bucket_of(np.arange(char_slots + 1), slots), len(slots) - 1)
    per_bucket = np.stack([counts[:, :, bucket_C == b].sum(axis=-1) for b in range(len(slots))], axis=-1)
    if not unique_words:
        labels = (budget(per_bucket[:, 2].sum(axis=-1)),)
        table = (char_slots,), (), (sequences * max_words,)
        return BatchShape(shards, sequences, max_words, *table, labels, False, room)
    at_least = per_bucket[:, 0, ::-1].cumsum(axis=1)[:, ::-1]  # words that need this bucket or a longer one
    rooms = np.maximum.accumulate([budget(at_least[:, b]) for b in reversed(range(len(slots)))])[::-1]
    table = tuple((-np.diff(rooms, append=0)).tolist())
    masked, labels = (tuple(budget(per_bucket[:, kind, b]) for b in range(len(slots))) for kind in (1, 2))
    return BatchShape(shards, sequences, max_words, tuple(slots), table, masked, labels, room=room)


def _count_slots(shard: list[WordSequence], char_slots: int, room: int) -> np.ndarray:
    """Returns [3, C + 1], counted by slots: distinct words never masked, distinct masked words, masked positions.

    Masked words count with their room.
    """
    chars_NC = np.concatenate([s.chars_WC for s in shard])
    is_masked_N = np.concatenate([s.labels_WC.any(axis=1) for s in shard])
    masked_NC = chars_NC[is_masked_N]
    distinct, masked = (set(map(bytes, rows)) for rows in (chars_NC, masked_NC))
    counts = np.zeros((3, char_slots + 1), np.int64)
    for row in distinct:
        slots = np.count_nonzero(np.frombuffer(row, np.uint16))
        counts[int(row in masked), min(slots + room, char_slots) if row in masked else slots] += 1
    roomy_N = np.minimum((masked_NC != 0).sum(axis=1) + room, char_slots)
    counts[2] = np.bincount(roomy_N, minlength=char_slots + 1)
    return counts


def _cheapest_buckets(words_by_slots: np.ndarray, cost: int) -> tuple[int, ...]:
    """Returns the cheapest buckets, up to `WORD_BUCKETS` of them; each bucket must save `cost` slots."""
    total = np.cumsum(words_by_slots)
    slots = lambda chosen: np.diff(total[list(chosen)], prepend=0) @ np.array(chosen)
    choices = (choose_buckets(words_by_slots, buckets) for buckets in range(1, WORD_BUCKETS + 1))
    return min(choices, key=lambda chosen: slots(chosen) + cost * len(chosen))


def choose_buckets(words_by_slots: np.ndarray, buckets: int) -> tuple[int, ...]:
    """Returns the ascending bucket lengths that hold all words in the fewest slots.

    Args:
      words_by_slots: [C + 1], entry n is the number of words with n slots.
      buckets: how many lengths. The last one is C; no other is 1, a length that only marks such as [CLS] have.
    """
    longest = len(words_by_slots) - 1
    total = np.cumsum(words_by_slots)
    count = max(min(buckets, longest - 1), 1)
    cheapest: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}  # last bucket -> (slots used, all buckets)
    for number in range(count):
        left = count - 1 - number
        cheapest = {
            b: min((slots + (total[b] - total[a]) * b, (*some, b)) for a, (slots, some) in cheapest.items() if a < b)
            for b in (range(2 + number, longest - left + 1) if left else (longest,))
        }
    return cheapest[longest][1]


def choose_tables(most_C: np.ndarray, slots: tuple[int, ...] = ()) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the slots of each table of words, and the rows of each.

    A word may be placed in a table of longer words, so a table's rows follow from the number of words that are longer
    than the slots of the table before it.

    Args:
      most_C: int, for c = 0, 1, ... C - 1, descending: the largest number of words that are longer than c slots.
      slots: given slots, ascending to C; (): they are chosen here.
    """
    most_C = np.maximum(most_C, 1)  # keeps the last table, so the longest word may have all C characters
    rows_of = lambda slots: -np.diff(most_C[[0, *slots[:-1]]], append=0)
    if slots:
        return slots, tuple(np.maximum(rows_of(slots), 1).tolist())
    words_by_slots = -np.diff(most_C, prepend=most_C[:1], append=0)
    cost = lambda slots: int(rows_of(slots) @ np.array(slots)) + TABLE_COST * len(slots)
    chosen = min((choose_buckets(words_by_slots, tables) for tables in range(1, MOST_TABLES + 1)), key=cost)
    used = [(c, n) for c, n in zip(chosen, rows_of(chosen).tolist(), strict=True) if n]
    return tuple(c for c, _ in used), tuple(n for _, n in used)


def check_slots(key: str, slots: tuple[int, ...], longest: int, end: str) -> None:
    """Raises ValueError unless given length buckets ascend up to the longest word; () passes: buckets are measured.

    Args:
      key: config key of the buckets, for the message.
      end: how the message names the length that the last bucket must have.
    """
    if slots and (tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != longest):
        raise ValueError(f"{key}={tuple(slots)} must ascend and end at {end}")


def check_rows(key: str, rows: tuple[int, ...], slots: tuple[int, ...]) -> None:
    """Raises ValueError unless each length bucket has a positive number of rows; `key` is the config key."""
    if len(rows) != len(slots) or min(rows) < 1:
        raise ValueError(f"{key}={tuple(rows)} must name a positive number for each of {len(slots)} buckets")


def budget(counts: np.ndarray) -> int:
    """Returns a capacity, a multiple of 8, that lies well above the sampled counts."""
    return int(-(-max(counts.mean() + SPREADS * counts.std(), counts.max(), 1) // 8) * 8)
