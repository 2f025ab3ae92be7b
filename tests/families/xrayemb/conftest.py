"""Fixture: the folder where the small XRayEmb of the tests keeps its vocabularies."""

from __future__ import annotations

import pytest

from charlm.config import get_config


@pytest.fixture(scope="module")
def xray_folder(tmp_path_factory):
    """Where the vocabularies of `small_xrayemb_run.small_maker` lie."""
    return tmp_path_factory.getbasetemp() / "small_xrayemb"


@pytest.fixture
def config(tmp_path):
    config = get_config()
    config.text.splitter = "rules"
    config.data.cache_dir = str(tmp_path / "cache")
    config.data.encode_processes = 1
    config.data.max_words = 34
    config.data.heldout_fraction = 0.2
    config.data.train = (str(tmp_path / "text" / "*.txt"),)
    return config
