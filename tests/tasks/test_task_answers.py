"""Tests the methods that tell other code about a task's examples and predictions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm.data.examples import Answer, QuestionExample, TaggedExample, TextExample
from charlm.data.squad import Candidate
from charlm.tasks.classification import Classification, ClassPrediction, Regression
from charlm.tasks.columns import Columns
from charlm.tasks.create import from_settings, task_named
from charlm.tasks.question_answering import AnswerPrediction, QuestionAnswering
from charlm.tasks.ranking import Ranking
from charlm.tasks.table import TASKS
from charlm.tasks.tagging import Tagging, word_rows

PAIR = TextExample("1", "", "a text", "its pair", label="x")
ALONE = TextExample("2", "", "alone")
SENTENCE = TaggedExample("1", "", ("Ada", "sat"), ("B-P", "O"))
QUESTION = QuestionExample("1", "", "who sat?", "Ada sat.", (Answer("Ada", 0),))
PASSAGES = [
    TextExample(str(n), "", query, passage, 1.0, group)
    for n, (query, passage, group) in enumerate([("q", "a", "1"), ("other", "b", "2"), ("q", "c", "1")])
]
TAGGER = Tagging(labels=("O", "B-P", "I-P"), entities=True)
CLASSES = Classification(Columns(), ("x", "y"), "f1")
ANSWERS = QuestionAnswering(impossible=True)


def test_texts_that_noise_and_an_adversary_may_change():
    assert CLASSES.texts(PAIR) == CLASSES.attacked(PAIR) == {"text": "a text", "pair": "its pair"}
    assert Regression(Columns()).texts(ALONE) == {"text": "alone"}
    assert TAGGER.texts(SENTENCE) == {"words": ("Ada", "sat")}
    assert (ANSWERS.texts(QUESTION), ANSWERS.context(QUESTION)) == ({"question": "who sat?"}, "Ada sat.")
    ranking = Ranking.usual()
    assert ranking.texts(PASSAGES[0]) == {"text": "q", "pair": "a"}
    assert ranking.attacked(PASSAGES[0]) == {"pair": "a"}, "the query is that of other passages, too"
    assert CLASSES.context(PAIR) == ""


def test_what_is_scored_together():
    ranking = Ranking.usual()
    assert [ranking.group(passage) for passage in PASSAGES] == ["1", "2", "1"]
    assert ranking.scored(PASSAGES) == [{"text": "q"}, {"text": "other"}]
    assert (CLASSES.group(PAIR._replace(group="fold 1")), CLASSES.scored([PAIR])) == (None, [CLASSES.texts(PAIR)])
    assert TAGGER.scored([SENTENCE]) == [{"words": ("Ada",)}, {"words": ("sat",)}]


def test_entities_without_types_have_columns_in_a_part_that_has_none_of_them():
    task = Tagging(labels=("B", "I", "O"), entities=True)
    of = lambda *tags: TaggedExample("1", "", ("w",) * len(tags), tags)
    parts = [[of("B", "I", "O")], [of("O", "O")]]
    shapes = [task.statistics(part, [part[0].tags])[1].shape for part in parts]
    assert shapes == [(1, 5), (1, 5)]
    folds = [task.fold(part, [part[0].tags]) for part in parts]
    assert task.scores_of_folds(folds)["f1"] == 1


def test_folds_of_numbers_are_scored_as_one():
    """Folds differ in their means, as folds of a column do: correlations within them say nothing of the whole."""
    rng = np.random.default_rng(0)
    gold = np.concatenate([rng.normal(10 * fold, 1, 20) for fold in range(5)])
    predicted = gold + rng.normal(0, 3, 100)
    task = Regression(Columns())
    examples = [TextExample(str(n), "", "text", label=float(one)) for n, one in enumerate(gold)]
    for size in (20, 1):
        cut = [slice(at, at + size) for at in range(0, 100, size)]
        folds = [json.loads(json.dumps(task.fold(examples[part], predicted[part].tolist()))) for part in cut]
        assert task.scores_of_folds(folds) == pytest.approx(task.scores(examples, predicted.tolist()))
    assert task.scores_of_folds([folds[0], {"kind": "regression", "sums": [0.0] * 12}]) == {}


def test_labels_that_are_known():
    for task, example, unknown in (
        (CLASSES, PAIR, ALONE),
        (TAGGER, SENTENCE, SENTENCE._replace(tags=None)),
        (ANSWERS, QUESTION, QUESTION._replace(answers=())),
    ):
        assert (task.is_labelled(example), task.is_labelled(unknown)) == (True, False)
    assert ANSWERS.is_labelled(QUESTION._replace(answers=(), impossible=True))


@pytest.mark.parametrize(
    ("task", "prediction", "answer"),
    [
        (CLASSES, ClassPrediction("x", (0.75, 0.25)), "x"),
        (Regression(Columns()), 0.5, None),
        (Ranking.usual(), -1.5, None),
        (TAGGER, ("B-P", "O"), ("B-P", "O")),
        (ANSWERS, AnswerPrediction((Candidate("Ada", 0.75, 0, 3),), -1.0), "Ada"),
        (ANSWERS, AnswerPrediction((Candidate("Ada", 0.75, 0, 3),), 1.0), ""),
    ],
)
def test_predictions_outlive_json(task, prediction, answer):
    again = task.decoded(json.loads(json.dumps(task.encoded(prediction))))
    assert (again, type(again)) == (prediction, type(prediction))
    assert task.answer(again) == answer


def test_words_that_are_right():
    found = TAGGER.word_scores([SENTENCE, SENTENCE], [("B-P", "B-P"), ("O", "O")])
    assert found.right.tolist() == [True, False, False, True]
    assert sorted(found.entities.tolist()) == [[0, 1, 1, 1], [1, 2, 0, 1], [2, 3, 1, 0]]
    assert Tagging(labels=("x", "O"), entities=False).word_scores([SENTENCE], [("x", "O")]).entities is None
    assert CLASSES.word_scores([PAIR], [ClassPrediction("x", ())]) is None
    assert [name for name in TASKS.own if task_named(name).by_word] == ["tagging"]
    assert word_rows([], None) == []


def test_scores_of_sums_are_the_scores():
    examples = [PAIR, PAIR._replace(id="2", label="y"), PAIR._replace(id="3", label="y")]
    predictions = [ClassPrediction(label, ()) for label in ("x", "y", "x")]
    kind, rows = CLASSES.statistics(examples, predictions)
    found = CLASSES.scores_of_sums(kind, rows.sum(axis=0))
    assert found["f1"] == pytest.approx(2 / 3), "of the second class"
    many = CLASSES.scores_of_sums(kind, np.stack([rows.sum(axis=0)] * 2))["f1"]
    assert many == pytest.approx([2 / 3, 2 / 3])
    assert "f1" not in Classification(Columns(), ("x", "y", "z")).scores_of_sums("classification", np.ones(9))


@pytest.mark.parametrize("task", [CLASSES, Regression(Columns()), TAGGER, ANSWERS, Ranking.usual()])
def test_settings_make_the_task_anew(task):
    again = from_settings(json.loads(json.dumps(task.settings())))
    assert (type(again), vars(again)) == (type(task), vars(task))


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ValueError, match=r"^task 'taging' is not one of classification, .*; did you mean tagging\?$"):
        from_settings({"name": "taging"})


@pytest.mark.parametrize(
    ("metric", "entities", "expected"),
    [
        ("", True, "f1"),
        ("", False, "accuracy"),
        ("weighted_f1", False, "weighted_f1"),
        ("weighted_f1", True, None),
        ("f1", False, None),
    ],
)
def test_the_metric_of_tags_is_one_of_their_scores(metric, entities, expected):
    task = Tagging(labels=("O", "B-P"), entities=entities, metric=metric)
    again = from_settings(json.loads(json.dumps(task.settings())))
    if expected is not None:
        task.check_scores()
        assert again.metric == task.metric == expected
        return
    with pytest.raises(ValueError, match=f"data.metric={metric}, but the tags mark"):
        again.check_scores()


def test_words_that_are_only_read_are_neither_learned_nor_scored(tmp_path):
    """As the words around a new word that is to be classified."""
    task = Tagging(scheme="none", skip_labels=("_",))
    examples = [
        TaggedExample("1", "", ("a", "covidiot", "sat"), ("_", "blend", "_")),
        TaggedExample("2", "", ("unputdownable",), ("affix",)),
        TaggedExample("3", "", ("b",), ("_",)),
    ]
    task.learn_labels(examples)
    assert (task.labels, task.entities) == (("affix", "blend"), False)
    again = from_settings(json.loads(json.dumps(task.settings())))
    predictions = [("affix", "blend", "blend"), ("blend",), ("affix",)]
    assert again.scores(examples, predictions)["accuracy"] == 0.5
    kind, rows = again.statistics(examples, predictions)
    assert (kind, rows.sum(axis=1).tolist()) == ("tags", [3.0, 2.0, 0.0])
    assert again.word_scores(examples, predictions).right.tolist() == [True, False]
    assert again.scored(examples) == [{"words": ("covidiot",)}, {"words": ("unputdownable",)}]
    again.write(tmp_path, "dev", examples, predictions)
    assert (tmp_path / "dev.confusion.tsv").read_text().splitlines()[1:] == ["affix\t0\t0", "blend\t1\t1"]


@pytest.mark.parametrize(
    ("task", "examples", "predictions"),
    [
        (Tagging(labels=("x", "y"), entities=False), [SENTENCE._replace(tags=("x", "y"))], [("y", "y")]),
        (
            Classification(Columns(), ("x", "y")),
            [PAIR, PAIR._replace(label="y")],
            [ClassPrediction("y", (0.2, 0.8)), ClassPrediction("y", (0.2, 0.8))],
        ),
    ],
)
def test_mistakes_are_written_beside_predictions(tmp_path, task, examples, predictions):
    task.write(tmp_path, "dev", examples, predictions)
    assert (tmp_path / "dev.confusion.tsv").read_text() == "predicted\tx\ty\nx\t0\t0\ny\t1\t1\n"
    task.write(
        tmp_path, "test", [type(examples[0])("1", "", ("Ada", "sat"))] if task.by_word else [ALONE], predictions[:1]
    )
    assert not (tmp_path / "test.confusion.tsv").exists()
