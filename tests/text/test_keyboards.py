"""Keyboards: what lies beside what, in either case, and where the file comes from."""

from __future__ import annotations

import itertools
import json
import pickle
from importlib import resources
from pathlib import Path

import pytest

from charlm.text.keyboards import SCRIPTS, keyboard_for, languages

SOURCE = Path("/work/shared/data/keyboard")  # nlpaug/res/char/keyboard at commit 63ca3ec8c2
WITH_SHIFT = {"it": "ç", "pl": "ćńś"}


def cleaned(language, source):
    """Returns a layout of the source as the docstring of keyboards.py says."""
    pairs = set()
    for key, near in source.items():
        for other in near:
            pair = key.lower(), other.lower()
            slip = pair[0] == pair[1] or any(len(char) != 1 for char in pair)
            if not slip and all(char.isalpha() and char not in WITH_SHIFT.get(language, "") for char in pair):
                pairs |= {pair, pair[::-1]}
    return {key: "".join(sorted(other for one, other in pairs if one == key)) for key in {one for one, _ in pairs}}


@pytest.mark.skipif(not SOURCE.is_dir(), reason="the keyboards of nlpaug are not on this machine")
def test_the_file_is_the_source_cleaned():
    content = json.loads(resources.files("charlm.text").joinpath("keyboards.json").read_text(encoding="utf-8"))
    assert set(content["layouts"]) == {path.stem for path in SOURCE.glob("*.json")}
    for language, layout in content["layouts"].items():
        source = json.loads((SOURCE / f"{language}.json").read_text(encoding="utf-8"))
        assert layout == cleaned(language, source), language
    assert "MIT" in content["licence"]


@pytest.mark.parametrize("language", languages())
def test_neighbours_are_letters_and_mutual(language):
    keyboard = keyboard_for(language)
    assert len(keyboard.neighbours) >= 26
    for letter, near in keyboard.neighbours.items():
        assert near
        assert letter not in near
        assert list(near) == sorted(set(near)) or letter.isupper()
        assert all(other.isalpha() and letter in keyboard.near(other) for other in near), letter
        assert set(near) < set(keyboard.alphabets[letter])


@pytest.mark.parametrize(
    ("language", "letter", "near"),
    [
        ("en", "q", "asw"),
        ("en", "u", "hijky"),  # the source has " t" here, and no y
        ("en", "A", "QSWXZ"),  # ... and a beside itself
        ("de", "z", "ghjtu"),
        ("de", "ö", "l"),  # a key at the edge, in the source a neighbour only
        ("de", "Ö", "L"),
        ("fr", "a", "qszé"),
        ("tr", "i", "püğş"),
        ("tr", "I", "JKLOU"),  # the capital of ı
        ("tr", "İ", "PÜĞŞ"),
        ("uk", "Б", "ДЛОЬ"),
        ("he", "ש", "דזס"),
        ("th", "ก", "ดปผพหำแไ"),
        ("it", "l", "ikopò"),  # ç needs Shift there
        ("en", "1", ""),
        ("en", ",", ""),
        ("en", "é", ""),
        ("en", "ш", ""),
    ],
)
def test_neighbours_of_a_letter(language, letter, near):
    assert sorted(keyboard_for(language).near(letter)) == sorted(near)


@pytest.mark.parametrize("language", [*languages(), "auto"])
def test_case_is_carried_over(language):
    keyboard = keyboard_for(language)
    for letter, near in keyboard.neighbours.items():
        alike = str.isupper if letter.isupper() else lambda char: not char.isupper()
        assert all(map(alike, near)), letter
        assert all(map(alike, keyboard.alphabets[letter])), letter


def test_auto_goes_by_script():
    auto = keyboard_for("auto")
    for language in SCRIPTS.values():
        for letter, near in keyboard_for(language).neighbours.items():
            assert auto.near(letter) == near
            assert auto.alphabets[letter] == keyboard_for(language).alphabets[letter]
    letters = [set(keyboard_for(language).neighbours) for language in SCRIPTS.values()]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(letters, 2))
    assert not any(auto.near(char) for char in "é中नğα1 ")


def test_regions_are_ignored_and_other_languages_are_refused():
    assert keyboard_for("de-AT") is keyboard_for("DE_at") is keyboard_for("de")
    with pytest.raises(ValueError, match=r"'english': expected one of auto, de, en, .*, uk$"):
        keyboard_for("english")


def test_pickled_keyboards_are_the_same():
    assert pickle.loads(pickle.dumps(keyboard_for("de"))) is keyboard_for("de")
    assert pickle.loads(pickle.dumps(keyboard_for())) is keyboard_for("auto")
