"""Which family a checkpoint is of, and what of a checkpoint of another family is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from charlm.core.checkpoint import save_params
from charlm.families.family import FAMILIES, UNNAMED
from charlm.families.hlm.objective import check_characters
from charlm.families.stored import family_of, metadata_of

VOCAB = {"a": 8, "b": 9}
OLD = {"config": {"seed": 3, "data": {"train": ["builtin"]}}, "char_vocab": VOCAB}


@pytest.mark.parametrize(
    ("metadata", "family"),
    [
        (OLD, "hlm"),  # written when there was no other family
        ({"config": {"family": "charbert"}}, "charbert"),
        ({"config": {"family": "charbert"}, "family": "charbert", "model": {}}, "charbert"),
        ({"family": "bert", "model": {}}, "bert"),
    ],
)
def test_a_checkpoint_that_names_no_family_is_an_hlm(metadata, family):
    assert family_of(metadata) == family
    assert UNNAMED in FAMILIES.own


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old") / "model"
    save_params(folder, {"scale": [1.0]}, OLD)
    return folder


def test_a_checkpoint_of_another_family_is_refused(old):
    assert metadata_of(old, ["bert", "hlm"]) == OLD
    with pytest.raises(ValueError, match=r"model is a model of the family hlm, expected bert or gpt2$"):
        metadata_of(old, ["bert", "gpt2"])


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ({"a": 8, "b": 10}, r"\(1 characters differ, first 'b': id 9 there, 10 here\)"),
        ({"a": 8}, r"\(1 characters differ, first 'b': id 9 there, None here\)"),
        ({"a": 9, "b": 8, "c": 10}, r"\(3 characters differ, first 'a': id 8 there, 9 here\)"),
    ],
)
def test_other_characters_are_refused(old, vocab, message):
    check_characters(old, {"b": 9, "a": 8})
    with pytest.raises(ValueError, match=message + r"; set text\.char_vocab to the char_vocab\.json"):
        check_characters(old, vocab)
