"""Packs aligned texts into batches of a fixed shape. Open it to change what a batch of the alignment stage holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from charlm.core.types import Array
from charlm.data.batching import ShardPacker
from charlm.families.char2subword.aligned import AlignedText
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.masked_batches import MaskedShape, add_spellings, inputs_of, spelled_rows


class AlignedBatch(NamedTuple):
    """Texts as the student reads them and, clean, as the teacher does. Axes: S shards, B texts of a shard, L positions.

    Attributes:
      inputs: the student's inputs.
      group_SBL: int32, the group of words in [0, L) that a position of the student belongs to; -1: to none.
      clean_SBL: int32, the teacher's subwords; -1 at padding.
      clean_group_SBL: int32, the groups of the teacher's positions; -1: none.
      noisy_SB: bool, True at texts with noise.
    """

    inputs: SpelledBatch
    group_SBL: Array
    clean_SBL: Array
    clean_group_SBL: Array
    noisy_SB: Array


class AlignedShard:
    """The texts of a shard, and tables of their distinct spellings; see `charlm.data.streams.Shard`.

    Args:
      pad: the row of the table of subwords that stands at padding.
    """

    def __init__(self, shape: MaskedShape, pad: int) -> None:
        self._shape, self._pad = shape, pad
        self._packer = ShardPacker(shape.tables())
        self._taken: list[AlignedText] = []

    @property
    def full(self) -> bool:
        """True when the shard has all its texts."""
        return self._packer.full

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, sequence: AlignedText) -> bool:
        """Takes the text if its spellings fit; returns whether they did."""
        fits = add_spellings(self._packer, spelled_rows(sequence))
        self._taken += [sequence] * fits
        return fits

    def build(self) -> AlignedBatch:
        """Returns the arrays of the shard, without the leading axis; see `AlignedBatch`."""
        B, L = self._shape.sequences, self._shape.length
        inputs = inputs_of(self._packer.build(), self._taken, L, self._pad)
        group_BL, clean_BL, clean_group_BL = (np.full((B, L), -1, np.int32) for _ in range(3))
        noisy_B = np.zeros(B, bool)
        for row, text in enumerate(self._taken):
            group_BL[row, : len(text.group_L)] = text.group_L
            clean_BL[row, : len(text.clean_T)] = text.clean_T
            clean_group_BL[row, : len(text.clean_T)] = text.clean_group_T
            noisy_B[row] = text.noisy
        return AlignedBatch(inputs, group_BL, clean_BL, clean_group_BL, noisy_B)
