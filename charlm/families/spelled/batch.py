"""Batches of sequences in which some or all positions are read from characters, with or without labels.

Read it first, since the models, the units and the packing all rely on these arrays.
"""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.types import Array


class SpelledBatch(NamedTuple):
    """Words and subwords for a BERT whose input vectors are made from characters (Char2Subword, section 3.3).

    Axes: S table shards, B sequences of a shard, L positions, U distinct spellings, C character slots.

    Attributes:
      chars: per length bucket uint16 [S, U, C], distinct spellings as the family writes them; 0 pads. In inference a
        bucket may hold their vectors instead, float32 [S, U, D].
      index_SBL: int32, row of each position's spelling in the concatenated tables; 0 at positions without a spelling.
      ids_SBL: int32, row of the table of subwords that a position reads; -1 at positions that read a spelling, and
        -2 - n at those that read row n and a spelling beside it.
      types_SBL: int32, segments.
      mask_SBL: bool, True at words and subwords, False at padding; in inference also the numbers of texts that share a
        row (`charlm.nn.masks`).
    """

    chars: tuple[Array, ...]
    index_SBL: Array
    ids_SBL: Array
    types_SBL: Array
    mask_SBL: Array


class MaskedBatch(NamedTuple):
    """A batch for masked language modelling over words or subwords (Char2Subword, section 3.2).

    Attributes:
      inputs: the sequences as the model reads them.
      position_SM: int32 in [0, B * L), the positions to predict, counted from the shard's first; 0 at padding.
      labels_SM: int32, the true words or subwords at these positions; -1 at padding.
    """

    inputs: SpelledBatch
    position_SM: Array
    labels_SM: Array
