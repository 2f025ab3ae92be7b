"""The arrays that Char2Subword learns to imitate a table from."""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.batch import Array


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
