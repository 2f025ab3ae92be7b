"""Tests JamSpell in front of a model: words stay words, case stays, and what it needs is told."""

from __future__ import annotations

import importlib.util
import locale
import types

import pytest

from charlm.text import jamspell
from charlm.text.defences import defence_of, parsed
from charlm.wordrec.defences import KNOWN

TEXT = "We received the letter from the house. The cat sat on the mat and slept near the old trees. "


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A language model of one sentence."""
    package = pytest.importorskip("jamspell")
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "en_US.UTF-8")
    except locale.Error:
        pytest.skip("needs the locale en_US.UTF-8")
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    folder = tmp_path_factory.mktemp("jamspell")
    (folder / "text.txt").write_text(TEXT * 50)
    (folder / "letters.txt").write_text("abcdefghijklmnopqrstuvwxyz")
    made = package.TSpellCorrector().TrainLangModel(*(str(folder / n) for n in ("text.txt", "letters.txt", "model")))
    assert made
    return folder / "model"


def test_words_and_texts_are_corrected(model):
    assert parsed(f"jamspell:{model}", KNOWN) == (f"jamspell:{model}",)
    speller = defence_of(f"jamspell:{model}", KNOWN)
    assert speller.words(["The", "cta", "sat", "on", "TEH", "mat", "12"], 0).words[:5] == (
        "The",
        "cat",
        "sat",
        "on",
        "THE",
    )
    corrected = speller.text("The cta sat on teh mat, 12.", 0)
    assert corrected.text == "The cat sat on the mat, 12."
    assert corrected.text[slice(*corrected.move(4, 7))] == "cat"
    assert speller.text("The cat sat on the mat.", 0).edits == ()


class Corrector:
    """Corrects "teh" alone, and says where it was asked; as JamSpell's, it takes and gives lists."""

    def __init__(self):
        self.asked = []

    def LoadLangModel(self, path):
        return True

    def FixFragment(self, text):
        return text.replace("teh", "the").lower()

    def GetCandidates(self, words, at):
        self.asked.append(at)
        return ("the",) if words[at] == "teh" else (words[at],)


def test_what_it_leaves_keeps_its_case_and_a_word_is_read_where_it_stands(tmp_path, monkeypatch):
    made = Corrector()
    monkeypatch.setattr(jamspell, "check_model", lambda path: None)
    monkeypatch.setattr(jamspell.extras, "load", lambda *_: types.SimpleNamespace(TSpellCorrector=lambda: made))
    monkeypatch.setattr(jamspell.metadata, "version", lambda name: "0")
    (tmp_path / "model").write_text("")
    speller = jamspell.JamSpell(str(tmp_path / "model"))
    assert speller.text("McDonald likes TEH iPhone and teh eBay", 0).text == "McDonald likes TEH iPhone and the eBay"
    assert speller.words(["McDonald", "Teh", "iPhone", "12", "Teh"], 0).words == (
        "McDonald",
        "The",
        "iPhone",
        "12",
        "The",
    )
    assert made.asked == [0, 1, 2, 4]


def test_what_it_needs_is_told_in_a_line(model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"jamspell:none: there is no such file; expected a language model"):
        parsed("jamspell:none", KNOWN)
    (tmp_path / "other").write_text("no model")
    with pytest.raises(ValueError, match="this is no language model of JamSpell"):
        defence_of(f"jamspell:{tmp_path}/other", KNOWN)

    def refused(category, name=None):
        if name is not None and name != "C":
            raise locale.Error("unsupported locale setting")
        return "C"

    with monkeypatch.context() as patch:
        patch.setattr(locale, "setlocale", refused)
        with pytest.raises(ValueError, match=r"JamSpell needs the locale en_US\.UTF-8: apt install locales"):
            parsed(f"jamspell:{model}", KNOWN)


def test_a_missing_package_is_told_in_a_line(tmp_path, monkeypatch):
    (tmp_path / "model").write_text("")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="jamspell is not installed: pip install jamspell"):
        parsed(f"jamspell:{tmp_path}/model", KNOWN)
