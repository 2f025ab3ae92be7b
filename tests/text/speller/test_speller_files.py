"""Tests the file of a speller: what comes back, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from charlm.text.speller import SpellerSettings
from charlm.text.speller.channel import Costs
from charlm.text.speller.context import FILE as CONTEXT_FILE
from charlm.text.speller.context import PLACES, ContextWeights
from charlm.text.speller.files import FILE, StoredSpeller, counted, read_speller, write_speller

SETTINGS = SpellerSettings(unknown=7.5, kept=3, language="de", costs=Costs(near=1.0))


def test_what_is_written_comes_back(tmp_path):
    assert read_speller(tmp_path) is None
    write_speller(tmp_path, StoredSpeller({"cat": 2, "naïve": 1}, SETTINGS))
    found = read_speller(tmp_path)
    assert found.words == {"cat": 2, "naïve": 1}
    assert found.settings == SETTINGS


def test_files_of_before_contexts_are_read(tmp_path):
    write_speller(tmp_path, StoredSpeller({}, SETTINGS))
    whole = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    for name in ("context", "other"):
        del whole["settings"][name]
    (tmp_path / FILE).write_text(json.dumps(whole), encoding="utf-8")
    assert read_speller(tmp_path) == StoredSpeller({}, SETTINGS)


def test_a_context_that_is_gone_is_missed(tmp_path):
    weights = ContextWeights(np.zeros((PLACES, 5, 2)), np.zeros((PLACES, 2)), np.zeros((5, 2)), np.zeros(2))
    write_speller(tmp_path, StoredSpeller({}, SETTINGS, weights))
    assert read_speller(tmp_path).context.word_DH.shape == (5, 2)
    (tmp_path / CONTEXT_FILE).unlink()
    with pytest.raises(ValueError, match=f"it has a context, but there is no {CONTEXT_FILE}"):
        read_speller(tmp_path)


def test_words_are_counted_in_their_normal_form():
    found = counted(["The cat's (B2B) 1990s, 42 x!", "the"], str.lower)
    assert found == {"the": 2, "cat": 1, "b2b": 1, "1990s": 1, "x": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2, expected 1"),
        ({"words": ["a"]}, "expected words with positive counts"),
        ({"words": {"a": 0}}, "expected words with positive counts"),
        ({"format": True}, "format True, expected 1"),
        ({"words": {"a": 10**400}}, "expected words with positive counts"),
        ({"unknown": 10**400}, "settings.unknown: expected a number"),
        ({"words": {"a": True}}, "expected words with positive counts"),
        ({"settings": None}, "settings: expected prior, unknown"),
        ({"settings": {"unknown": 1}}, "settings: expected prior, unknown"),
        ({"kept": 0}, "settings.kept: expected a whole number of at least 1, got 0"),
        ({"kept": 1.5}, "settings.kept: expected a whole number of at least 1, got 1.5"),
        ({"unknown": "x"}, "settings.unknown: expected a number, got 'x'"),
        ({"misspelled": 1}, "misspelled=1: expected a share between 0 and 1"),
        ({"writer": -1}, "writer=-1: expected a number of 0 to 1e+15"),
        ({"costs": {**dataclasses.asdict(SETTINGS)["costs"], "near": -5}}, "near=-5.0: expected a number of 0"),
        ({"usual": 0.5}, "usual=0.5: expected at least 1 word"),
        ({"language": 3}, "settings.language: expected a text, got 3"),
        ({"language": "xx"}, "no keyboard for language 'xx'"),
        ({"costs": {"near": 1}}, "settings.costs: expected near, other"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, message):
    whole = {"format": 1, "words": {"a": 1}, "settings": dataclasses.asdict(SETTINGS)}
    top = {key: value for key, value in change.items() if key in whole}
    whole["settings"] |= {key: value for key, value in change.items() if key not in whole}
    (tmp_path / FILE).write_text(json.dumps(whole | top), encoding="utf-8")
    with pytest.raises(ValueError, match=FILE) as error:
        read_speller(tmp_path)
    assert message in str(error.value)
