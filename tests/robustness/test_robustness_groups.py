"""Tests groups of words, changed words, and how words are cut."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import release

from charlm import metrics
from charlm.config import get_config
from charlm.data.examples import Answer, QuestionExample, TaggedExample, TextExample
from charlm.families.hlm.units import HLMUnits
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.robustness import groups, scoring
from charlm.robustness.cells import Cell
from charlm.robustness.segmentation import pieces_of, segmentation
from charlm.robustness.subjects import names
from charlm.robustness.versions import changed_in_text, changed_words, sentences_of, version_of
from charlm.tasks.classification import Classification
from charlm.tasks.columns import Columns
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.ranking import Ranking
from charlm.tasks.tagging import Tagging
from charlm.text.chars import CharVocab
from charlm.text.noise import Noise, Noiser
from charlm.text.noise.edits import Edit, NoisedText, NoisedWords
from charlm.text.subwords import SubwordTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.load(release("bert"))


TAGGED = [
    TaggedExample("1", "", ("words", "unbelievable", "zqx"), ("A", "B", "A")),
    TaggedExample("2", "", ("a",), ("A",)),
]


def test_words_are_whole_split_or_unknown(tokenizer):
    found = pieces_of(tokenizer, ["words", "unbelievable", "words", "\u4e00"])
    assert found["words"] == 1
    assert found["unbelievable"] > 1
    assert found["\u4e00"] == 0, "the unknown token is no piece of a word"
    assert len(found) == 3


def test_groups_of_words_and_of_examples(tokenizer):
    known = {"words", "a", "the"}  # of one piece, too
    found = groups.masks(Tagging(labels=("A", "B")), TAGGED, tokenizer, known)
    assert found["unseen in training"].tolist() == [False, True, True, False]
    assert found["split"].tolist() == [False, True, True, False]
    texts = [TextExample("1", "", "the words", "a", "x"), TextExample("2", "", "a", "the unbelievable words.", "y")]
    found = groups.masks(Classification(Columns(), ("x", "y")), texts, tokenizer, known)
    assert found["split"].tolist() == found["unseen in training"].tolist() == [False, True]
    assert found["in vocabulary"].tolist() == found["seen in training"].tolist() == [True, False]
    found = groups.masks(Classification(Columns(), ("x", "y")), texts, None, None, ["kind=b", "kind=a"])
    assert {name: mask.tolist() for name, mask in found.items()} == {"kind=a": [False, True], "kind=b": [True, False]}
    question = QuestionExample("1", "", "the words", "unbelievable", (Answer("unbelievable", 0),))
    found = groups.masks(QuestionAnswering(), [question], tokenizer, known)
    assert found["split"].tolist() == found["unseen in training"].tolist() == [False], "the context does not count"
    passages = [TextExample(str(n), "", text, "unbelievable", 1.0, group) for n, (text, group) in enumerate(
        [("the unbelievable", "q1"), ("words", "q2"), ("the unbelievable", "q1")])]  # fmt: skip
    found = groups.masks(Ranking.usual(), passages, tokenizer, known)
    assert found["split"].tolist() == [True, False], "a row a query, in the order they begin"
    assert groups.masks(Tagging(labels=("A",)), TAGGED, None, None) == {}


def test_entries_by_hand():
    right = np.array([1, 0, 1, 1], bool)
    cells = [
        Cell({}, {"right": right, "changed": np.array([1, 1, 0, 0], bool)}),
        Cell({}, {"right": ~right, "changed": np.array([1, 0, 0, 0], bool)}),
    ]
    found = groups.entries({"split": np.array([0, 1, 1, 0], bool), "none": np.zeros(4, bool)}, cells, None)
    assert {row["group"]: (row["count"], row["score"]) for row in found} == {
        "all": (8, 0.5),
        "split": (4, 0.5),
        "none": (0, None),
        "changed": (3, pytest.approx(1 / 3)),
        "unchanged": (5, pytest.approx(3 / 5)),
    }
    gold = ["a", "b", "b"]
    rows = [metrics.per_example_classes(gold, guess, ["a", "b"]) for guess in (["a", "a", "b"], ["b", "b", "b"])]
    cells = [Cell({}, {"statistics": one}) for one in rows]
    metric = scoring.metric_of(Classification(Columns(), ("a", "b"), "f1"), "classification")
    found = groups.entries({"split": np.array([1, 1, 0], bool)}, cells, metric)
    want = metrics.classification_scores(gold[:2] * 2, ["a", "a", "b", "b"], positive="b")["f1"]
    assert found[1] == {"group": "split", "count": 4, "score": pytest.approx(want)}
    assert [row["group"] for row in found] == ["all", "split"]


def test_entities_by_group_by_hand():
    gold = [["B-A", "I-A", "O", "B-B"], ["O", "B-A"]]
    guess = [["B-A", "I-A", "B-C", "B-A"], ["O", "O"]]
    spans = metrics.entity_spans(gold, guess)
    assert sorted(spans.tolist()) == [[0, 2, 1, 1], [2, 3, 0, 1], [3, 4, 0, 1], [3, 4, 1, 0], [5, 6, 1, 0]]
    assert metrics.entity_spans([["O"]], [["O"]]).shape == (0, 4)
    flat = [(a, b) for right, found in zip(gold, guess, strict=True) for a, b in zip(right, found, strict=True)]
    right = np.array([a == b for a, b in flat])
    cell = Cell({}, {"right": right, "changed": np.zeros(6, bool), "entities": spans})
    masks = {"split": np.array([0, 1, 0, 0, 0, 1], bool), "in vocabulary": np.array([1, 0, 1, 1, 1, 0], bool),
             "none": np.array([0, 0, 0, 0, 1, 0], bool)}  # fmt: skip
    found = {row["group"]: (row["entities"], row["entity_f1"]) for row in groups.entries(masks, [cell, cell], None)}
    assert found == {
        "all": (6, pytest.approx(2 * 1 / (3 + 3))),
        "split": (4, pytest.approx(2 * 1 / (2 + 1))),  # an entity may have words of both groups
        "in vocabulary": (4, pytest.approx(2 * 1 / (2 + 3))),
        "none": (0, None),
    }
    assert found["all"][1] == pytest.approx(metrics.entity_scores(gold, guess)["f1"])


def test_summed_statistics_keep_the_score():
    gold = [["B-A", "I-A", "O"], ["B-B", "O"]]
    guess = [["B-A", "I-A", "B-C"], ["B-A", "O"]]
    rows = metrics.per_example_entities(gold, guess)
    found = scoring.summed("entities", rows, "f1")
    assert found.shape == (2, 5)
    for name in ("f1", "precision", "recall", "accuracy"):
        score = metrics.score_of("entities", name)
        assert score(found.sum(0)[None]) == pytest.approx(score(rows.sum(0)[None]))
        assert score(found.sum(0)[None])[0] == pytest.approx(metrics.entity_scores(gold, guess)[name])
    rows = metrics.per_example_tags(gold, guess)
    accuracy = metrics.score_of("tags", "accuracy")
    assert accuracy(scoring.summed("tags", rows, "accuracy").sum(0)[None]) == accuracy(rows.sum(0)[None])
    numbers = np.array([[0.5, 1.0], [2.0, 3.0]])
    assert scoring.summed("squad", numbers, "f1") is numbers
    assert scoring.summed("classification", rows, "accuracy").dtype == np.int16
    np.testing.assert_array_equal(scoring.summed("classification", rows, "accuracy"), rows)
    np.testing.assert_array_equal(scoring.summed("classification", 1e6 * rows, "accuracy"), 1e6 * rows)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("entities", "macro_f1"), ("entities", "f1"), ("tags", "macro_f1"), ("tags", "weighted_f1"), ("tags", "accuracy")],
)
def test_intervals_are_of_the_metric_that_the_report_names(kind, metric):
    gold = (("B-A", "I-A", "O", "B-B"), ("B-B", "O", "B-A"))
    guess = [("B-A", "I-A", "B-B", "B-B"), ("B-A", "O", "O")]
    labels = ("B-A", "I-A", "B-B", "I-B", "O")
    task = Tagging(labels=labels, entities=kind == "entities", metric=metric)
    examples = [TaggedExample(str(n), "", ("w",) * len(tags), tags) for n, tags in enumerate(gold)]
    named, rows = task.statistics(examples, guess)
    assert named == kind
    sums = scoring.summed(kind, rows, metric).sum(0).astype(float)
    assert scoring.metric_of(task, kind)(sums[None])[0] == pytest.approx(task.scores(examples, guess)[metric])


def test_pooled_statistics_are_means_over_draws():
    """A clean text is drawn once and a noisy one often, so that sums of theirs could not be compared."""
    draws = [[[0, 30_000], [1, 2]], [[0, 30_000], [3, 2]], [[6, 30_000], [8, 2]]]
    cells = [Cell({}, {scoring.STATISTICS: np.array(draw, np.int16)}) for draw in draws]
    np.testing.assert_array_equal(scoring.pooled(cells), [[2.0, 30_000.0], [4.0, 2.0]])
    np.testing.assert_array_equal(scoring.pooled(cells[:1]), draws[0])


def test_changed_words_of_sentences_merged_and_cut():
    words = ("ab", "cd", "ef")
    merged = NoisedWords.of(words, [Edit(2, 3, "")])
    assert merged.words == ("abcd", "ef")
    assert changed_words(words, merged) == [True, True, False]
    cut = NoisedWords.of(words, [Edit(4, 4, " ")])
    assert cut.words == ("ab", "c", "d", "ef")
    assert changed_words(words, cut) == [False, True, False]
    assert changed_words(words, NoisedWords.of(words, [Edit(7, 8, "x")])) == [False, False, True]


@pytest.mark.parametrize(
    ("edits", "want"),
    [
        ([], [0, 0, 0, 0]),
        ([Edit(1, 2, "")], [1, 0, 0, 0]),  # te cat, sat
        ([Edit(3, 4, "")], [1, 1, 0, 0]),  # thecat, sat
        ([Edit(7, 8, "")], [0, 0, 1, 0]),  # the cat sat
        ([Edit(10, 10, " ")], [0, 0, 0, 1]),  # the cat, s at
        ([Edit(8, 8, " ")], [0, 0, 0, 0]),  # a second space changes no word
        ([Edit(5, 6, "u")], [0, 1, 0, 0]),
    ],
)
def test_changed_words_of_texts(edits, want):
    assert changed_in_text(NoisedText.of("the cat, sat", edits)) == [bool(x) for x in want]


def test_versions_count_changed_words_of_all_texts():
    task = Classification(Columns(), ("x", "y"))
    examples = [TextExample(str(n), "", "the old cat sat", "on every mat", "x") for n in range(20)]
    version = version_of(task, examples, Noise("repeat", 0.2), 3, None)
    assert len(version.changed) == 20 * 7
    before, after = sentences_of(task, examples), sentences_of(task, version.examples)
    want = [a != b for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)]
    assert version.changed.tolist() == want
    assert 0.2 < version.changed.mean() < 0.7
    again = version_of(task, examples, Noise("repeat", 0.2), 3, None)
    assert again.examples == version.examples
    plain = Noiser(Noise("repeat", 0.2), 3)
    assert [task.noised(example, plain, "robustness")[0] for example in examples] == version.examples


def test_segmentation_by_hand(tokenizer):
    config = get_config()
    config.text.splitter, config.model.char_slots = "spaces", 4
    hlm = HLMUnits(config, CharVocab(list("abc")))
    found = segmentation(hlm, [("abc", "abca", "xbc"), (), ("a",)])
    assert found == (1, 0, pytest.approx(1 / 10), pytest.approx(1 / 4))
    assert segmentation(hlm, [()]) == (0, 0, 0, 0)
    model = from_pretrained(release("bert"))
    words = [("words", "unbelievable"), ("\u4e00",)]
    pieces = pieces_of(tokenizer, ["unbelievable"])["unbelievable"]
    found = segmentation(units_of(model), words)
    assert pieces > 1
    assert found == (pytest.approx((pieces + 2) / 3), pytest.approx(1 / 3), pytest.approx(1 / (pieces + 2)), 0)


@pytest.mark.parametrize(
    ("paths", "want"),
    [
        (["/r/a", "/r/b"], ["a", "b"]),
        (["/x/tag", "/y/tag", "/y/b"], ["x/tag", "y/tag", "b"]),
        (["/x/1/tag", "/y/1/tag"], ["x/1/tag", "y/1/tag"]),
        (["/r/tag/checkpoints/500"], ["tag"]),
        (["/r/tag/checkpoints/500", "/r/tag/checkpoints/600"], ["500", "600"]),
        (["/r/tag/checkpoints/500", "/r/tag"], ["500", "tag"]),
    ],
)
def test_names_are_the_last_parts_that_tell_models_apart(paths, want):
    assert names(paths) == want
