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
from charlm.families.aligned import TextMaker, TextNoise, kept, paired, words_of
from charlm.families.aligned_batches import Reading
from charlm.families.char2subword.tensors import bert_config
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.bert import Bert
from charlm.text.noise import Noise
from charlm.text.words import get_splitter

TEXT = "the birds sang in the old trees, unbelievably loud"
LENGTH = 40


@functools.cache
def models(backbone, mode):
    """Returns a tiny model, and its backbone alone."""
    model = from_pretrained(spelled(backbone, mode=mode))
    config = bert_config(model.config)
    return model, dataclasses.replace(model, model=Bert(config), config=config, family=backbone)


def reading(mode="gated", backbone="bert", length=LENGTH):
    student, teacher = models(backbone, mode)
    return Reading(units_of(student), units_of(teacher), get_splitter("rules", "en"), length)


def maker(*specs, length=LENGTH, both=False):
    noise = TextNoise(tuple(map(Noise.parse, specs or ("keyboard:0.3",))), 1.0, 0)
    return TextMaker(noise, length, both)


def noisy(number, spec):
    """Returns the text with noise."""
    made = maker(spec, length=120).make([(TEXT, "noisy")], (number,))
    assert made.noised
    return made


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


def sides(made, mode="gated", backbone="bert"):
    """Returns for each group the pieces that the teacher reads, and those of the student, as text without marks."""
    tokenizer, read = models(backbone, mode)[0].tokenizer(), reading(mode, backbone, length=120)
    own, theirs = read.read(made)
    codes_L = own.row.content[:, 0]
    ids = [(-2 - i if i < -1 else i) for i in read.student.spellings.ids(codes_L).tolist()]
    text = lambda found: "".join(tokenizer.token(int(i)).removeprefix("##") for i in found)
    return [
        (text(theirs.row.content[theirs.group_L == g, 0]), text(np.array(ids)[own.group_L == g]))
        for g in range(int(theirs.group_L.max()) + 1)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_groups_hold_the_same_characters_when_noise_joins_and_cuts_words(number):
    for clean, read in sides(noisy(number, "spaces:1")):
        assert clean == read != ""


def test_groups_are_words_when_noise_keeps_their_number():
    found = sides(noisy(3, "charbert:1"))
    words = ["the", "birds", "sang", "in", "the", "old", "trees", ",", "unbelievably", "loud"]
    assert [clean for clean, _ in found] == words
    assert [clean != read for clean, read in found].count(True) > 3
    assert all(read for _, read in found)


@pytest.mark.parametrize("backbone", ["bert", "roberta"])
@pytest.mark.parametrize("mode", ["gated", "hybrid", "full"])
def test_clean_text_is_read_as_always(backbone, mode):
    read, item = reading(mode, backbone), models(backbone, mode)[0].tokenizer().encode(TEXT)
    own, theirs = read.read(maker().make([(TEXT, "clean")], (0,)))
    assert theirs.row.content[:, 0].tolist() == list(item.ids)
    assert (theirs.group_L >= 0).tolist() == [start < end for start, end in item.offsets]
    codes_L, spellings = own.row.content[:, 0], read.student.spellings
    ids_L, spelled_L = spellings.ids(codes_L), spellings.rows(codes_L)[:, 0] != 0
    if mode == "gated":
        assert np.where(ids_L < -1, -2 - ids_L, ids_L).tolist() == list(item.ids)
        assert own.group_L.tolist() == theirs.group_L.tolist()
        assert spelled_L.tolist() == (ids_L < -1).tolist()
    else:
        assert ((ids_L == -1) == spelled_L).all()
        assert {*own.group_L.tolist()} == {*theirs.group_L.tolist()}


def test_a_mark_of_a_space_belongs_to_the_word_behind_it():
    spans, word_of = words_of([(0, 2), (2, 3), (3, 5), (5, 6)], [(0, 2), (3, 6)])
    assert spans == [(0, 2), (2, 6)]
    assert word_of.tolist() == [0, 1, 1, 1]
    assert words_of([], [(0, 1)])[0] == []


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
    made = [texts.make([(TEXT, wanted)], number) for wanted, number in (("drawn", (4, 2)), ("noisy", (5,)))]
    returned = [made[0], *texts.halves(made[1])]
    state = json.loads(json.dumps(texts.held([("a b", "drawn")], returned)))
    parts, again = texts.restored(state)
    assert list(parts) == [("a b", "drawn")]
    assert list(again) == returned
    assert returned[1].part[0] + " " + returned[2].part[0] == TEXT
    with pytest.raises(ValueError, match="the tables of a batch leave no room for the text 'a'"):
        texts.halves(texts.make([("a", "drawn")], (0,)))
