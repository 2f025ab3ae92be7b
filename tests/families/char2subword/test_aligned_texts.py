"""Tests how texts are made noisy and their words paired: by characters, whatever the noise joins or cuts."""

from __future__ import annotations

import dataclasses
import functools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_char2subword import spelled

from charlm.data.text_records import TextRecord
from charlm.families.char2subword.aligned import TextMaker, TextNoise, kept, paired
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.text.noise import Noise

TEXT = "the birds sang in the old trees, unbelievably loud"
LENGTH = 40


@functools.cache
def reader(backbone, mode):
    """Returns the units and the tokenizer of a tiny model."""
    model = from_pretrained(spelled(backbone, mode=mode))
    return units_of(model), model.tokenizer()


def maker(*specs, mode="gated", backbone="bert", length=LENGTH, both=False):
    noise = TextNoise(tuple(map(Noise.parse, specs or ("keyboard:0.3",))), 1.0, 0)
    return TextMaker(*reader(backbone, mode), noise, length, 14, both)


def test_words_that_share_characters_are_one_group():
    words = [(0, 2), (2, 5), (6, 9), (9, 9), (10, 14)]  # two joined, one as it was, one gone, one cut
    pieces = [(0, 5), (6, 9), (9, 10), (10, 12), (12, 14)]
    group_W, group_P = paired(words, pieces)
    assert group_W.tolist() == [0, 0, 1, -1, 2]
    assert group_P.tolist() == [0, 1, -1, 2, 2]
    assert [group.tolist() for group in paired([], [(0, 1)])] == [[], [-1]]
    assert [group.tolist() for group in paired([(0, 0)], [])] == [[-1], []]


def test_a_text_that_is_too_long_ends_with_a_whole_group_on_both_sides():
    one, other = np.array([0, 0, 1, -1, 2, 2, 3]), np.array([0, 1, 2, 3])
    assert kept([one, other], 7) == [7, 4]
    assert kept([one, other], 6) == [6, 3]
    assert kept([one, other], 5) == [4, 2]
    assert kept([one, other], 3) == [3, 2]
    assert kept([other, one], 5) == [2, 4]
    assert kept([np.zeros(9), np.zeros(2)], 4) == [4, 2]  # a word that does not fit at all is cut


def sides(made, tokenizer):
    """Returns for each group the pieces that the teacher reads, and those of the student, as text without marks."""
    ids = np.where(made.ids_T < -1, -2 - made.ids_T, made.ids_T)
    text = lambda found: "".join(tokenizer.token(int(i)).removeprefix("##") for i in found)
    return [
        (text(made.clean_T[made.clean_group_T == g]), text(ids[made.group_L == g]))
        for g in range(int(made.clean_group_T.max()) + 1)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_groups_hold_the_same_characters_when_noise_joins_and_cuts_words(number):
    texts = maker("spaces:1", length=120)
    made = texts.aligned((TEXT, "noisy"), (number,))
    assert made.noisy
    for clean, noisy in sides(made, texts.tokenizer):
        assert clean == noisy != ""


def test_groups_are_words_when_noise_keeps_their_number():
    texts = maker("charbert:1", length=120)
    made = texts.aligned((TEXT, "noisy"), (3,))
    found = sides(made, texts.tokenizer)
    assert [clean for clean, _ in found] == [
        "the",
        "birds",
        "sang",
        "in",
        "the",
        "old",
        "trees",
        ",",
        "unbelievably",
        "loud",
    ]
    assert [clean != noisy for clean, noisy in found].count(True) > 3
    assert all(noisy for _, noisy in found)


@pytest.mark.parametrize("backbone", ["bert", "roberta"])
@pytest.mark.parametrize("mode", ["gated", "hybrid", "full"])
def test_clean_text_is_read_as_always(backbone, mode):
    texts = maker(backbone=backbone, mode=mode)
    made, item = texts.aligned((TEXT, "clean"), (0,)), texts.tokenizer.encode(TEXT)
    assert made.clean_T.tolist() == list(item.ids)
    assert (made.clean_group_T >= 0).tolist() == [start < end for start, end in item.offsets]
    if mode == "gated":
        assert np.where(made.ids_T < -1, -2 - made.ids_T, made.ids_T).tolist() == list(item.ids)
        assert made.group_L.tolist() == made.clean_group_T.tolist()
        assert (made.rows_TC[:, 0] != 0).tolist() == (made.ids_T < -1).tolist()
    else:
        assert ((made.ids_T == -1) == (made.rows_TC[:, 0] != 0)).all()
        assert {*made.group_L.tolist()} == {*made.clean_group_T.tolist()}


def test_kind_rate_and_share_are_drawn_for_each_text():
    noise = TextNoise((Noise.parse("drop:0.5"), Noise.parse("insert:0.5")), 0.6, 0)
    long = "letters " * 40
    found = [noise.draw(long, (number,), "drawn") for number in range(300)]
    noisy = [one for one in found if one is not None]
    assert 150 < len(noisy) < 210
    changes = np.array([len(one.text) - len(long) for one in noisy])
    assert 60 < (changes < 0).sum() < len(noisy) - 60
    assert np.abs(changes).min() < 20 < 110 < np.abs(changes).max()
    again = [noise.draw(long, (number,), "drawn") for number in range(300)]
    assert [one and one.text for one in again] == [one and one.text for one in found]
    assert noise.draw(long, (0,), "clean") is None
    assert all(noise.draw(long, (number,), "noisy") for number in range(20))
    assert dataclasses.replace(noise, seed=1).draw(long, (0,), "noisy").text != noise.draw(long, (0,), "noisy").text


def test_parts_are_sentences_and_held_out_ones_come_twice():
    record = TextRecord.of([3, 2], ["It", "is", ".", "Yes", "!"], [True, True, False, True, False])
    assert list(maker().parts(record, 0)) == [("It is.", "drawn"), ("Yes!", "drawn")]
    assert list(maker(both=True).parts(record, 0))[:2] == [("It is.", "clean"), ("It is.", "noisy")]
    long = TextRecord.of([50], ["a"] * 50, [True] * 50)
    assert [len(text.split()) for text, _ in maker(length=24).parts(long, 0)] == [12, 12, 12, 12, 2]
    assert maker().filled(None, ("a", "drawn"))
    assert maker().filled(True, ("a", "drawn")) is None


def test_a_state_is_restored_to_the_same_texts():
    texts = maker()
    returned = [texts.aligned((TEXT, "drawn"), (4, 2)), *texts.halves(texts.aligned((TEXT, "noisy"), (5,)))]
    state = json.loads(json.dumps(texts.held([("a b", "drawn")], returned)))
    parts, again = texts.restored(state)
    assert list(parts) == [("a b", "drawn")]
    for one, other in zip(returned, again, strict=True):
        for value, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(value, same)
    assert returned[1].part[0] + " " + returned[2].part[0] == TEXT
    with pytest.raises(ValueError, match=r"alignment\.bucket_rows leave no room for a single character"):
        texts.halves(texts.aligned(("a", "drawn"), (0,)))
