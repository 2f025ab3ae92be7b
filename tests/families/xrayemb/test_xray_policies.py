"""Tests which words XRayEmb's policies select, by hand, and what they refuse; test_xray_words has the goldens."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.families.xrayemb.policies import (
    POLICIES,
    NoSuffix,
    Stochastic,
    get_policy,
    is_random,
    no_words,
    runs_of_tokens,
    select,
    text_rng,
)

TOKENS = ["he", "run", "##s", "sport", "##ive", "##ly", "walk", "##ed", "hover", "##craft"]


def words_of(tokens):
    """Returns the words of tokens that mark continuations."""
    return runs_of_tokens(tokens, [token.startswith("[") for token in tokens])


def chosen(spec, words=None):
    words = words or words_of(TOKENS)
    selected = select(get_policy(spec), words, None)
    return ["".join(words.chars[a:b]) for a, b in zip(words.starts_W[selected], words.ends_W[selected], strict=True)]


def test_what_each_policy_selects():
    every = ["he", "runs", "sportively", "walked", "hovercraft"]
    assert chosen("none") == []
    assert chosen("all") == every
    assert chosen("all_multi") == every[1:]
    assert chosen("all_single") == every[:1]
    assert chosen("no_suffix") == ["sportively", "hovercraft"]
    assert chosen("no_suffix_compat") == every[1:]  # "##s" is no "s"
    assert chosen(NoSuffix()) == chosen("no_suffix")
    assert chosen(lambda words, rng: np.char.str_len([words.chars[s] for s in words.starts_W]) == 5) == [
        "sportively",
        "hovercraft",
    ]


# Section 2 of the paper, one by one.
ENDINGS = ["s", "ed", "es", "ing", "ly", "al", "ally", "'m", "'re", "'ve", "y", "ive", "er", "'t", "'ll", "an", "ers"]


def test_seventeen_endings_are_easy():
    assert len(set(ENDINGS)) == 17
    for ending in ENDINGS:
        assert chosen("no_suffix", words_of(["walk", f"##{ending}"])) == []
        assert chosen("no_suffix", words_of(["hover", "##craft", f"##{ending}"])) == [f"hovercraft{ending}"]
        assert chosen("no_suffix", runs_of_tokens(["Ġwalk", ending], [False] * 2, True)) == []
    for other in ("est", "ness", "S", "e", "'d", "ings"):
        assert chosen("no_suffix", words_of(["walk", f"##{other}"])) == [f"walk{other}"]


def test_special_pieces_end_words_and_are_in_none():
    words = words_of(["[CLS]", "a", "##b", "[UNK]", "##c", "##d", "[SEP]", "[PAD]"])
    assert (words.starts_W.tolist(), words.ends_W.tolist()) == ([1, 4], [3, 6])
    tokens = ["Ġa", "b", "<s>", "c", "Ġ", "Ġ", "d"]
    words = runs_of_tokens(tokens, [token == "<s>" for token in tokens], True)
    assert (words.starts_W.tolist(), words.ends_W.tolist()) == ([0, 3, 5], [2, 4, 7])  # a space alone is no word
    assert words.chars == ["a", "b", "<s>", "c", "", "", "d"]
    assert len(words_of([])) == len(words_of(["[CLS]", "[SEP]"])) == 0


def test_draws_are_of_words_and_the_same_again():
    words = words_of(["a", "b", "##c"] * 4000)
    rng = lambda: text_rng((1, 2), "text")
    selected = select(Stochastic(0.3), words, rng())
    assert abs(selected.mean() - 0.3) < 0.02
    np.testing.assert_array_equal(selected, select(get_policy("stochastic:0.3"), words, rng()))
    assert (selected != select(Stochastic(0.3), words, text_rng((1, 3), "text"))).any()
    assert (selected != select(Stochastic(0.3), words, text_rng((1, 2), "tex"))).any()
    assert text_rng((1,), "a", "b").random() != text_rng((1,), "a\0b", "").random()
    assert text_rng((1,), "a", "bc").random() != text_rng((1,), "ab", "c").random() != text_rng((1,), "abc").random()
    for p, share in ((0, 0), (1, 1)):
        assert select(Stochastic(p), words, rng()).mean() == share
    assert [name for name in POLICIES if is_random(POLICIES[name])] == []
    assert is_random(Stochastic(0.1))


def test_no_policy_is_said_in_a_line():
    for spec, message in (
        ("all_mutli", "policy 'all_mutli' is not one of none, all, .*; did you mean all_multi"),
        ("stochastic", "policy 'stochastic': expected a probability"),
        ("stochastic:2", "policy 'stochastic:2': expected a probability"),
        ("stochastic:nan", "expected a probability"),
    ):
        with pytest.raises(ValueError, match=message):
            get_policy(spec)
    words = words_of(TOKENS)
    with pytest.raises(ValueError, match=r"Stochastic\(p=0.1\) draws words: expected a random generator"):
        select(Stochastic(), words, None)
    for wrong in (lambda words, rng: np.ones(2, bool), lambda words, rng: [0, 1, 0, 0, 0]):
        with pytest.raises(ValueError, match=r"expected bool \[5\], one for each word"):
            select(wrong, words, None)
    assert get_policy(no_words) is no_words
