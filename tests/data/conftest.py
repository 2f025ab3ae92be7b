"""Fixtures: a small corpus of three files, and a config that encodes it."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.config import get_config


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


@pytest.fixture
def documents(tmp_path):
    """Writes three files of sentences with rare characters, long words and one very long sentence."""
    rng = np.random.default_rng(0)
    words = ["the", "cat", "naïve", "Straße", "x", "supercalifragilisticexpialidocious", "don't", "日本", "3.14"]
    written = []
    (tmp_path / "text").mkdir()
    for name in "abc":
        lines = [" ".join(rng.choice(words, rng.integers(1, 30))) + rng.choice([".", "! Yes.", ""]) for _ in range(80)]
        lines.insert(3, "word " * 150 + "end.")
        (tmp_path / "text" / f"{name}.txt").write_text("\n".join(lines))
        written += [line.strip() for line in lines]
    return written
