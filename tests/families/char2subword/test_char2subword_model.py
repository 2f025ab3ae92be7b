"""Tests what a Char2Subword run starts from: the nearest rows of a table are computed once."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.config import get_config
from charlm.families.char2subword import shape as char2subword_model
from charlm.families.char2subword.imitation import neighbours
from charlm.families.char2subword.shape import near_rows


@pytest.fixture
def config(tmp_path):
    config = get_config("char2subword")
    config.data.cache_dir = str(tmp_path)
    return config


def test_neighbours_are_computed_once_and_again_when_damaged(config, tmp_path, monkeypatch, log_lines):
    table_VD = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    want = neighbours(table_VD, 3).ids
    np.testing.assert_array_equal(near_rows(config, table_VD, 3), want)
    (path,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(char2subword_model, "neighbours", None)
        np.testing.assert_array_equal(near_rows(config, table_VD, 3), want)
    for damaged in (path.read_bytes()[:-9], b"", b"\0" * 100):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(near_rows(config, table_VD, 3), want)
        assert str(path) in log_lines.lines[-2]
        assert "damaged" in log_lines.lines[-2]
    assert [*tmp_path.iterdir()] == [path]
