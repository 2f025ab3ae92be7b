"""Tests what typing errors cost, against the definition: the cheapest sequence of edits."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charlm.text.noise.keyboards import keyboard_for
from charlm.text.speller.channel import Costs, typing_costs

KEYBOARD, COSTS = keyboard_for("en"), Costs()
LETTERS = "abqw"  # a, q and w are neighbours of each other, b of none of them


def codes(words):
    found = np.zeros((len(words), max(map(len, words))), np.int32)
    for row, word in zip(found, words, strict=True):
        row[: len(word)] = [ord(char) for char in word]
    return found


def near(one, other):
    return other in KEYBOARD.near(one)


def by_definition(typed, word):
    """Returns the least cost by recursion over the last edit."""

    def inserted(t):
        if t and typed[t] == typed[t - 1]:
            return COSTS.repeat
        beside = [typed[n] for n in (t - 1, t + 1) if 0 <= n < len(typed)]
        usual = COSTS.near_insert if any(near(typed[t], one) for one in beside) else COSTS.insert
        return usual + COSTS.first * (t == 0)

    def dropped(c):
        return (COSTS.repeat if c and word[c] == word[c - 1] else COSTS.drop) + COSTS.first * (c == 0)

    @functools.cache
    def least(t, c):
        ways = []
        if t == c == 0:
            return 0.0
        if t:
            ways.append(least(t - 1, c) + inserted(t - 1))
        if c:
            ways.append(least(t, c - 1) + dropped(c - 1))
        if t and c:
            one, other = typed[t - 1], word[c - 1]
            other_letter = COSTS.near if near(one, other) else COSTS.other
            ways.append(least(t - 1, c - 1) + (0.0 if one == other else other_letter + COSTS.first * (c == 1)))
        if t > 1 and c > 1 and typed[t - 1] == word[c - 2] != word[c - 1] == typed[t - 2]:
            ways.append(least(t - 2, c - 2) + COSTS.swap + COSTS.first * (c == 2))
        return min(ways)

    return least(len(typed), len(word))


@given(st.text(LETTERS, min_size=1, max_size=5), st.lists(st.text(LETTERS, min_size=1, max_size=5), min_size=1))
def test_costs_are_those_of_the_cheapest_edits(typed, words):
    found = typing_costs(typed, codes(words), KEYBOARD, COSTS)
    np.testing.assert_allclose(found, [by_definition(typed, word) for word in words], rtol=1e-12)


@pytest.mark.parametrize(
    ("typed", "word", "cost"),
    [
        ("that", "that", 0.0),
        ("taht", "that", COSTS.swap),
        ("htat", "that", COSTS.swap + COSTS.first),
        ("tat", "that", COSTS.drop),
        ("thatt", "that", COSTS.repeat),
        ("ballon", "balloon", COSTS.repeat),
        ("thst", "that", COSTS.near),
        ("thlt", "that", COSTS.other),
        ("thpat", "that", COSTS.insert),
        ("thjat", "that", COSTS.near_insert),  # j lies beside h
    ],
)
def test_each_kind_of_slip_has_its_cost(typed, word, cost):
    assert typing_costs(typed, codes([word]), KEYBOARD, COSTS)[0] == pytest.approx(cost)


def test_other_words_beside_it_change_no_cost():
    alone = typing_costs("recieve", codes(["receive"]), KEYBOARD, COSTS)
    beside = typing_costs("recieve", codes(["incomprehensibilities", "receive", "a"]), KEYBOARD, COSTS)
    assert [beside[1], alone[0]] == pytest.approx([COSTS.swap] * 2)
