"""Tests which held-out places a log shows as examples, and what it writes of the text around them."""

from __future__ import annotations

import numpy as np

from charlm.families.examples import in_context, spread


def test_places_are_spread_over_all():
    places = np.array([3, 5, 8, 9, 20])
    assert spread(places, 3).tolist() == [3, 8, 20]
    assert spread(places, 9).tolist() == places.tolist()
    assert spread(places[:0], 3).tolist() == []


def test_the_context_ends_with_the_text():
    read = ["a", "b", "c", "d", "e", "f"].__getitem__
    assert in_context(2, 6, read, "[c]", 1) == "b [c] d"
    assert in_context(0, 6, read, "[a, right: x]", 2) == "[a, right: x] b c"
    assert in_context(4, 5, read, "[e]") == "a b c d [e]"
