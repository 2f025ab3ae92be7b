"""Tests what texts are read as: typing errors, spaces, leet; and what stays as it is."""

from __future__ import annotations

import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charlm.text.noise import Noise, Noiser
from charlm.text.noise.edits import NoisedText
from charlm.text.speller import Lexicon, Speller, SpellerSettings

SENTENCE = "the old service will launch as a subscription for people who want to read before 1990s b2b"
COUNTS = {word: 1000 / rank for rank, word in enumerate(SENTENCE.split(), 2)} | {"then": 10, "forest": 1}


@pytest.fixture(scope="module")
def speller():
    return Speller(Lexicon(COUNTS), SpellerSettings(unknown=9.0, letter=1.0))


def likeliest(speller, text):
    """Returns the text with the likeliest words."""
    return NoisedText.of(text, [edit for reading in speller.read(text) for edit in reading.edits(text)]).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("teh old servcie", "the old service"),
        ("(Teh) old, servcie!", "(the) old, service!"),
        ("a subscirption for poeple", "a subscription for people"),
        ("peoplewho want to read", "people who want to read"),
        ("who wa nt to read", "who want to read"),
        ("serv ice, then", "service, then"),
        ("a $ub5cr!pt1on", "a subscription"),
        ("s3rv1ce!", "service!"),
        ("s3rvic3", "service"),
        ("who  want\tto\nraed", "who  want\tto\nread"),
        ("s3rvice,for-$ubscription", "service,for-subscription"),
        ("wantForest", "want Forest"),
        ("people dont raed", "people don't read"),
    ],
)
def test_misspelled_words_are_read_as_known_ones(speller, text, expected):
    assert likeliest(speller, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        SENTENCE,
        SENTENCE.upper(),
        "1990s b2b 42 3.14 ...",
        "Zaporizhzhia",
        "日本語 привет",
        "\ud800",
        "x",
        "@$!",
    ],
)
def test_other_text_stays(speller, text):
    assert speller.read(text) == []


def test_several_words_stay_possible_and_their_probabilities_follow_frequency_and_edits(speller):
    (reading,) = speller.read("thn")
    found = dict(reading.words)
    assert next(iter(found)) == "the"
    assert found["the"] > found["then"] > 0
    assert sum(found.values()) == pytest.approx(1)
    rarer = Speller(Lexicon({**COUNTS, "the": 1}), speller.settings)
    assert rarer.read("thn")[0].words[0][0] == "then"


def test_the_number_of_words_is_limited(speller):
    one = Speller(speller.lexicon, dataclasses.replace(speller.settings, kept=1))
    assert one.read("thn")[0].words == (("the", 1.0),)


def test_the_dearer_unknown_words_are_the_more_of_them_are_corrected(speller):
    dear = Speller(speller.lexicon, dataclasses.replace(speller.settings, unknown=60.0))
    assert speller.read("orbst") == []
    assert dear.read("orbst")[0].words[0][0] in COUNTS


def test_known_words_are_not_run_together(speller):
    assert speller.read("want to read for old") == []
    known = Speller(Lexicon({**COUNTS, "oldservice": 1, "away": 900, "way": 1}), speller.settings)
    assert known.read("old service a way") == []
    assert likeliest(Speller(Lexicon({**COUNTS, "na": 1, "me": 5, "name": 50}), speller.settings), "na me") == "name"


def test_names_are_dearer_to_change(speller):
    settings = dataclasses.replace(speller.settings, capital=9.0)
    cautious = Speller(Lexicon(COUNTS), settings)
    assert cautious.read("rhead")
    assert cautious.read("to Rhead") == []
    assert cautious.read("Rhead")  # the capital is that of a sentence
    assert cautious.read("to. Rhead")


def test_known_words_with_common_endings_stay():
    stems = ["read", "launch", "want", "people", "service", "old", "will", "then", "forest", "before"]
    counts = dict.fromkeys([*stems, *(f"{stem}s" for stem in stems), "walk", "wall", "walls"], 50.0)
    assert Speller(Lexicon(counts)).read("walks") == []
    assert Speller(Lexicon({word: n for word, n in counts.items() if word[-1] != "s" or word == "walls"})).read("walks")


def test_long_texts_take_little_time(speller):
    start = time.process_time()
    assert len(speller.read("teh raed " * 20_000)) == 40_000
    assert speller.read("x" * 100_000) == speller.read("k1" * 50_000) == []
    assert time.process_time() - start < 20


def test_words_are_compared_in_their_normal_form():
    speller = Speller(Lexicon(COUNTS), normalized=lambda text: text.lower().replace("é", "e"))
    assert speller.read("Sérvice") == []
    assert likeliest(speller, "Sérvcie") == "service"


@pytest.mark.parametrize("kind", ["charbert", "keyboard", "swap", "drop", "insert", "leet", "spaces"])
def test_most_noise_is_taken_back(speller, kind):
    before = after = 0
    for key in range(40):
        noised = Noiser(Noise(kind, 0.1 if kind != "charbert" else 0.5), 0).text(SENTENCE, key).text
        before += noised == SENTENCE
        after += likeliest(speller, noised) == SENTENCE
    assert after >= before + (5 if kind == "drop" else 10)  # a short word without a letter may be many


@given(st.text("teh rsvic3$!.,'-é\ud800日\u0301 ", max_size=40))
def test_readings_are_ascending_parts_of_any_text(text):
    speller = Speller(Lexicon(COUNTS))
    place = 0
    for reading in speller.read(text):
        assert place <= reading.start < reading.end <= len(text)
        assert reading.words
        assert sum(share for _, share in reading.words) == pytest.approx(1)
        place = reading.end


def test_numbers_beside_words_say_nothing_about_a_writer(speller):
    settings = dataclasses.replace(speller.settings, usual=1.0, misspelled=0.9)
    assert [one.words[0][0] for one in Speller(speller.lexicon, settings).read("teh 12 servcie 3.14")] == [
        "the",
        "service",
    ]


def test_readings_do_not_depend_on_what_was_read_before(speller):
    texts = ["teh old servcie fprest", "the fprest", "poeple who fprest", "fprest"]
    alone = [Speller(speller.lexicon, speller.settings).read(text) for text in texts]
    together = Speller(speller.lexicon, speller.settings)
    assert [together.read(text) for text in [*reversed(texts), *texts]] == [*reversed(alone), *alone]


@pytest.mark.parametrize("change", [{"writer": float("nan")}, {"careless": float("inf")}, {"prior": -1.0}])
def test_settings_that_are_no_numbers_are_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))}=.*: expected a number of 0 to"):
        SpellerSettings(**change)


def test_beside_misspelled_words_an_unknown_one_is_more_likely_misspelled(speller):
    cautious = Speller(speller.lexicon, dataclasses.replace(speller.settings, unknown=3.0))
    alone, beside = cautious.read("the fprest"), cautious.read("teh servcie fprest")
    assert not alone
    assert [one.words[0][0] for one in beside] == ["the", "service", "forest"]
    by_itself = Speller(speller.lexicon, dataclasses.replace(cautious.settings, writer=0.0))
    assert len(by_itself.read("teh servcie fprest")) == 2
