"""Tests the rows that a recogniser learns from: nothing is lost, noise keeps words apart, positions can be saved."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm.data.streams import SequenceStream
from charlm.data.text_records import TextRecord
from charlm.text.noise import Noise
from charlm.wordrec.batches import RowMaker, RowShard
from charlm.wordrec.words import KnownWords

WORDS = [
    "The",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    ".",
    "It",
    "sleeps",
    ".",
    "Every",
    "morning",
    "starts",
    "again",
    ".",
]
RECORD = TextRecord.of([10, 3, 5], WORDS, [True] * len(WORDS))
KNOWN = KnownWords(["the", "quick", "morning", "."], "abcdefghijklmnopqrstuvwxyz", "rules")


def maker(length=6, *noises, seed=0):
    return RowMaker(length, noises or (Noise.parse("charbert:1"),), seed)


def rows(made, count=None):
    stream = SequenceStream(iter([RECORD] * (count or 1)), made)
    return list(iter(stream.next, None))


def test_rows_hold_whole_sentences_and_every_word_once():
    found = rows(maker(8))
    assert [word for row in found for word in row.words] == WORDS
    assert [len(row.words) for row in found] == [8, 5, 5]  # the first sentence is cut, its rest joined by the second
    assert all(len(row.words) == len(row.read) for row in found)


def test_rows_are_misspelled_anew_every_time_and_alike_in_every_run():
    found, again, other = rows(maker(32), 2), rows(maker(32), 2), rows(maker(32, seed=1), 2)
    assert [row.read for row in found] == [row.read for row in again]
    assert found[0].words[:18] == tuple(WORDS)
    assert found[0].read != found[0].words
    assert found[0].read[:18] != other[0].read[:18]
    short = [one for one, meant in zip(found[0].read, found[0].words, strict=True) if len(meant) < 4]
    assert short == [word for word in found[0].words if len(word) < 4]


def test_one_of_the_noises_is_drawn_for_each_row():
    found = rows(maker(4, Noise("drop", 0.0), Noise("case", 1.0)), 8)
    clean = [row.read == row.words for row in found if row.words != (".",)]
    assert all(row.read in (row.words, tuple(map(str.swapcase, row.words))) for row in found)
    assert 0 < sum(clean) < len(clean)


def test_labels_are_those_of_the_words_meant():
    (row,) = rows(maker(20))
    shard = RowShard(KNOWN, 2, 20)
    assert shard.add(row)
    assert not shard.full
    batch = shard.build()
    labels_BL = np.full((2, 20), -1)
    labels_BL[0, :18] = KNOWN.labels(WORDS)
    np.testing.assert_array_equal(batch.labels_SBL, labels_BL)
    np.testing.assert_array_equal(batch.mask_SBL, labels_BL >= 0)
    changed = [one.lower() != other.lower() for one, other in zip(row.words, row.read, strict=True)]
    np.testing.assert_array_equal(batch.changed_SBL[0, :18], changed)
    assert not batch.changed_SBL[1].any()
    np.testing.assert_array_equal(batch.read.first[0, :18], KNOWN.read(row.read).first)
    assert shard.add(row)
    assert shard.full


def test_a_saved_position_goes_on_with_the_same_rows():
    made = maker(5)
    stream = SequenceStream(iter([RECORD] * 3), made)
    first = stream.next()
    stream.give_back(first)
    state = json.loads(json.dumps(stream.get_state()))
    rest = list(iter(stream.next, None))
    again = SequenceStream(iter([RECORD] * 2), maker(5))
    again.set_state(state)
    assert list(iter(again.next, None)) == rest
    assert rest[0] == first


def test_halves_hold_all_words():
    (row,) = rows(maker(20))
    one, other = maker(20).halves(row)
    assert one.words + other.words == row.words
    assert (one.number, other.number) == ((*row.number, 1), (*row.number, 2))
    with pytest.raises(ValueError, match="no room for a single word"):
        maker(20).halves(one._replace(words=("a",), read=("a",)))
