"""Tests encoded records: written records are read unchanged, other bytes are refused, and counts add up."""

from __future__ import annotations

import time

import numpy as np
import pytest

from charlm.data.records import CorpusStats, EncodedRecord, read_counts, read_record, write_counts, write_record


def test_record_round_trip():
    lengths = np.array([3, 1, 255], np.uint8)
    data = write_record([2, 1], lengths, np.arange(259, dtype=np.uint16))
    record = read_record(data)
    assert [array.dtype for array in record] == [np.uint16, np.uint8, np.uint16]
    np.testing.assert_array_equal(record.sentences, [2, 1])
    np.testing.assert_array_equal(record.words, lengths)
    np.testing.assert_array_equal(record.chars, np.arange(259))
    huge = read_record(write_record([70_000], np.ones(70_000, np.uint8), np.ones(70_000, np.uint16)))
    assert huge.sentences.dtype == np.uint32
    assert huge.sentences.tolist() == [70_000]


def test_inconsistent_record_is_refused():
    with pytest.raises(ValueError, match="inconsistent record: sentences of 3 words, 2 words of 2 characters"):
        write_record([3], np.ones(2, np.uint8), np.ones(2, np.uint16))


@pytest.mark.parametrize("data", [b"", b"garbage that is no record", b"\x02" + b"\0" * 7 + b"{}"])
def test_foreign_bytes_are_no_record(data):
    with pytest.raises(ValueError, match="not an encoded record of charlm"):
        read_record(data)


def test_ragged_record_of_no_words_needs_no_special_case():
    record = read_record(write_record([], np.zeros(0, np.uint8), np.zeros(0, np.uint16)))
    assert isinstance(record, EncodedRecord)
    assert len(record.sentences) == 0


def test_reading_a_record_is_fast():
    data = write_record([20] * 25, np.full(500, 5, np.uint8), np.ones(2500, np.uint16))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            read_record(data)
        times.append((time.perf_counter() - start) / 100)
    assert min(times) < 100e-6  # about 10 µs on a free core; the machine may be busy


def test_stats_add_up_and_round_trip(tmp_path):
    a = CorpusStats(1, 2, 3, 4, 5, 6, 7, 8, {"x": 1}, [0, 1])
    b = CorpusStats(10, 20, 30, 40, 50, 60, 70, 5, {"x": 2, "y": 3}, [1, 1, 4])
    total = CorpusStats(11, 22, 33, 44, 55, 66, 77, 8, {"x": 3, "y": 3}, [1, 2, 4])
    assert a + b == total == b + a
    assert a + CorpusStats() == a
    write_counts(str(tmp_path / "shard"), total, "00ff")
    assert read_counts(str(tmp_path / "shard")) == (total, "00ff")


def test_stats_describe_shares_and_counts():
    stats = CorpusStats(documents=8, words=200, chars=1000, words_cut=3, chars_unknown=5, skipped={"bad": 2})
    text = stats.describe()
    assert "8 documents, 200 words" in text
    assert "cut words 1.5 % (3)" in text
    assert "unknown characters 0.5 % (5)" in text
    assert "skipped documents, bad: 20 % (2)" in text


def test_stats_of_records_alone_claim_no_losses():
    text = CorpusStats(words=200, chars=1000).describe()
    assert text == "200 words, 1,000 characters; documents and losses are not known"


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"words": "many"', "\x00" * 64])
def test_counts_that_are_damaged_are_none(tmp_path, text):
    shard = str(tmp_path / "shard")
    write_counts(shard, CorpusStats(), "00ff")
    (counts,) = tmp_path.iterdir()
    counts.write_text(text)
    assert read_counts(shard) is None
