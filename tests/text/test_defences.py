"""Tests defences: what they take back, what they leave alone, and that spans and words follow the text."""

from __future__ import annotations

import importlib.util
import re
import shutil
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.text.defences import Hunspell, Normal, defence_of, parsed
from charlm.text.noise import Noise, NoisedText, Noiser

TEXT = "The quick brown fox jumps over the lazy dog, 24 times; what a fox!"


@pytest.mark.parametrize("kind", ["homoglyph", "zero_width", "fullwidth", "styled"])
def test_normalising_takes_back_what_only_looks_alike(kind):
    for key in range(5):
        noised = Noiser(Noise(kind, 0.5), 0).text(TEXT, key)
        assert noised.text != TEXT
        assert Normal().text(noised.text, key).text == TEXT
        words = Noiser(Noise(kind, 0.5), 0).words(TEXT.split(), key).words
        assert list(Normal().words(words, key).words) == TEXT.split()


def test_controls_go_and_the_letters_that_they_exchanged_stay():
    noised = Noiser(Noise("bidi", 1.0), 0).text("over", 0).text
    assert len(noised) == 12
    corrected = Normal().text(noised, 0).text
    assert corrected != "over"
    assert sorted(corrected) == sorted("over")


@pytest.mark.parametrize(
    "text",
    ["Привет, а это сор", "می\u200cخواهم", "क्\u200dष", "👩\u200d💻", "日本語", "Ünal é straße", "", "\u0301"],
)
def test_other_scripts_stay(text):
    assert Normal().text(text, 0).text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p\u0430ypal", "paypal"),
        ("\u0441\u043e\u0440 car", "cop car"),  # all its letters look Latin, and so is the rest
        ("\u0441\u043e\u0440 привет", "\u0441\u043e\u0440 привет"),
        ("ﬁn ½ Ⅷ", "fin 1⁄2 VIII"),
        ("a\u200db", "ab"),
        ("x\u00ady\u2060z", "xyz"),
    ],
)
def test_normalising(text, expected):
    assert Normal().text(text, 0).text == expected


def test_a_word_of_invisible_characters_stays_a_word():
    assert Normal().words(["\u200b", "\u2060\u2060", "a\u200b"], 0).words == ("\u200b", "\u2060\u2060", "a")


@settings(max_examples=100, deadline=None)
@given(st.text(string.ascii_letters + " .'аоеі\u200b\u0301ﬁ\u202eé½ي", max_size=20), st.data())
def test_spans_follow_corrections(text, data):
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    corrected = Normal().text(text, 0, [(start, end)])
    assert NoisedText.of(text, corrected.edits) == corrected
    moved = corrected.move(start, end)
    assert bool(corrected.text[slice(*moved)].strip()) == bool(text[start:end].strip())
    words = text.split() or ["a"]
    assert len(Normal().words(words, 0).words) == len(words)


def test_specs_of_defences(monkeypatch):
    assert parsed("nfkc") == ("nfkc",)
    with pytest.raises(
        ValueError, match=r"--defence=nfcc: 'nfcc' is not one of symspell, hunspell, aspell, nfkc; did you mean nfkc\?"
    ):
        parsed("nfcc")
    with pytest.raises(ValueError, match="named twice"):
        parsed("nfkc+nfkc")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'symspellpy is not installed: pip install -e "\.\[defence\]"'):
        parsed("nfkc+symspell")


def test_spelling_is_corrected_word_by_word_and_in_texts():
    pytest.importorskip("symspellpy")
    assert parsed("nfkc+symspell") == ("nfkc", "symspell")
    speller = defence_of("symspell")
    words = ["Thsi", "is", "my", "ACOUNT", "don't", "x1y", "сор", "qzxqzxqzx", "New Yrok"]
    found = speller.words(words, 0)
    assert found.words == ("This", "is", "my", "ACCOUNT", *words[4:])
    assert found.first == tuple(range(len(words)))
    text = "Thequick borwn fox, it's (an acccount)!"
    corrected = speller.text(text, 0)
    assert corrected.text == "The quick brown fox, it's (an account)!"
    assert corrected.text[slice(*corrected.move(9, 14))] == "brown"
    assert speller.text("The quick brown fox", 0).edits == ()


def test_hunspell_corrects_words_and_texts(monkeypatch):
    if shutil.which("hunspell") is None:
        pytest.skip("needs the program hunspell")
    speller = defence_of("hunspell")
    assert re.fullmatch(r"hunspell \d+\.[\d.]+", speller.version)
    words = ["Recieve", "is", "alot", "don't", "x1y", "qzxqzxqzx", "^", "New Yrok"]
    assert speller.words(words, 0).words == ("Receive", "is", "alto", *words[3:])
    corrected = speller.text("The quikc fox, it's (an acccount)!", 0)
    assert corrected.text == "The quick fox, it's (an account)!"
    assert corrected.text[slice(*corrected.move(4, 9))] == "quick"
    assert speller.text("The quick brown fox doesn't", 0).edits == ()


SAYS = """#!{python}
import sys
print("@(#) International Ispell Version 3.2.06 (but really Hunspell 1.9)", flush=True)
for line in sys.stdin:
    word = line.rstrip().removeprefix("^")
    if word == "end":
        sys.exit(3)
    print({{"teh": "& teh 2 1: t eh, the", "qqq": "# qqq 1"}}.get(word, "*") + "\\n", flush=True)
"""


@pytest.fixture
def program(tmp_path, monkeypatch) -> Path:
    """A program that answers as hunspell does, before all others."""
    file = tmp_path / "hunspell"
    file.write_text(SAYS.format(python=sys.executable))
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return file


def test_answers_of_hunspell(program):
    speller = Hunspell()
    assert speller.version == "hunspell 1.9"
    assert speller.words(["teh", "qqq", "cat"], 0).words == ("the", "qqq", "cat")
    assert speller.text("teh cat", 0).text == "t eh cat"
    with pytest.raises(ValueError, match="ended with status 3: is hunspell-en-us installed"):
        speller.corrected(["end"])
    with pytest.raises(ValueError, match="ended with status 3"):
        speller.corrected(["cat's"])


def test_hunspell_may_be_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="hunspell is not installed: apt install hunspell hunspell-en-us"):
        parsed("hunspell")
