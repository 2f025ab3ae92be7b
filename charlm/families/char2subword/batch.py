"""The batch of the approximation stage, in which Char2Subword learns to imitate the rows of an embedding table.

Read it before `batches`, which makes these arrays, and `loss`, which uses them.
"""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.types import Array


class ImitationBatch(NamedTuple):
    """Vocabulary entries with their characters, from which Char2Subword learns to compute their rows (section 3.1).

    Every attribute is a tuple with one array per length bucket. Axes: S shards, U spellings, K neighbours.

    Attributes:
      chars: uint16 [S, U, C], the spellings; 0 pads.
      ids: int32 [S, U], the entries' rows of the table; -1 at padding.
      near: int32 [S, U, K], the rows nearest to each entry's row, nearest first.
      unseen: bool [S, U], True at entries that are never trained on.
    """

    chars: tuple[Array, ...]
    ids: tuple[Array, ...]
    near: tuple[Array, ...]
    unseen: tuple[Array, ...]
