"""Tests what a recogniser's evaluation counts: words of the list alone can be right."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from programs import drawn

from charlm.wordrec.batches import RecogniserBatch, padded_rows
from charlm.wordrec.model import Recogniser, RecogniserConfig
from charlm.wordrec.objective import WordRecognition
from charlm.wordrec.words import UNKNOWN, KnownWords

KNOWN = KnownWords(["the", "cat"], "tehcasonm", "rules")
WORDS = ["the", "zebra", "cat", "gnu"]  # two are not in the list
READ = ["teh", "zbera", "cat", "gnu"]  # two are misspelled
MODEL = Recogniser(RecogniserConfig(KNOWN.alphabet, KNOWN.size, hidden=3))


def sums(label):
    """Returns the sums of a recogniser that says the same of every word, the number of a label."""
    read, mask_BL = padded_rows(KNOWN, [READ], 1, 5)
    params = jax.tree.map(np.zeros_like, drawn(MODEL, *read, mask_BL))
    params["label"]["bias"] = np.eye(KNOWN.size, dtype=np.float32)[label]
    labels_BL = np.append(KNOWN.labels(WORDS), -1)[None]
    changed_BL = np.array([[True, True, False, False, False]])
    one = lambda tree: jax.tree.map(lambda x: x[None], tree)
    objective = object.__new__(WordRecognition)  # without corpora
    objective.model = MODEL
    found = objective.loss_sums(params, RecogniserBatch(*one((read, mask_BL, labels_BL, changed_BL))), None)
    return objective.summarize(found), found


def test_who_recognises_nothing_is_never_right():
    summary, found = sums(UNKNOWN)
    assert (summary["accuracy"], summary["changed_accuracy"]) == (0, 0)
    assert (float(found.words), float(found.changed)) == (4, 2)


@pytest.mark.parametrize(("word", "changed"), [("the", 0.5), ("cat", 0.0)])
def test_words_of_the_list_are_right_where_they_are_meant(word, changed):
    summary, _ = sums(int(KNOWN.labels([word])[0]))
    assert (summary["accuracy"], summary["changed_accuracy"]) == (0.25, changed)
