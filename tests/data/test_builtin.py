"""Tests the built-in corpus: enough English text, and no overlap between its splits."""

from __future__ import annotations

import pytest
from reading import texts

from charlm.data import builtin
from charlm.data.parts import is_heldout


@pytest.fixture(scope="module")
def documents():
    return builtin.documents()


def test_builtin_is_english_of_a_useful_size(documents):
    words = {split: sum(len(text.split()) for text in found) for split, found in documents.items()}
    assert words["train"] > 150_000
    assert 0.01 < words["heldout"] / words["train"] < 0.2
    text = " ".join(documents["train"]).lower()
    assert text.count(" the ") > 5000
    assert ">>>" not in {line[:3] for found in documents.values() for line in "\n".join(found).splitlines()}


def test_builtin_splits_share_no_paragraph(documents):
    paragraphs = [p.casefold() for found in documents.values() for text in found for p in text.split("\n\n")]
    assert len(paragraphs) == len(set(paragraphs))


def test_builtin_splits_by_module_and_parts_match_splits(documents):
    train, heldout, everything = (texts("builtin", split=split)[0] for split in ("train", "heldout", "all"))
    assert (train, heldout) == (documents["train"], documents["heldout"])
    assert everything == train + heldout
    owners = {owner for owner, _ in builtin._owned_texts()}
    share = sum(is_heldout(owner.encode(), builtin.HELDOUT) for owner in owners) / len(owners)
    assert 0.02 < share < 0.1


def test_builtin_without_topics_uses_docstrings_alone(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pydoc_data.topics", None)
    assert builtin._topics() == {}
    owner, text = next(builtin._owned_texts())
    assert not owner.startswith("topics/")
    assert text


def test_paragraphs_are_cleaned():
    text = """Title of it
    ===========

    Two lines
    joined.

    Example:
    >>> 1 + 1
    2

    | a | b |
    +---+---+
    """
    assert list(builtin._paragraphs(text)) == ["Title of it", "Two lines joined.", "Example:"]
