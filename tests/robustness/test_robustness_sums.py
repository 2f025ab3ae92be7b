"""Tests of the file with the sums of each example behind a report."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.robustness.cells import Cell
from charlm.robustness.scoring import STATISTICS
from charlm.robustness.settings import Level
from charlm.robustness.sums import SUMS_FILE, read_sums, write_sums
from charlm.text.noise import Noise


def cell(*rows) -> Cell:
    """A cell of a model's score."""
    return Cell({"kind": "tags"}, {STATISTICS: np.array(rows)})


def test_sums_are_read_as_they_were_and_draws_are_averaged(tmp_path):
    noise = Level("swap", 0.1, "swap:0.1", Noise.parse("swap:0.1"))
    clean = cell([1, 2], [3, 4])
    noisy = {
        ("a", noise): [cell([0, 2], [2, 4]), cell([1, 2], [3, 4])],
        ("a", Level("swap", 0.0, "swap:0.0", None)): [clean],
    }
    write_sums(tmp_path, {"a": clean}, noisy)
    found = read_sums(tmp_path)
    assert [one[:3] for one in found] == [("a", "", "tags"), ("a", "swap:0.1", "tags")]
    np.testing.assert_array_equal(found[0].rows, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(found[1].rows, [[0.5, 2], [2.5, 4]])


def test_a_damaged_file_is_an_error(tmp_path):
    with pytest.raises(OSError):  # noqa: PT011 (whatever file)
        read_sums(tmp_path)
    (tmp_path / SUMS_FILE).write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(Exception, match="zip"):
        read_sums(tmp_path)
