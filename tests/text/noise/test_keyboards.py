"""Tests keyboards: which letters are next to each other, in either case, and where the file comes from."""

from __future__ import annotations

import itertools
import json
import pickle
import unicodedata
from importlib import resources
from pathlib import Path

import pytest
import xkb_layouts

from charlm.text.noise import Noise, Noiser
from charlm.text.noise.keyboards import SCRIPTS, keyboard_for, languages

# The languages of multilingual BERT (cased): https://github.com/google-research/bert/blob/master/multilingual.md
MBERT = [
    *["af", "an", "ar", "ast", "az", "azb", "ba", "bar", "be", "bg", "bn", "bpy", "br", "bs", "ca", "ce", "ceb"],
    *["cs", "cv", "cy", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "fy", "ga", "gl", "gu", "he"],
    *["hi", "hr", "ht", "hu", "hy", "id", "io", "is", "it", "ja", "jv", "ka", "kk", "kn", "ky", "la", "lb", "lmo"],
    *["lt", "lv", "mg", "min", "mk", "ml", "mn", "mr", "ms", "my", "nb", "nds", "ne", "new", "nl", "nn", "oc", "pa"],
    *["pl", "pms", "pnb", "pt", "ro", "ru", "scn", "sco", "sh", "sk", "sl", "sq", "sr", "su", "sv", "sw", "ta", "te"],
    *["tg", "th", "tl", "tr", "tt", "uk", "ur", "uz", "vi", "vo", "war", "yo"],
]
OF_XKB = [path for path in (xkb_layouts.XKB, xkb_layouts.KEYSYMS, xkb_layouts.RELEASE) if path.exists()]
needs_xkb = pytest.mark.skipif(
    len(OF_XKB) < 3 or f"Version: {xkb_layouts.VERSION}\n" not in OF_XKB[2].read_text(encoding="utf-8"),
    reason=f"xkeyboard-config {xkb_layouts.VERSION} and X11's keysymdef.h are not on this machine",
)
SOURCE = (
    Path(__file__).resolve().parents[4] / "shared" / "data" / "keyboard"
)  # nlpaug/res/char/keyboard at commit 63ca3ec8c2
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
    content = json.loads(resources.files("charlm.text.noise").joinpath("keyboards.json").read_text(encoding="utf-8"))
    assert set(content["nlpaug"]["layouts"]) == {path.stem for path in SOURCE.glob("*.json")}
    for language, layout in content["nlpaug"]["layouts"].items():
        source = json.loads((SOURCE / f"{language}.json").read_text(encoding="utf-8"))
        assert layout == cleaned(language, source), language
    assert "MIT" in content["nlpaug"]["licence"]


@needs_xkb
def test_the_other_layouts_are_their_source_by_the_rules():
    content = json.loads(resources.files("charlm.text.noise").joinpath("keyboards.json").read_text(encoding="utf-8"))
    assert content["xkeyboard-config"] == xkb_layouts.content()
    assert "MIT/X11" in content["xkeyboard-config"]["licence"]


@needs_xkb
def test_both_sources_mean_the_same_by_beside():
    assert xkb_layouts.layout("us") == content_of("en")


def content_of(language):
    """Returns the lower-case letters of a keyboard with their neighbours."""
    return {letter: near for letter, near in keyboard_for(language).neighbours.items() if not letter.isupper()}


def test_all_languages_of_multilingual_bert_but_chinese_and_korean_have_one():
    assert len(MBERT) == 101  # of 104: Chinese counts twice
    assert set(languages()) == {*MBERT, "no"}


@pytest.mark.parametrize("language", languages())
def test_neighbours_are_letters_and_mutual(language):
    keyboard = keyboard_for(language)
    assert len(keyboard.neighbours) >= 25
    for letter, near in keyboard.neighbours.items():
        assert near
        assert letter not in near
        assert list(near) == sorted(set(near)) or letter.isupper()
        assert all(other.isalpha() and letter in keyboard.near(other) for other in near), letter
        assert set(near) <= set(keyboard.alphabets[letter])
    scripts = {unicodedata.name(letter).split()[0] for letter in keyboard.neighbours}
    assert len(scripts) == 1 or scripts == {"HIRAGANA", "KATAKANA"}
    assert all(unicodedata.is_normalized("NFC", letter) for letter in keyboard.neighbours)


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
        ("hi", "क", "गतदरसह"),  # च is two keys away; no vowel sign, though they are the left hand's keys
        ("hi", "ख", "घङथधऱशष"),  # with Shift
        ("hi", "इ", "अआईउऊ"),  # फ lies beside it too, but takes vowel signs
        ("hi", "ि", ""),
        ("mr", "क", "गतदरसह"),
        ("ar", "ب", "ؤثرفقلي"),
        ("fa", "گ", "جچحک"),
        ("ru", "ы", "вйсуфцчя"),
        ("el", "ς", "αδεσ"),
        ("el", "σ", "αδεζςχψ"),
        ("el", "Σ", "ΑΔΕΖΧΨ"),  # the capital of σ; ς has none
        ("de-CH", "ß", ""),  # nlpaug's
        ("bar", "ß", "pü"),
        ("bar", "P", "LOÄÖÜ"),  # ß has no capital
        ("az", "I", "LOPÖŞƏ"),
        ("az", "İ", "JKLOU"),
        ("vi", "đ", "opư"),
        ("ja", "き", "すかんはくひこみ"),
        ("ja", "キ", "スカンハクヒコミ"),
        ("uz", "ʻ", ""),
        ("ka", "ჭ", "შ"),  # with Shift; there is Latin beside it
        ("bn", "য়", ""),
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
    assert not any(auto.near(char) for char in "é中한ក්ğы1 ")


def test_a_slip_leaves_signs_where_they_can_stand():
    for language, text in (
        ("hi", "हिन्दी में क्षिका ऐई"),
        ("ta", "தமிழ் எழுத்து"),
        ("bn", "বাংলা লিপি"),
        ("my", "မြန်မာစာ ဥပမာ"),
    ):
        for seed in range(20):
            typed = Noiser(Noise("keyboard", 1.0, 1, language), seed).text(text, "key").text
            assert typed != text
            assert len(typed) == len(text)
            for place, (old, new) in enumerate(zip(text, typed, strict=True)):
                is_mark = unicodedata.category(old)[0] == "M"
                assert (old == new) if is_mark else unicodedata.category(new) == unicodedata.category(old)
                if is_mark:
                    assert takes_signs(typed[place - 1]) or not takes_signs(text[place - 1])


def takes_signs(char):
    """Whether a vowel sign may follow: what is no independent vowel, by a list of some."""
    return char not in "अआइईउऊऋएऐओऔஅஆஇஈஉஊஎஏஐஒஓஔঅআইঈউঊঋএঐওঔဣဤဥဦဧဩဪ"


def test_regions_are_ignored_and_other_languages_are_refused():
    assert keyboard_for("de-AT") is keyboard_for("DE_at") is keyboard_for("de")
    with pytest.raises(ValueError, match=r"'english': expected one of auto, de, en, .*, yo$"):
        keyboard_for("english")


def test_pickled_keyboards_are_the_same():
    assert pickle.loads(pickle.dumps(keyboard_for("de"))) is keyboard_for("de")
    assert pickle.loads(pickle.dumps(keyboard_for())) is keyboard_for("auto")
