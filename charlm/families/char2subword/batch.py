"""The arrays that Char2Subword learns from, in each of its stages."""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.batch import Array
from charlm.families.spelled.batch import SpelledBatch


class CharacterMaskedBatch(NamedTuple):
    """A batch for learning subwords whose characters are hidden (Char2Subword, section 3.2).

    Attributes:
      inputs: the sequences, with every subword spelled that has a spelling.
      position_SM: int32 in [0, B * L), the subwords to predict, counted from the shard's first; 0 where there is none.
      labels_SM: int32, their ids; -1 where there is none.
    """

    inputs: SpelledBatch
    position_SM: Array
    labels_SM: Array


class ImitationBatch(NamedTuple):
    """Entries of a vocabulary whose rows Char2Subword learns to make from their characters (its section 3.1).

    Every attribute has an array for each length bucket; the axes are S shards, U spellings, K neighbours.

    Attributes:
      chars: uint16 [S, U, C], spellings; 0 pads.
      ids: int32 [S, U], rows of the table; -1 where there is none.
      near: int32 [S, U, K], the rows nearest to each, nearest first.
      unseen: bool [S, U], entries that are never trained on.
    """

    chars: tuple[Array, ...]
    ids: tuple[Array, ...]
    near: tuple[Array, ...]
    unseen: tuple[Array, ...]
