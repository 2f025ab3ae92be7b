"""Tests what the words around a place say: the sums over them, the files, and how a speller uses them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import save_file

from charlm.text.speller import Lexicon, Speller, SpellerSettings
from charlm.text.speller.context import (
    FILE,
    LARGEST_FIT,
    PLACES,
    REACH,
    Context,
    ContextWeights,
    place_of,
    read_context,
    write_context,
)

WORDS = ("the", "cat", "car", "sat", "drove", "from", "form", "service")
D, H = len(WORDS), 3
ROWS = dict(zip(WORDS, np.eye(D, dtype=np.float32), strict=True))
RNG = np.random.default_rng(0)
RANDOM = ContextWeights(
    *(RNG.normal(size=shape).astype(np.float32) for shape in [(PLACES, D, H), (PLACES, H), (D, H), (H,)])
)


def test_each_word_counts_by_its_distance():
    """The sums are those of the definition, at any place of a text that is longer than the reach."""
    text = [WORDS[n] for n in RNG.integers(D, size=2 * REACH + 5)]
    text[4] = "unknown"
    mixtures = [((word, 1.0),) for word in text]
    mixtures[7] = (("cat", 0.75), ("car", 0.25))
    before_NH, behind_NH = Context(RANDOM, ROWS.get).sides(mixtures)

    def says(place, mixture):
        known = [(ROWS[word], share) for word, share in mixture if word in ROWS]
        return sum(share * (row @ RANDOM.around_GDH[place] + RANDOM.around_GH[place]) for row, share in known)

    for first, last in ((0, 0), (6, 6), (7, 8), (len(text) - 1, len(text) - 1)):
        expected = np.zeros(H)
        for distance in range(1, REACH + 1):
            if first - distance >= 0:
                expected += says(place_of(-distance), mixtures[first - distance])
            if last + distance < len(text):
                expected += says(place_of(distance), mixtures[last + distance])
        np.testing.assert_allclose(before_NH[first] + behind_NH[last + 1], expected, atol=1e-4)


def test_places_are_told_apart_by_side_and_up_to_three_words_away():
    assert [place_of(distance) for distance in (-1, 1, -2, 2, -3, 3)] == [0, 1, 2, 3, 4, 5]
    assert {place_of(distance) for distance in range(4, REACH + 1)} == {7}
    assert {place_of(-distance) for distance in range(4, REACH + 1)} == {6}


def test_a_fit_is_bounded_and_zero_for_words_without_a_row():
    around_H = np.array([100.0, 0, 0], np.float32)
    fits = Context(RANDOM, ROWS.get).fits(around_H, ("cat", "unknown", "car"))
    assert fits[1] == 0
    assert np.abs(fits[[0, 2]]) == pytest.approx(LARGEST_FIT)


def test_what_is_written_comes_back_in_half_precision(tmp_path):
    assert read_context(tmp_path) is None
    write_context(tmp_path, RANDOM)
    for name, array in read_context(tmp_path)._asdict().items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, getattr(RANDOM, name).astype(np.float16), err_msg=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word_H": None}, "expected around_GDH, around_GH, word_DH, word_H"),
        ({"word_H": np.zeros(H + 1)}, r"word_H is float16 \(4,\), expected float16 \(3,\)"),
        ({"around_GDH": np.zeros((2, D, H))}, r"around_GDH is float16 \(2, 8, 3\), expected float16 \(8, 8, 3\)"),
        ({"word_DH": np.zeros(3)}, r"word_DH is \(3,\), expected two axes"),
        ({"word_H": np.zeros(0), "word_DH": np.zeros((D, 0))}, "expected float16"),
        ({"around_GH": np.full((PLACES, H), np.inf)}, "around_GH has numbers that are not finite"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, message):
    arrays = {name: np.asarray(array, np.float16) for name, array in (RANDOM._asdict() | change).items() if name}
    save_file({name: array for name, array in arrays.items() if change.get(name, 0) is not None}, tmp_path / FILE)
    with pytest.raises(ValueError, match=FILE) as error:
        read_context(tmp_path)
    error.match(message)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_numbers_of_another_type_are_refused(tmp_path, dtype):
    save_file({name: array.astype(dtype) for name, array in RANDOM._asdict().items()}, tmp_path / FILE)
    with pytest.raises(ValueError, match=f"around_GDH is {np.dtype(dtype)} .* expected float16"):
        read_context(tmp_path)


def test_what_is_no_such_file_is_refused(tmp_path):
    (tmp_path / FILE).write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=FILE):
        read_context(tmp_path)


def context_of(pairs):
    """Returns a context in which the second word of a pair is likelier beside the first, on either side."""
    around_GDH = np.zeros((PLACES, D, D), np.float32)
    for (near, word), nats in pairs.items():
        around_GDH[:2, WORDS.index(near), WORDS.index(word)] = nats
    zeros = np.zeros((PLACES, D), np.float32)
    return Context(ContextWeights(around_GDH, zeros, np.eye(D, dtype=np.float32), zeros[0]), ROWS.get)


def first_words(text, pairs=None, **settings):
    """Returns what each changed part of a text is read as."""
    context = None if pairs is None else context_of(pairs)
    asked = dataclasses.replace(SpellerSettings(unknown=9.0, letter=1.0), **settings)
    readings = Speller(Lexicon(dict.fromkeys(WORDS, 1.0)), asked, context=context).read(text)
    return [(text[one.start : one.end], one.words[0][0]) for one in readings]


CATS = {("sat", "cat"): 4.0, ("drove", "car"): 4.0}


def test_context_decides_between_words_that_letters_do_not_tell_apart():
    assert first_words("the caf sat", CATS) == [("caf", "cat")]
    assert first_words("the caf drove", CATS) == [("caf", "car")]
    assert first_words("(caf), sat", CATS) == [("caf", "cat")]
    alone = first_words("the caf sat")
    assert alone == first_words("the caf drove")
    assert first_words("the caf sat", CATS, context=0.0) == alone


BOLD = {"context": 1.0, "other": 0.5}  # an exchange of letters costs 3.4 beside these


def test_a_known_word_is_read_as_another_only_where_context_says_so():
    pairs = {("drove", "from"): 5.0, ("sat", "form"): 5.0}
    assert first_words("drove form the", pairs, **BOLD) == [("form", "from")]
    assert first_words("(drove) (form) the", pairs, **BOLD) == [("form", "from")]
    assert first_words("sat form the", pairs, **BOLD) == []
    assert first_words("drove form the", pairs, context=1.0, other=4.0) == []
    assert first_words("drove form the", **BOLD) == []
    assert first_words("drove x-form the", pairs, **BOLD) == []  # a part of a longer word stays
    assert first_words("form", pairs, **BOLD) == []


def test_beside_misspelled_words_a_known_one_is_more_easily_another():
    pairs, asked = {("drove", "from"): 5.0}, {"context": 1.0, "other": 4.0}
    assert first_words("drove form teh caat", pairs, **asked)[0] == ("form", "from")


def test_a_word_that_stays_possible_keeps_its_share():
    asked = dataclasses.replace(SpellerSettings(), **BOLD)
    speller = Speller(Lexicon(dict.fromkeys(WORDS, 1.0)), asked, context=context_of({("drove", "from"): 5.0}))
    (reading,) = speller.read("drove form")
    shares = dict(reading.words)
    assert shares["from"] > shares["form"] > 0
    assert sum(shares.values()) == pytest.approx(1)


def test_words_cut_in_two_are_read_in_context():
    pairs, asked = {("the", "service"): 5.0}, {"space": 22.0}
    assert first_words("the ser vlce sat", pairs, **asked) == [("ser vlce", "service")]
    assert first_words("the ser vlce sat", **asked) == [("ser", "sat")]


def test_a_context_chooses_from_more_words_than_are_kept():
    assert first_words("the caf drove", CATS, kept=1) == [("caf", "car")]
    assert first_words("the caf sat", CATS, kept=1) == [("caf", "cat")]
    assert first_words("drove form the", {("drove", "from"): 5.0}, kept=1, **BOLD) == [("form", "from")]


def test_a_reading_has_at_most_as_many_words_as_are_kept():
    for kept in (1, 2, 8):
        asked = dataclasses.replace(SpellerSettings(), kept=kept, **BOLD)
        speller = Speller(Lexicon(dict.fromkeys(WORDS, 1.0)), asked, context=context_of({("drove", "from"): 5.0}))
        for reading in speller.read("drove form teh caf"):
            assert 1 <= len(reading.words) <= kept


def test_a_context_without_weight_is_not_asked():
    """Beside misspelled words, too, where a known word may be read as another."""
    text = "drove form teh caat dorve servcie"
    assert first_words(text, {("drove", "from"): 5.0}, context=0.0, other=0.0) == first_words(text)
    assert first_words(text, {("drove", "from"): 5.0}, other=0.0) != first_words(text)
