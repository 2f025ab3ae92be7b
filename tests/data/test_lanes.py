"""Tests trees of arrays that are stacked along a new axis."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from charlm.core.trees import stack


class Pair(NamedTuple):
    first: object
    second: object


def test_arrays_of_equal_trees_get_an_axis():
    trees = [Pair((np.full(3, n), np.full((2, 1), -n)), Pair(None, np.array(n, np.uint16))) for n in range(4)]
    whole = stack(trees)
    assert type(whole) is type(whole.second) is Pair
    np.testing.assert_array_equal(whole.first[0], np.repeat(np.arange(4), 3).reshape(4, 3))
    assert whole.first[1].shape == (4, 2, 1)
    assert whole.second.first is None
    assert whole.second.second.tolist() == [0, 1, 2, 3]
    assert whole.second.second.dtype == np.uint16
