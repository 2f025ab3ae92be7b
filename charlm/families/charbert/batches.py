"""Blocks -> batches for CharBERT, of one shape, with budgets for the labelled positions of a shard."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import grain
import numpy as np

from charlm.data.lanes import lane_batches, stack
from charlm.data.text_records import TextRecord
from charlm.families.charbert.batch import CharBertBatch, NoisyBatch
from charlm.families.charbert.blocks import Block, BlockMaker, BlockStream

SAMPLE_SHARDS = 24  # shards read to measure the budget
SPREADS = 4.0  # it lies so many standard deviations above the mean: few shards close early


class NoisyShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S of a micro-batch. sequences: B of a shard. length: L. slots: N, characters of a sequence.
      masked: masked subwords of a shard at most; there are never more. noised: subwords of noised words of a shard at
        most: a block that would exceed it begins the next shard.
    """

    shards: int
    sequences: int
    length: int
    slots: int
    masked: int
    noised: int


class NoisyLane:
    """A lane of `charlm.data.lanes` that fills shards with blocks."""

    def __init__(self, stream: BlockStream, shape: NoisyShape, pad_id: int) -> None:
        self._stream, self._shape, self._pad_id = stream, shape, pad_id

    def shard(self) -> tuple[NoisyBatch, bool]:
        """Returns the next shard, and whether it holds a block."""
        blocks: list[Block] = []
        noised = 0
        while len(blocks) < self._shape.sequences and (block := self._stream.next()) is not None:
            noised += len(block.nlm_labels)
            if noised > self._shape.noised:
                self._stream.give_back(block)
                break
            blocks.append(block)
        return build_shard(blocks, self._shape, self._pad_id), bool(blocks)

    def get_state(self) -> dict[str, Any]:
        """Returns what the lane holds back."""
        return self._stream.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._stream.set_state(state)


def build_shard(blocks: list[Block], shape: NoisyShape, pad_id: int) -> NoisyBatch:
    """Returns the arrays of a shard: inputs [B, ...], positions and labels [M] and [P]; see `NoisyBatch`."""
    B, L = shape.sequences, shape.length
    ids_BL = np.full((B, L), pad_id, np.int32)
    mask_BL = np.zeros((B, L), bool)
    chars_BN = np.zeros((B, shape.slots), np.int32)
    ends = np.zeros((2, B, L), np.int32)
    for row, block in enumerate(blocks):
        ids_BL[row, : len(block.ids_T)] = block.ids_T
        mask_BL[row, : len(block.ids_T)] = True
        chars_BN[row] = block.chars.chars_N
        ends[:, row] = block.chars.starts_L, block.chars.ends_L
    mlm = _labelled([(b.mlm_positions, b.mlm_labels) for b in blocks], shape.masked, L)
    nlm = _labelled([(b.nlm_positions, b.nlm_labels) for b in blocks], shape.noised, L)
    return NoisyBatch(CharBertBatch(ids_BL, None, mask_BL, chars_BN, *ends), *mlm, *nlm)


def _labelled(rows: list[tuple[np.ndarray, np.ndarray]], most: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions counted over all rows, int32 [most], and their labels, -1 where there is none."""
    positions, labels = np.zeros(most, np.int32), np.full(most, -1, np.int32)
    count = 0
    for row, (places, values) in enumerate(rows):
        part = slice(count, count := count + len(places))
        positions[part], labels[part] = row * length + places, values
    return positions, labels


def noisy_batches(
    lanes: Mapping[int, grain.IterDataset[TextRecord]],
    maker: BlockMaker,
    shape: NoisyShape,
    *,
    accumulation: int,
    prefetch: int,
    by_record: bool = False,
) -> grain.IterDataset[NoisyBatch]:
    """Returns batches [accumulation, S', ...], one shard for each lane of records.

    Args:
      prefetch: batches prepared ahead in a thread, so that the iterators must be closed; 0: none.
    """

    def lane(number: int, records: Iterator[TextRecord]) -> NoisyLane:
        return NoisyLane(BlockStream(records, maker, number, shape.shards, by_record), shape, pad_id_of(maker))

    return lane_batches(lanes, lane, of=shape.shards, accumulation=accumulation, prefetch=prefetch)


def empty_noisy_batch(shape: NoisyShape, pad_id: int, shards: int) -> NoisyBatch:
    """Returns a batch [1, shards, ...] without a subword."""
    return stack([stack([build_shard([], shape, pad_id)] * shards)])


def pad_id_of(maker: BlockMaker) -> int:
    """Returns the subword that stands where there is none: the vocabulary's own, or 0."""
    return maker.tokenizer.special.pad or 0


def measure_noised(records: Iterable[TextRecord], maker: BlockMaker, sequences: int) -> int:
    """Returns a budget of noised subwords that nearly every shard of so many sequences keeps.

    Raises:
      ValueError: there is no text.
    """
    if not maker.predicts_words:
        return 1  # nothing is labelled, but an array has a row
    stream = BlockStream(iter(records), maker)
    counts = [len(b.nlm_labels) for b in itertools.islice(iter(stream.next, None), SAMPLE_SHARDS * sequences)]
    if not counts:
        raise ValueError("data.train: no sentence to measure batches on")
    # A short corpus is read round and round: the budget must hold whole shards.
    shards = np.resize(counts, (SAMPLE_SHARDS, sequences)).sum(axis=1)
    most = max(shards.mean() + SPREADS * shards.std(), shards.max(), maker.length - 2)  # any block fits alone
    return int(-(-most // 8) * 8)
