"""The arrays of sequences in which some or all positions are read from characters, and of what is hidden in them."""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.batch import Array


class SpelledBatch(NamedTuple):
    """Words and subwords for a BERT whose input vectors are made from characters (Char2Subword, section 3.3).

    Axes: S table shards, B sequences of a shard, L positions, U distinct spellings, C character slots.

    Attributes:
      chars: per length bucket uint16 [S, U, C], distinct spellings as the family writes them; 0 pads.
      index_SBL: int32, row of each position's spelling in the tables laid end to end; 0 where nothing is spelled.
      ids_SBL: int32, row of the table of subwords that stands at a position; -1 where a spelling does.
      types_SBL: int32, segments.
      mask_SBL: bool, True where there is a word or subword.
    """

    chars: tuple[Array, ...]
    index_SBL: Array
    ids_SBL: Array
    types_SBL: Array
    mask_SBL: Array


class MaskedBatch(NamedTuple):
    """A batch for learning what stands at positions whose characters are hidden (Char2Subword, section 3.2).

    Attributes:
      inputs: the sequences as the model reads them.
      position_SM: int32 in [0, B * L), the positions to predict, counted from the shard's first; 0 where there is none.
      labels_SM: int32, what stands there; -1 where there is none.
    """

    inputs: SpelledBatch
    position_SM: Array
    labels_SM: Array
