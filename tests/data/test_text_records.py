"""Tests records of text: words are restored exactly, whatever characters they have."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.data.records import CorpusStats
from charlm.data.text_records import TextRecord, read_text_record, write_text_record

WORDS = ["the", "naïve", "😀", "\ud800", "x" * 300, "."]


def test_words_come_back():
    record = TextRecord.of([4, 2], WORDS, [True, False] * 3)
    again = read_text_record(write_text_record(record))
    assert again.texts() == WORDS
    assert again.sentences.tolist() == [4, 2]
    assert again.spaces.tolist() == [True, False] * 3
    assert again.chars.dtype == np.uint32
    assert TextRecord.of([1], ["plain"], [True]).chars.dtype == np.uint8
    empty = read_text_record(write_text_record(TextRecord.of([], [], [])))
    assert empty.texts() == []


def test_counts_of_a_record():
    stats = CorpusStats()
    stats.add_record(TextRecord.of([4, 2], WORDS, [True] * 6))
    assert (stats.records, stats.sentences, stats.words, stats.chars) == (1, 2, 6, 3 + 5 + 1 + 1 + 300 + 1)
    assert len(stats.slots_histogram) == 257  # a huge word does not make it huge
    assert stats.slots_histogram[-1] == 1


def test_what_is_no_record():
    with pytest.raises(ValueError, match="not a record of text of charlm"):
        read_text_record(b"12345678")
    with pytest.raises(ValueError, match="sentences of 3 words, 2 words, 2 spaces"):
        TextRecord.of([3], ["a", "b"], [True, True])
