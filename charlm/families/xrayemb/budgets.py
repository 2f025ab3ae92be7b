"""Measures the budgets of XRayEmb's batches on its corpora: length buckets of words, and the words that each holds.

Open it when batches hold too much padding, or when a measured shape does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from charlm.data.batching import bucket_of
from charlm.data.budgets import budget, check_rows, check_slots, choose_buckets, choose_tables
from charlm.data.streams import sampled
from charlm.data.text_records import TextRecord
from charlm.families.spelled.masked_batches import count_distinct
from charlm.families.xrayemb.batches import all_rows
from charlm.families.xrayemb.sequences import XRaySequenceMaker

ENCODER_BUCKETS = 3  # most length buckets of the words of XR-Enc that are chosen when the config names none


class Budgets(NamedTuple):
    """The part of `XRayShape` that is measured on text; as given by the config, empty or 0 means not given."""

    slots: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    learned: int = 0
    written_slots: tuple[int, ...] = ()
    written_rows: tuple[int, ...] = ()


def measure_budgets(records: Iterable[TextRecord], maker: XRaySequenceMaker, sequences: int, given: Budgets) -> Budgets:
    """Returns length buckets and budgets that nearly every shard stays within.

    Args:
      sequences: sequences of a shard.
      given: the budgets that the config sets; they are not measured.

    Raises:
      ValueError: there is no text, `slots` do not ascend up to the longest word, or `rows` is not one per bucket.
    """
    for name, slots in (("bucket_slots", given.slots), ("written_slots", given.written_slots)):
        check_slots(f"data.{name}", slots, maker.slots, f"{maker.slots}, model.char_slots")
    measured = given if all(given) else _measure(records, maker, sequences, given)
    pairs = (("bucket", measured.slots, measured.rows), ("written", measured.written_slots, measured.written_rows))
    for name, slots, rows in pairs:
        check_rows(f"data.{name}_rows", rows, slots)
    return measured


def _measure(records: Iterable[TextRecord], maker: XRaySequenceMaker, sequences: int, given: Budgets) -> Budgets:
    shards = sampled(records, maker, sequences)
    by_length = lambda rows_UC: np.bincount((rows_UC != 0).sum(axis=1), minlength=maker.slots + 1)
    spelled = [count_distinct(map(all_rows, shard), maker.slots) for shard in shards]
    written = [sum(by_length(sequence.written_TC) for sequence in shard) for shard in shards]
    spelled_NC, written_NC = np.array(spelled), np.array(written)
    slots = given.slots or choose_buckets(spelled_NC.mean(axis=0), ENCODER_BUCKETS)
    bucket_C = bucket_of(np.arange(maker.slots + 1), slots)
    rows = given.rows or tuple(budget(spelled_NC[:, bucket_C == b].sum(axis=1)) for b in range(len(slots)))
    longer_NC = written_NC[:, ::-1].cumsum(axis=1)[:, -2::-1]  # words longer than 0, 1, ... slots; length 0: no word
    most_C = np.maximum.accumulate([budget(longer_N) for longer_N in longer_NC.T[::-1]])[::-1]
    written_slots, written_rows = choose_tables(most_C, given.written_slots)
    learned = np.array([sum(len(sequence.learned_WC) for sequence in shard) for shard in shards])
    return Budgets(slots, rows, given.learned or budget(learned), written_slots, given.written_rows or written_rows)
