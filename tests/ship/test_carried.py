"""Tests the models that come with charlm: they load by name, do what their cards say, and stay small."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

import charlm
from charlm.core import trained
from charlm.families.pretrained import from_pretrained

ROOT = Path(__file__).resolve().parents[2]
MOST = 25e6  # bytes of all models together
OFFERED = ("hlm-small-en", "hlm-small-en-disease", "hlm-small-en-pos")


def test_they_are_listed_and_small():
    assert tuple(trained.names()) == OFFERED
    assert sum(map(trained.size_of, OFFERED)) <= MOST
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in OFFERED)


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
    gap = charlm.load("hlm-small-en")("She was born in New [MASK] in 1970.")[0]
    assert gap.words
