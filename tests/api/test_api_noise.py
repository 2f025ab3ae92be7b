"""Tests typos from Python."""

from __future__ import annotations

import numpy as np
import pytest

import charlm

TEXT = "I did not see the cat that sat on the mat in the old town"


def test_noise_depends_on_the_seed_and_the_text_alone():
    noise = charlm.noise("keyboard:0.3")
    noisy = noise(TEXT)
    assert noisy != TEXT
    assert charlm.noise("keyboard:0.3", seed=0)(TEXT) == noisy
    assert noise(["another text", TEXT, TEXT])[1:] == [noisy, noisy]
    assert charlm.noise("keyboard:0.3", seed=1)(TEXT) != noisy
    assert charlm.noise("keyboard:0")(TEXT) == TEXT
    assert repr(noise) == "charlm.noise('keyboard:0.3', seed=0)"
    assert noise(iter([])) == []


def test_misspellings_are_those_of_a_file(tmp_path):
    (tmp_path / "words.txt").write_text("cat kat\n", encoding="utf-8")
    assert "kat" in charlm.noise("misspelling:1", misspellings=str(tmp_path / "words.txt"))(TEXT)


@pytest.mark.parametrize(
    ("spec", "message"), [("keybord", "did you mean keyboard"), ("keyboard:2", "rate"), ("misspelling", "needs a file")]
)
def test_mistakes(spec, message):
    with pytest.raises(ValueError, match=message):
        charlm.noise(spec)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"text": "a"}, "got dict"),
        (["a", None], "text 1: expected a text, got NoneType"),
        (b"a", "got bytes"),
        (3, "got int"),
        (np.array("a"), "got ndarray: iteration over a 0-d array"),
        (np.array([1, 2]), "text 0: expected a text, got int64"),
    ],
)
def test_what_is_no_text_gets_no_noise(texts, says):
    with pytest.raises(ValueError, match=says):
        charlm.noise("keyboard:1")(texts)


def test_a_seed_is_a_number():
    with pytest.raises(ValueError, match="seed='x': expected a whole number"):
        charlm.noise("keyboard:1", seed="x")
