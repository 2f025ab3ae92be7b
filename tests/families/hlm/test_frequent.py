"""Tests which words of a training text lie beside an HLM: the frequent ones of all its corpora."""

from __future__ import annotations

import pytest
from small_run import small_config

from charlm.data.corpus import prepare
from charlm.families.hlm.frequent import frequent_words, is_word


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A config of two corpora, a large one and a small one, and what was prepared for it."""
    folder = tmp_path_factory.mktemp("frequent")
    (folder / "large.txt").write_text("The cats sat, the cats ran, the cats slept 12 12 12.\n" * 300)
    (folder / "small.txt").write_text("the zebras नमस्ते slept x1 x1.\nBeside rivers.\n" * 30 + "seldom seen.\n")
    config = small_config(folder / "large.txt", folder / "cache")
    config.data.train = (str(folder / "large.txt"), str(folder / "small.txt"))
    config.data.heldout_fraction = 0.0
    config.data.heldout = (str(folder / "small.txt"),)
    return config, prepare(config)


def test_words_of_all_corpora_are_known_by_their_frequency(read):
    found = frequent_words(*read)
    assert found[:2] == ["cats", "the"]
    assert set(found) == {"The", "the", "cats", "sat", "ran", "slept", "zebras", "नमस्ते", "Beside", "rivers"}


def test_few_words_are_kept_and_read(read):
    assert frequent_words(*read, most=3) == frequent_words(*read)[:3]

    some = frequent_words(*read, read=1500)
    assert "zebras" in some, "a part of the text is drawn from all of it"


def test_what_training_repeats_is_counted_once(read):
    """The small corpus is read as often as the large one, and comes first, but what it has once is not known."""
    config, data = read
    config = config.copy_and_resolve_references()
    config.data.weights = (1.0, 30.0)
    found = frequent_words(config, data)
    assert found.index("zebras") < found.index("cats")
    assert set(found) == set(frequent_words(*read))


def test_words_that_may_be_cut_are_left_out(read):
    config, data = read
    config = config.copy_and_resolve_references()
    config.model.char_slots = 7
    assert "rivers" not in frequent_words(config, data)
    assert "slept" in frequent_words(config, data)


def test_marks_of_a_script_are_part_of_a_word():
    assert [word for word in ("cat", "हिन्दी", "x1", "3", "", ".", "don't") if is_word(word)] == ["cat", "हिन्दी"]
