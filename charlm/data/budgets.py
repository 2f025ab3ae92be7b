"""The shape of every batch, measured on the corpus: length buckets, and how many words each holds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from charlm.data.batching import BatchShape, Sequence, bucket_of
from charlm.data.masking import Masking
from charlm.data.pipeline import SentenceMaker
from charlm.data.records import EncodedRecord
from charlm.data.streams import SAMPLE_SHARDS, sampled

BUCKETS = 6  # length buckets when the config names none, at most
# Slots that a bucket must save, for it reads and differentiates all parameters again: 130 on a CPU, and it takes longer
# to compile.
BUCKET_COST = 200
TABLES = 4  # tables of words that are read in one loop over characters, at most
TABLE_COST = 32  # slots that such a table must save: so many cost one more stretch of the loop (measured on a CPU)
SPREADS = 4.0  # budgets lie so many standard deviations above the mean: few batches close early


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
) -> BatchShape:
    """Chooses length buckets and budgets from a sample of the corpus.

    Buckets minimise the character slots that are computed; each budget lies `SPREADS` standard deviations above the
    mean of the sampled shards, so that nearly every shard gets all its sequences. Words of which only the vector is
    read may stand among longer ones: their budgets leave room for all that need a bucket as long or longer; some are 0.

    Args:
      records: a stream of records; the first `sample_shards * sequences` sequences are read.
      sequences: sequences B of a shard. shards: shards S of a batch. bucket_slots: given buckets; (): chosen here.
    """
    sample = sampled(records, SentenceMaker(max_words, char_slots, masking, seed=0), sequences, sample_shards)
    counts = np.array([_count_slots(shard, char_slots) for shard in sample])  # [shards, 3, C + 1]
    slots = bucket_slots or _cheapest_buckets(counts[:, :2].sum(axis=1).mean(axis=0))
    end = f"model.char_slots={char_slots}, the longest word; () measures them"
    check_slots("data.bucket_slots", slots, char_slots, end)
    bucket_C = np.minimum(bucket_of(np.arange(char_slots + 1), slots), len(slots) - 1)
    per_bucket = np.stack([counts[:, :, bucket_C == b].sum(axis=-1) for b in range(len(slots))], axis=-1)
    if not unique_words:
        labels = (budget(per_bucket[:, 2].sum(axis=-1)),)
        return BatchShape(shards, sequences, max_words, (char_slots,), (), (sequences * max_words,), labels, False)
    at_least = per_bucket[:, 0, ::-1].cumsum(axis=1)[:, ::-1]  # words that need a bucket as long, or a longer one
    rooms = np.maximum.accumulate([budget(at_least[:, b]) for b in reversed(range(len(slots)))])[::-1]
    table = tuple((-np.diff(rooms, append=0)).tolist())
    masked, labels = (tuple(budget(per_bucket[:, kind, b]) for b in range(len(slots))) for kind in (1, 2))
    return BatchShape(shards, sequences, max_words, tuple(slots), table, masked, labels)


def _count_slots(shard: list[Sequence], char_slots: int) -> np.ndarray:
    """Returns counts by slots [3, C + 1]: distinct words only met unmasked, distinct masked ones, masked positions."""
    chars_NC = np.concatenate([s.chars_WC for s in shard])
    is_masked_N = np.concatenate([s.labels_WC.any(axis=1) for s in shard])
    masked_NC = chars_NC[is_masked_N]
    distinct, masked = (set(map(bytes, rows)) for rows in (chars_NC, masked_NC))
    counts = np.zeros((3, char_slots + 1), np.int64)
    for row in distinct:
        counts[int(row in masked), np.count_nonzero(np.frombuffer(row, np.uint16))] += 1
    counts[2] = np.bincount((masked_NC != 0).sum(axis=1), minlength=char_slots + 1)
    return counts


def _cheapest_buckets(words_by_slots: np.ndarray) -> tuple[int, ...]:
    """Returns as many buckets as pay, up to `BUCKETS`: each must save `BUCKET_COST` slots."""
    total = np.cumsum(words_by_slots)
    slots = lambda chosen: np.diff(total[list(chosen)], prepend=0) @ np.array(chosen)
    choices = (choose_buckets(words_by_slots, buckets) for buckets in range(1, BUCKETS + 1))
    return min(choices, key=lambda chosen: slots(chosen) + BUCKET_COST * len(chosen))


def choose_buckets(words_by_slots: np.ndarray, buckets: int) -> tuple[int, ...]:
    """Returns the ascending bucket lengths that hold all words in the fewest slots.

    Args:
      words_by_slots: [C + 1], how many words have so many slots. buckets: how many lengths, the last of them C; no
        other is 1, for marks like [CLS] alone.
    """
    longest = len(words_by_slots) - 1
    total = np.cumsum(words_by_slots)
    count = max(min(buckets, longest - 1), 1)
    cheapest: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}  # by the last bucket: slots, all buckets
    for number in range(count):
        left = count - 1 - number
        cheapest = {
            b: min((slots + (total[b] - total[a]) * b, (*some, b)) for a, (slots, some) in cheapest.items() if a < b)
            for b in (range(2 + number, longest - left + 1) if left else (longest,))
        }
    return cheapest[longest][1]


def choose_tables(most_C: np.ndarray, slots: tuple[int, ...] = ()) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the slots and rows of tables with room for words of which at most so many are longer than c slots.

    Words may stand among longer ones, so what needs room is how many are longer than each table's slots.

    Args:
      most_C: int, for c = 0, 1, ... C - 1, descending. slots: given ones, ascending to C; (): chosen here.
    """
    most_C = np.maximum(most_C, 1)  # the last table stays: as many characters are read and written at most
    rows_of = lambda slots: -np.diff(most_C[[0, *slots[:-1]]], append=0)
    if slots:
        return slots, tuple(np.maximum(rows_of(slots), 1).tolist())
    words_by_slots = -np.diff(most_C, prepend=most_C[:1], append=0)
    cost = lambda slots: int(rows_of(slots) @ np.array(slots)) + TABLE_COST * len(slots)
    chosen = min((choose_buckets(words_by_slots, tables) for tables in range(1, TABLES + 1)), key=cost)
    used = [(c, n) for c, n in zip(chosen, rows_of(chosen).tolist(), strict=True) if n]
    return tuple(c for c, _ in used), tuple(n for _, n in used)


def check_slots(key: str, slots: tuple[int, ...], longest: int, end: str) -> None:
    """Raises ValueError unless given length buckets ascend up to the longest word; (): they are measured.

    Args:
      key: of the config. end: how the message says where they must end.
    """
    if slots and (tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != longest):
        raise ValueError(f"{key}={tuple(slots)} must ascend and end at {end}")


def check_rows(key: str, rows: tuple[int, ...], slots: tuple[int, ...]) -> None:
    """Raises ValueError unless each length bucket has rows; `key`: of the config."""
    if len(rows) != len(slots) or min(rows) < 1:
        raise ValueError(f"{key}={tuple(rows)} must name a positive number for each of {len(slots)} buckets")


def budget(counts: np.ndarray) -> int:
    """Returns a capacity, a multiple of 8, well above the sampled counts."""
    return int(-(-max(counts.mean() + SPREADS * counts.std(), counts.max(), 1) // 8) * 8)
