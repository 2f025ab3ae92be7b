"""Converts HLM's tables of relative positions between our number of buckets and the released code's 256.

Only import and export use it; open it when a model with other buckets cannot be exported. The released code ("theirs")
has a fixed 256 buckets in each direction. A table of ours with fewer buckets can be exported if each of our buckets
consists of whole buckets of theirs: every row of their table that some distance uses then holds a copy of our row for
that distance. Logarithmic buckets skip some rows, which no distance uses. We store our unused rows in unused rows of
their table, so that an import restores every byte of ours.
"""

from __future__ import annotations

import numpy as np

from charlm.nn.attention import relative_bucket

POSITION_BUCKETS = 256  # in each direction, fixed in the released code's BertEncoder


def rows_in_theirs(buckets: int, max_distance: int) -> tuple[int, ...] | None:
    """Returns for each of their 512 rows the index of our row that it holds, -1 for a row of zeros.

    Args:
      buckets: our buckets in each direction.
      max_distance: where the logarithmic buckets of both end, in positions; larger distances share the bucket of
        `max_distance - 1`.

    Returns:
      () when both tables have the same rows; None when their table cannot represent ours.
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
