"""Budgets of XRayEmb's batches, measured on its text: length buckets of words, and how many words each holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from charlm.data.batching import bucket_of
from charlm.data.budgets import SAMPLE_SHARDS, budget, choose_buckets, choose_tables
from charlm.data.text_records import TextRecord
from charlm.families.spelled.sequences import PieceStream
from charlm.families.xrayemb.batches import all_rows
from charlm.families.xrayemb.sequences import XRaySequenceMaker

BUCKETS = 3


class Budgets(NamedTuple):
    """What is measured of a shape; empty or 0 where it is not given."""

    slots: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    learned: int = 0
    written_slots: tuple[int, ...] = ()
    written_rows: tuple[int, ...] = ()


def measure_budgets(records: Iterable[TextRecord], maker: XRaySequenceMaker, sequences: int, given: Budgets) -> Budgets:
    """Returns length buckets and budgets that nearly every shard keeps.

    Args:
      sequences: of a shard. given: what is not to be measured.

    Raises:
      ValueError: there is no text, `slots` do not ascend up to the longest word, or `rows` are not one for each.
    """
    for name, slots in (("bucket_slots", given.slots), ("written_slots", given.written_slots)):
        if slots and (tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != maker.slots):
            raise ValueError(f"data.{name}={tuple(slots)} must ascend and end at {maker.slots}, model.char_slots")
    measured = given if all(given) else _measure(records, maker, sequences, given)
    pairs = (("bucket", measured.slots, measured.rows), ("written", measured.written_slots, measured.written_rows))
    for name, slots, rows in pairs:
        if len(rows) != len(slots) or min(rows) < 1:
            raise ValueError(f"data.{name}_rows={rows} must name a positive number for each of {len(slots)} buckets")
    return measured


def _measure(records: Iterable[TextRecord], maker: XRaySequenceMaker, sequences: int, given: Budgets) -> Budgets:
    count = SAMPLE_SHARDS * sequences
    sample = list(itertools.islice(iter(PieceStream(iter(records), maker).next, None), count))
    if not sample:
        raise ValueError("data.train: no sentence to measure batches on")
    # A short corpus is read round and round: budgets must hold whole shards.
    shards = (np.arange(count).reshape(SAMPLE_SHARDS, sequences) % len(sample)).tolist()
    by_length = lambda rows_UC: np.bincount((rows_UC != 0).sum(axis=1), minlength=maker.slots + 1)
    spelled, written = [], []
    for shard in shards:
        spelled.append(by_length(np.unique(np.concatenate([all_rows(sample[i]) for i in shard]), axis=0)))
        written.append(sum(by_length(sample[i].written_LC) for i in shard))
    spelled_NC, written_NC = np.array(spelled), np.array(written)
    slots = given.slots or choose_buckets(spelled_NC.mean(axis=0), BUCKETS)
    bucket_C = bucket_of(np.arange(maker.slots + 1), slots)
    rows = given.rows or tuple(budget(spelled_NC[:, bucket_C == b].sum(axis=1)) for b in range(len(slots)))
    longer_NC = written_NC[:, ::-1].cumsum(axis=1)[:, -2::-1]  # than 0, 1, ... slots; 0 slots write nothing
    most_C = np.maximum.accumulate([budget(longer_N) for longer_N in longer_NC.T[::-1]])[::-1]
    written_slots, written_rows = choose_tables(most_C, given.written_slots)
    learned = np.array([sum(len(sample[i].learned_WC) for i in shard) for shard in shards])
    return Budgets(slots, rows, given.learned or budget(learned), written_slots, given.written_rows or written_rows)
