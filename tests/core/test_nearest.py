"""The name that was most likely meant, as the end of an error message."""

from __future__ import annotations

import pytest

from charlm.core.nearest import ALIKE, did_you_mean


@pytest.mark.parametrize(
    ("name", "choices", "alike", "ending"),
    [
        ("reed", ("red", "green"), 0.0, "; did you mean red?"),
        ("wholly other", ("red", "bbb"), ALIKE, ""),
        ("zzz", ("red",), 0.0, "; did you mean red?"),
        ("textt", ("the text", "textts"), ALIKE, "; did you mean textts?"),
        ("the txt", iter(["the text"]), ALIKE, "; did you mean 'the text'?"),
        ("a\nb", ("a\nc",), ALIKE, "; did you mean 'a\\nc'?"),
        ("", ("red",), 0.0, "; did you mean red?"),
        (3, ("3.0",), 0.0, "; did you mean 3.0?"),
        ("red", (), 0.0, ""),
    ],
)
def test_the_most_similar_name_is_given(name, choices, alike, ending):
    assert did_you_mean(name, choices, alike) == ending
