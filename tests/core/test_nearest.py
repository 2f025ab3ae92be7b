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


def test_the_last_part_of_a_key_is_enough():
    keys = ["train.spike_policy", "optim.learning_rate", "train.epochs", "model.norm"]
    assert did_you_mean("epoch", keys) == "; did you mean train.epochs?"
    assert did_you_mean("learn_rate", keys) == "; did you mean optim.learning_rate?"
    assert did_you_mean("lrr", keys) == ""  # it is as near to "norm" as to nothing
