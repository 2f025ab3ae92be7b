"""Tests the misspellings that spellers learn from: lists are parted by the word, and every draw is repeatable."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.text.noise.mixture import Misspeller, Mixture, is_held_out, parted

WORDS = [f"{a}{b}{c}ing" for a in "bdfglmst" for b in "aeiou" for c in "krnt"]
NOISE = ("charbert:1:3", "repeat:0.5")


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "list.txt"
    path.write_text("".join(f"{word} {word}x {word}y\n" for word in WORDS))
    return str(path)


def test_each_word_is_in_one_part(listed):
    train, held = (parted([listed], 0.25, held_out=which) for which in (False, True))
    assert sorted([*train.words(), *held.words()]) == sorted(WORDS)
    assert all(is_held_out(word, 0.25) for word in held.words())
    assert 0.15 < len(held) / len(WORDS) < 0.35
    fewer = parted([listed], 0.1, held_out=True)
    assert set(fewer.words()) < set(held.words()), "a smaller share lies within a larger one"


def test_case_does_not_part_a_word():
    assert [is_held_out(word.upper(), 0.3) for word in WORDS] == [is_held_out(word, 0.3) for word in WORDS]


def test_lists_decide_where_they_have_the_word(listed):
    always = Misspeller(Mixture(NOISE, listed=0.9999), parted([listed], 0.0, held_out=False))
    found = always.words(WORDS, np.random.default_rng(0))
    assert all(new in (f"{word}x", f"{word}y") for word, new in zip(WORDS, found, strict=True))
    assert always.words(["ZEBRA"], np.random.default_rng(0)) != ["ZEBRAx"]


def test_draws_are_repeatable_and_change_most_words():
    misspeller = Misspeller(Mixture(NOISE))
    first, again = (misspeller.words(WORDS, np.random.default_rng(3)) for _ in range(2))
    assert first == again
    assert sum(old != new for old, new in zip(WORDS, first, strict=True)) > 0.8 * len(WORDS)
    assert misspeller.words([], np.random.default_rng(3)) == []


@pytest.mark.parametrize(
    ("noise", "why"), [((), "is empty"), (("hlm",), "join or cut"), (("misspelling",), "spelling.lists")]
)
def test_noise_of_no_use_is_refused(noise, why):
    with pytest.raises(ValueError, match=why):
        Misspeller(Mixture(noise))
