"""Packs blocks into CharBERT's pre-training batches of one shape, with a budget of labelled positions per shard.

Open it when batches of CharBERT hold too much padding, or when their budget is too small.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from charlm.data.batching import labelled
from charlm.data.budgets import budget
from charlm.data.streams import sampled
from charlm.data.text_records import TextRecord
from charlm.families.charbert.batch import CharBertBatch, NoisyBatch
from charlm.families.charbert.blocks import BlockMaker, TwoChannelBlock


class NoisyShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S, shards of a micro-batch.
      sequences: B, sequences of a shard.
      length: L, subwords of a sequence.
      slots: N, character slots of a sequence.
      masked: the most masked subwords that a shard can have.
      noised: the most subwords of noised words that a shard takes; a block that would exceed it begins the next shard.
    """

    shards: int
    sequences: int
    length: int
    slots: int
    masked: int
    noised: int


class NoisyShard:
    """Collects the blocks of one shard as long as they fit; see `charlm.data.streams.Shard`.

    Args:
      pad: the subword id of padding.
    """

    def __init__(self, shape: NoisyShape, pad: int) -> None:
        self._shape, self._pad = shape, pad
        self._blocks: list[TwoChannelBlock] = []
        self._noised = 0

    @property
    def full(self) -> bool:
        """True when the shard has all its blocks."""
        return len(self._blocks) == self._shape.sequences

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: TwoChannelBlock) -> bool:
        """Adds the block if there is room for its labels; returns whether it was added."""
        noised = self._noised + len(block.nlm_labels)
        if noised > self._shape.noised:
            return False
        self._noised = noised
        self._blocks.append(block)
        return True

    def build(self) -> NoisyBatch:
        """Returns the arrays of the shard: inputs [B, ...], positions and labels [M] and [P]; see `NoisyBatch`."""
        shape, blocks = self._shape, self._blocks
        B, L = shape.sequences, shape.length
        ids_BL = np.full((B, L), self._pad, np.int32)
        mask_BL = np.zeros((B, L), bool)
        chars_BN = np.zeros((B, shape.slots), np.int32)
        ends = np.zeros((2, B, L), np.int32)
        for row, block in enumerate(blocks):
            ids_BL[row, : len(block.ids_T)] = block.ids_T
            mask_BL[row, : len(block.ids_T)] = True
            chars_BN[row] = block.chars.chars_N
            ends[:, row] = block.chars.starts_L, block.chars.ends_L
        mlm = labelled(((b.mlm_positions, b.mlm_labels) for b in blocks), shape.masked, L)
        nlm = labelled(((b.nlm_positions, b.nlm_labels) for b in blocks), shape.noised, L)
        return NoisyBatch(CharBertBatch(ids_BL, None, mask_BL, chars_BN, *ends), *mlm, *nlm)


def measure_noised(records: Iterable[TextRecord], maker: BlockMaker, sequences: int) -> int:
    """Returns a budget of noised subwords that is enough for nearly every shard of so many sequences.

    Raises:
      ValueError: there is no text.
    """
    if not maker.predicts_words:
        return 1  # no subword is labelled, but arrays need at least one entry
    counts = [sum(len(block.nlm_labels) for block in shard) for shard in sampled(records, maker, sequences)]
    return max(budget(np.array(counts)), budget(np.array([maker.length - 2])))  # any block fits alone
