"""HLM's tables of relative positions, for a number of buckets that the released code does not have.

The released code has 256 buckets in each direction and cannot be told another number. A table of fewer buckets is the
same function of the distance where each of its buckets is made of whole buckets of theirs; then their table has a copy
of our row wherever a distance of ours leads to. Rows of ours that no distance leads to (logarithmic buckets skip some)
stand where no distance of theirs leads to, so that an import brings every byte back.
"""

from __future__ import annotations

import numpy as np

from charlm.nn.attention import relative_bucket

POSITION_BUCKETS = 256  # of each direction, fixed in the released code's BertEncoder


def rows_in_theirs(buckets: int, max_distance: int) -> tuple[int, ...] | None:
    """Returns for each of their 512 rows the row of ours that stands there, -1 for a row of zeros.

    Args:
      buckets: ours, of each direction. max_distance: where the logarithmic buckets of both end, in positions; every
        distance beyond has the bucket of `max_distance - 1`.

    Returns:
      () where both have the same rows; None where their table cannot be the same function of the distance.
    """
    if buckets == POSITION_BUCKETS:
        return ()
    if buckets > POSITION_BUCKETS:
        return None
    distance = np.arange(1 - max_distance, max_distance)
    ours = relative_bucket(distance, buckets, max_distance) + buckets
    theirs = relative_bucket(distance, POSITION_BUCKETS, max_distance) + POSITION_BUCKETS
    rows = np.full(2 * POSITION_BUCKETS, -1)
    rows[theirs] = ours
    without_distance = np.setdiff1d(np.arange(2 * buckets), ours)
    free = np.flatnonzero(rows < 0)
    if not np.array_equal(rows[theirs], ours) or len(free) < len(without_distance):
        return None
    rows[free[: len(without_distance)]] = without_distance
    return tuple(rows.tolist())
