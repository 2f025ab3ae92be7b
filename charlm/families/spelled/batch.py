"""The arrays of sequences in which some positions are read from characters."""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.batch import Array


class SpelledBatch(NamedTuple):
    """Words and subwords for a BERT whose input vectors Char2Subword makes from characters (its section 3.3).

    Axes: S table shards, B sequences of a shard, L positions, U distinct spellings, C character slots.

    Attributes:
      chars: per length bucket uint16 [S, U, C], distinct spellings as `charlm.families.char2subword.spelling` has
      them; 0 pads.
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
