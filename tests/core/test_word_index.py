"""Tests the index of a table's words: exact whatever the hashes say, for any padding and owner."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.core.word_index import WordIndex

SLOTS = 6


def spelled(*words: list[int], slots: int = SLOTS) -> np.ndarray:
    chars_MC = np.zeros((len(words), slots), np.uint16)
    for row, word in zip(chars_MC, words, strict=True):
        row[: len(word)] = word
    return chars_MC


@pytest.fixture
def many() -> tuple[np.ndarray, WordIndex]:
    rng = np.random.default_rng(0)
    chars_NS = np.unique(rng.integers(1, 4, (4000, SLOTS)) * (np.arange(SLOTS) < rng.integers(1, 7, (4000, 1))), axis=0)
    chars_NS = chars_NS.astype(np.uint16)
    keys = [(n % 2, row.tobytes().rstrip(b"\0")) for n, row in enumerate(chars_NS)]
    return chars_NS, WordIndex(keys, range(1, len(keys) + 1), SLOTS)


def test_every_word_is_found_for_its_owner_alone(many):
    chars_NS, index = many
    rows = np.arange(1, len(chars_NS) + 1)
    for owner in (0, 1):
        np.testing.assert_array_equal(index.rows(owner, chars_NS[owner::2]), rows[owner::2])
        assert index.rows(owner, chars_NS[1 - owner :][:1]) is None
        assert index.rows(2, chars_NS) is None


def test_padding_changes_nothing_and_places_without_a_word_are_row_0(many):
    chars_NS, index = many
    (short,) = np.nonzero(~chars_NS[::2, 2:].any(axis=1))
    assert len(short) >= 5
    for slots in (2, 3, 9):
        padded = np.zeros((len(short) + 1, slots), np.uint16)
        padded[1:, :2] = chars_NS[::2][short, :2]
        np.testing.assert_array_equal(index.rows(0, padded), [0, *(2 * short + 1)])
    longer = np.zeros((1, 9), np.uint16)
    longer[0, :SLOTS], longer[0, SLOTS] = chars_NS[0], 1
    assert index.rows(0, longer) is None


def test_the_beginning_of_a_word_is_another_word():
    index = WordIndex([(0, spelled([1, 2, 3]).tobytes().rstrip(b"\0"))], [7], SLOTS)
    assert index.rows(0, spelled([1, 2])) is None
    assert index.rows(0, spelled([1, 2], slots=2)) is None
    assert index.rows(0, spelled([1, 2, 3, 4])) is None
    assert index.rows(0, spelled([1, 2, 3], [])).tolist() == [7, 0]


def test_equal_hashes_do_not_decide(monkeypatch):
    monkeypatch.setattr(WordIndex, "_hashes", lambda self, chars_MC, owner_M: np.zeros(len(chars_MC), np.uint64))
    keys = [(0, spelled([n]).tobytes().rstrip(b"\0")) for n in (1, 2)]
    index = WordIndex(keys, [1, 2], SLOTS)
    found = [index.rows(0, spelled([n])) for n in (1, 2, 3)]
    assert found[2] is None
    assert any(rows is not None for rows in found[:2])
    assert all(rows is None or rows.tolist() == [n] for n, rows in zip((1, 2), found, strict=False))


def test_an_empty_table_has_nothing():
    assert WordIndex([], [], SLOTS).rows(0, spelled([1])) is None
