"""Tests what misspells entries of the vocabulary: the paper's typo, or several kinds of noise."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.config import get_config, validate
from charlm.families.char2subword.objective import _typos
from charlm.families.char2subword.spelling_noise import LONGER, ManyTypos, OneTypo
from charlm.text.noise import Noise

WORD = "unbelievable"


def many(*kinds, share=1.0):
    return ManyTypos(tuple(map(Noise.parse, kinds)), share, seed=0)


def drawn(typos, count=400, word=WORD):
    rng = np.random.default_rng(0)
    return [typos.word(word, rng) for _ in range(count)]


def test_every_kind_is_drawn_at_rates_up_to_its_own():
    found = drawn(many("drop:0.5", "leet:1"))
    shorter = [word for word in found if len(word) < len(WORD)]
    other = [word for word in found if word != WORD and len(word) == len(WORD)]
    assert len(shorter) > 100
    assert len(other) > 100
    assert all(not set(word) <= set(WORD) for word in other), "leet puts other characters in"
    assert len({len(word) for word in shorter}) > 3, "rates differ"


def test_a_share_of_the_words_gets_noise():
    changed = sum(word != WORD for word in drawn(many("charbert:1", "keyboard:1", share=0.3), 2000))
    assert 0.2 < changed / 2000 < 0.3  # low rates leave some as they are


def test_nothing_is_cut_and_nothing_vanishes():
    found = drawn(many("spaces:1", "drop:1"), word="ab")
    assert all(word and not set(word) & set(" \t\n") for word in found)


def test_the_same_draws_make_the_same_words():
    assert drawn(many("insert:1", "swap:0.5")) == drawn(many("insert:1", "swap:0.5"))


def config_of(**changes):
    config = get_config("char2subword")
    config.init_from = "any"
    config.data.update(changes)
    return config


def test_the_config_says_which():
    assert _typos(config_of(noise_rate=0.0)) is None
    one = _typos(config_of())
    assert isinstance(one, OneTypo)
    assert (one.longer("four"), one.longer("fiver")) == (0, 1)
    several = _typos(config_of(spelling_noise=("keyboard:0.2", "drop:0.3"), noise_rate=0.7, keyboard="de"))
    assert isinstance(several, ManyTypos)
    assert [(noise.kind, noise.rate, noise.language) for noise in several.kinds] == [
        ("keyboard", 0.2, "de"), ("drop", 0.3, "de"),
    ]  # fmt: skip
    assert (several.share, several.longer("a")) == (0.7, LONGER)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spelling_noise": ("keybord:0.2",)}, "data.spelling_noise: .*keybord"),
        ({"spelling_noise": ("misspelling:0.2",)}, "data.spelling_noise: misspelling needs a list, which spellings do"),
        (
            {"spelling_noise": ("drop:0.2",), "noise_rate": 0.0},
            "data.spelling_noise is of no use with data.noise_rate",
        ),
    ],
)
def test_mistakes_are_one_line(changes, message):
    with pytest.raises(ValueError, match=message):
        validate(config_of(**changes))
