"""Tests texts that come one after another: results in order, only some texts read ahead, pairs, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from robustness.conftest import Models
from tiny_models import release

import charlm
from charlm.api.streams import BATCHES_AT_ONCE

TEXTS = ["the cat sat on a mat", "dog", "we slept near every old tree", "a cat", "the town"]


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory):
    """Returns tiny BERTs with a random head for a task."""
    models = Models(tmp_path_factory.mktemp("models"), Path())  # no HLM
    return lambda task: charlm.load(models.untrained(task), batch_size=2)


def test_results_come_in_order_and_texts_are_read_only_some_ahead():
    model = charlm.load(release("bert"), batch_size=2)
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield TEXTS[number % len(TEXTS)]

    results = model.stream(endless())
    assert read == []  # nothing is read before a result is asked for
    first = list(itertools.islice(results, 3))
    assert len(read) == BATCHES_AT_ONCE * 2
    for one, text in zip(first, TEXTS, strict=False):
        np.testing.assert_allclose(one.vectors, model.encode(text).vectors, atol=1e-5)
    assert len(list(itertools.islice(results, 20))) == 20
    vectors = np.stack([*model.stream(TEXTS, "encode", normalize=True)])
    np.testing.assert_allclose(vectors, model.encode(TEXTS, normalize=True), atol=1e-6)
    assert list(model.stream([])) == []


def test_what_is_done_is_shown_if_asked_for(capsys):
    model = charlm.load(release("bert"))
    assert len(list(model.stream(TEXTS, progress=True))) == 5
    assert "5/5" in capsys.readouterr().err
    list(model.stream(TEXTS))
    assert capsys.readouterr().err == ""


def test_two_texts_for_each_result(fine_tuned):
    classifier = fine_tuned("classification")
    pairs = [(text, "in the town") for text in TEXTS]
    assert list(classifier.stream(pairs)) == classifier(TEXTS, ["in the town"] * 5)
    assert list(classifier.stream(TEXTS)) == classifier(TEXTS)
    for mixed in ([("a", "b"), "cd"], ["cd", ("a", "b")], [("a", "b", "c")]):
        with pytest.raises(ValueError, match="expected texts, or pairs of texts, not both"):
            list(classifier.stream(mixed))
    reader = fine_tuned("question_answering")
    asked = [("which animal ?", TEXTS[0]), ("who ?", TEXTS[2])]
    assert list(reader.stream(asked)) == reader([q for q, _ in asked], [c for _, c in asked])
    tagger = fine_tuned("tagging")
    assert list(tagger.stream([["the", "cat"], "a dog"])) == tagger.tag([["the", "cat"], "a dog"])


def test_what_cannot_be_streamed_is_said_before_anything_is_read(fine_tuned):
    model = charlm.load(release("bert"))
    with pytest.raises(ValueError, match=r"cannot tag texts one by one; it can encode, fill_mask"):
        model.stream(iter(TEXTS), "tag")
    with pytest.raises(ValueError, match="cannot rank texts one by one"):
        fine_tuned("ranking").stream(TEXTS)
    with pytest.raises(ValueError, match="texts is one string"):
        model.stream("the cat")
