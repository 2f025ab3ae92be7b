"""Tests that families of other packages can use the predictors that charlm's own families share."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from small_characterbert import characterbert
from tiny_models import release

from charlm import predict, register
from charlm.families.characterbert import FAMILY as CHARACTERBERT
from charlm.families.family import FAMILIES
from charlm.families.predictor import Fill, Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.subword import BERT, GPT2
from charlm.families.subword.bert_tensors import BERT_LAYOUT
from charlm.families.subword.conversion import SubwordConverter

TEXT = "The cat of the town."
MINE = dataclasses.replace(
    BERT, name="mine", title="My model", converter="test_added_predictors:MINE_CONVERTER", options={}
)
MINE_CONVERTER = SubwordConverter(BERT_LAYOUT, MINE)


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch):
    """What a test adds is gone after it."""
    monkeypatch.setattr(FAMILIES, "_added", dict(FAMILIES._added))
    monkeypatch.setattr(FAMILIES, "_makers", dict(FAMILIES._makers))


@pytest.mark.parametrize(
    ("like", "model", "lacks"),
    [
        (BERT, lambda: release("bert"), "score"),
        (GPT2, lambda: release("gpt2"), "fill_mask"),
        (CHARACTERBERT, characterbert, "score"),
    ],
)
def test_an_added_family_reads_text_with_a_shared_predictor(like, model, lacks):
    mine = register.family(dataclasses.replace(like, name="mine", title="My model", options={}))
    known = from_pretrained(model())
    predictor = mine.get_predictor().from_pretrained(dataclasses.replace(known, family="mine"))
    (found,) = predictor.encode([TEXT])
    (same,) = like.get_predictor().from_pretrained(known).encode([TEXT])
    assert found.words == same.words == ["The", "cat", "of", "the", "town", "."]
    np.testing.assert_array_equal(found.vectors_WD, same.vectors_WD)
    with pytest.raises(ValueError, match=r"^a model of the kind My model "):
        predictor.require(lacks)


def test_an_added_family_with_a_shared_converter_is_loaded_by_its_name():
    register.family(MINE)
    predictor = Predictor.from_checkpoint(release("bert"), family="mine")
    assert (predictor.name, predictor.pretrained.family) == ("My model", "mine")
    assert predictor.encode([]) == []


def test_an_added_family_fills_the_first_gap_as_its_vocabulary_marks_words():
    register.family(dataclasses.replace(BERT, name="mine", title="My model"))
    known = from_pretrained(release("bert"))
    predictor = BERT.get_predictor()(dataclasses.replace(known, family="mine"))
    everything = {fill.word for fill in predictor.fill_mask("[MASK] cat", top=10_000)[0]}
    assert any(word.startswith("##") for word in everything), "only a byte-level piece may begin a text unmarked"


class Scorer(Predictor):
    """A predictor of another package that only scores texts."""

    name, suited = "Scorer", ("score",)

    @classmethod
    def from_pretrained(cls, pretrained):
        """Returns a predictor that needs no model."""
        return cls()

    def encode(self, texts, batch_size=32, unit="words"):
        """Refuses."""
        raise self._refusal("encode")


def test_an_added_predictor_declares_only_what_it_has():
    scorer = Scorer()
    assert (scorer.words, scorer.cache, scorer.spells, scorer.caches) == (None, None, False, False)


def test_options_are_those_of_what_an_added_predictor_declares(monkeypatch, capsys):
    class Speller(Scorer):
        suited, spells = ("encode", "fill_mask"), True

        def fill_masks(self, texts, batch_size=32, *, length="auto", top=5, known=None, any_spelling=False):
            return [[[Fill("any" if any_spelling else "own", -1.0, 0.5)]] for _ in texts]

    monkeypatch.setattr(Predictor, "from_checkpoint", lambda path, **options: Speller())
    assert predict.main(["fill-mask", "--checkpoint=run", "--any", "a [MASK]"]) == 0
    assert json.loads(capsys.readouterr().out)["fills"] == [[{"word": "any", "score": 0.5}]]
    assert predict.main(["fill-mask", "--checkpoint=run", "a [MASK]"]) == 0
    assert capsys.readouterr().err == "run keeps no known words: any spelling is ranked; --words=FILE names some\n"
    assert predict.main(["encode", "--checkpoint=run", "--stats", "a"]) == 1
    assert capsys.readouterr().err == "error: --stats: a Scorer keeps no words in a cache\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["encode", "a"], "a model of the kind Scorer makes no vectors of texts: it can score"),
        (["fill-mask", "[MASK]"], "a model of the kind Scorer fills no gaps: it can score"),
    ],
)
def test_what_an_added_predictor_lacks_is_said_in_one_line(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(Predictor, "from_checkpoint", lambda path, **options: Scorer())
    command, *texts = arguments
    assert predict.main([command, "--checkpoint=run", *texts]) == 1
    assert capsys.readouterr() == ("", f"error: {message}\n")
