"""Tests of what the batches of a run hold, counted on real batches of small runs."""

from __future__ import annotations

import pytest
from small_charbert import small_charbert_config
from small_run import on_devices, small_config, write_text

from charlm.families.hlm.spelling import SpelledWords
from charlm.families.hlm.writing import NextWords
from charlm.league.measuring import measured


def split(path) -> list[str]:
    """The words of a text as `text.splitter=rules` cuts it: a full stop is a word."""
    return path.read_text().replace(".\n", " .\n").split()


def test_words_and_characters_of_an_hlm(tmp_path):
    text = write_text(tmp_path / "text.txt")
    config = small_config(text, tmp_path)
    config.data.table_shards = 1
    with on_devices(1):
        found = measured(config, "", "rules", 12)
    words = split(text)
    assert found["masked"] == "characters"
    assert found["words_per_unit"] == pytest.approx(1.0, abs=0.02)
    # The characters that are read: at most seven of a word.
    assert found["chars_per_unit"] == pytest.approx(sum(min(len(one), 7) for one in words) / len(words), rel=0.04)


def test_words_and_characters_of_a_model_of_subwords(tmp_path):
    text = write_text(tmp_path / "text.txt")
    config = small_charbert_config(text, tmp_path)
    with on_devices(1):
        found = measured(config, "", "rules", 12)
    words = split(text)
    assert found["masked"] == "subwords"
    assert found["words_per_unit"] < 1.0
    mean = sum(map(len, words)) / len(words)
    assert found["chars_per_unit"] == pytest.approx(mean * found["words_per_unit"], rel=0.04)


@pytest.mark.parametrize("objective", [NextWords, SpelledWords])
def test_bits_of_what_is_written_or_mended_are_not_those_of_masked_characters(objective):
    assert objective.masked == ""
