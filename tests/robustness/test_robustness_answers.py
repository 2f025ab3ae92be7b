"""Tests which examples a report shows with their typos, and what it says of the models' answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from charlm.data.examples import Answer, QuestionExample, TaggedExample, TextExample
from charlm.data.squad import Candidate
from charlm.robustness.answers import SHOWN, answers
from charlm.robustness.cells import Cell, Cells
from charlm.robustness.scoring import RIGHT, STATISTICS, summed
from charlm.robustness.settings import Level
from charlm.robustness.versions import version_of
from charlm.tasks.classification import Classification, ClassPrediction, Regression
from charlm.tasks.columns import Columns
from charlm.tasks.question_answering import AnswerPrediction, QuestionAnswering
from charlm.tasks.ranking import Ranking
from charlm.tasks.tagging import Tagging
from charlm.text.noise import Noise

COLUMNS = Columns("text", "", "label", "")


def level(spec: str) -> Level:
    noise = Noise.parse(spec)
    return Level(noise.kind, noise.rate, spec, noise)


def texts(count: int) -> list[TextExample]:
    """Returns texts of two classes, numbered by a word."""
    words = ["apple", "banana", "cherry", "orange", "lemon", "melon"]
    return [
        TextExample(str(n), f"t.tsv:{n}", " ".join([words[n % 6]] * 6) + f" {n}", label="ab"[n % 2])
        for n in range(count)
    ]


class Fake:
    """A model that answers with what a function says of an example; it counts what it is asked."""

    def __init__(self, name: str, task: Any, says: Any) -> None:
        self.name, self.digest, self.family, self.task, self.batches = name, name, "fake", task, self
        self._says, self.asked = says, 0

    def predict(self, examples: list[Any]) -> list[Any]:
        self.asked += len(examples)
        return [self._says(example) for example in examples]


def cell(model: Fake, examples: list[Any], noise: Noise | None) -> Cell:
    version = None if noise is None else version_of(model.task, examples, noise, 0, None)
    predictions = model.predict(examples if version is None else version.examples)
    if version is not None:
        predictions = [model.task.restored(p, trace) for p, trace in zip(predictions, version.traces, strict=True)]
    kind, rows = model.task.statistics(examples, predictions)
    arrays = {STATISTICS: summed(kind, rows, model.task.metric)}
    if words := model.task.word_scores(examples, predictions):
        arrays[RIGHT] = words.right
    return Cell({"kind": kind}, arrays)


def shown(models: list[Fake], examples: list[Any], specs: list[str], folder: Path) -> dict[str, Any] | None:
    clean = {model.name: cell(model, examples, None) for model in models}
    levels = [level(spec) for spec in specs]
    noisy = {(model.name, at): [cell(model, examples, at.noise)] for model in models for at in levels}
    for model in models:
        model.asked = 0
    return answers(models, examples, clean, noisy, None, ["data"], Cells(folder))  # pyright: ignore


def classifier(name: str, readable: Any) -> Fake:
    """Returns a model that is right about texts that it can read, and says "b" of the others."""
    task = Classification(COLUMNS, ("a", "b"))
    right = lambda example: example.label if readable(example.text) else "b"
    return Fake(name, task, lambda example: ClassPrediction(right(example), (0.5, 0.5)))


def known(text: str) -> bool:
    return all(
        word.isdigit() or word in ["apple", "banana", "cherry", "orange", "lemon", "melon"] for word in text.split()
    )


def test_the_examples_are_those_where_models_differ_kind_by_kind(tmp_path: Path) -> None:
    models = [classifier("eyes", lambda text: True), classifier("pieces", known)]
    specs = ["swap:0.05", "swap:0.1", "swap:0.4", "drop:0.2", "drop:0.3", "case:0.3"]
    found = shown(models, texts(24), specs, tmp_path)
    assert found is not None
    examples = found["examples"]
    assert len(examples) == SHOWN
    assert len({example["place"] for example in examples}) == SHOWN  # none twice
    assert {(example["kind"], example["level"]) for example in examples} == {
        ("swap", 0.1),
        ("drop", 0.2),
        ("case", 0.3),
    }
    kinds = [example["kind"] for example in examples]
    assert len(set(kinds[:3])) == 3  # each kind in turn
    for example in examples:
        (text,), (asked,) = example["texts"], example["asked"]
        assert text["clean"] != text["noisy"]
        assert (asked["what"], asked["gold"]) == ("class", "a")
        assert asked["answers"] == [
            {"model": "eyes", "clean": "a", "noisy": "a", "right": True},
            {"model": "pieces", "clean": "a", "noisy": "b", "right": False},
        ]
    assert found["better"]["pieces"] == 0
    assert found["pairs"] == 3 * 24
    assert 10 <= found["better"]["eyes"] <= 36  # of half of the texts, those of class a


def test_the_same_measurements_show_the_same_and_ask_no_model_twice(tmp_path: Path) -> None:
    models = [classifier("eyes", lambda text: True), classifier("pieces", known)]
    first = shown(models, texts(24), ["drop:0.2"], tmp_path)
    assert [model.asked for model in models] == [2 * len(first["examples"])] * 2
    assert shown(models, texts(24), ["drop:0.2"], tmp_path) == first
    assert [model.asked for model in models] == [0, 0]


def test_one_model_is_compared_with_itself_without_noise(tmp_path: Path) -> None:
    found = shown([classifier("pieces", known)], texts(12), ["drop:0.3"], tmp_path)
    assert found["better"] == {"pieces": 0}
    assert found["worse"] >= len(found["examples"]) > 0
    assert all(example["asked"][0]["answers"][0]["right"] is False for example in found["examples"])


def test_models_that_are_always_right_have_nothing_to_show(tmp_path: Path) -> None:
    assert shown([classifier("eyes", lambda text: True)], texts(12), ["drop:0.3"], tmp_path) is None
    assert shown([classifier("pieces", known)], texts(12), [], tmp_path / "none") is None


def test_of_many_models_the_best_and_the_worst_are_asked(tmp_path: Path) -> None:
    middle = [classifier(f"m{n}", lambda text, n=n: len(text) % 7 < n or known(text)) for n in (2, 3, 4)]
    models = [*middle, classifier("eyes", lambda text: True), classifier("pieces", known)]
    found = shown(models, texts(24), ["drop:0.3"], tmp_path)
    assert set(found["better"]) == {"eyes", "pieces"}
    assert [model.asked for model in middle] == [0, 0, 0]


def test_long_texts_are_left_out_unless_all_are_long(tmp_path: Path) -> None:
    long = [example._replace(text="apple " * 40) for example in texts(4)]
    found = shown([classifier("pieces", known)], [*long, *texts(12)[4:]], ["drop:0.3"], tmp_path)
    assert found["pairs"] == 8
    assert not {f"t.tsv:{n}" for n in range(4)} & {example["place"] for example in found["examples"]}
    assert shown([classifier("pieces", known)], long, ["drop:0.3"], tmp_path / "long")["pairs"] == 4


def test_tags_are_shown_word_by_word_of_the_text_before_noise(tmp_path: Path) -> None:
    """Also where noise has merged words: the model tags what it reads, and the tags are mapped back."""
    task = Tagging(labels=("D", "N"), entities=False)
    rows = [("the", "D"), ("cat", "N"), ("saw", "N"), ("the", "D"), ("dog", "N")]
    examples = [
        TaggedExample(str(n), f"x.conll:{n}", tuple(w for w, _ in rows), tuple(tag for _, tag in rows))
        for n in range(6)
    ]
    says = lambda example: tuple("D" if word == "the" else "N" for word in example.words)
    found = shown([Fake("m", task, says)], examples, ["spaces:0.5"], tmp_path)
    assert found["by"] == "right tags"
    for example in found["examples"]:
        assert example["texts"][0]["clean"] == "the cat saw the dog"
        assert [asked["what"] for asked in example["asked"]] == ["the", "cat", "saw", "the", "dog"]
        assert [asked["gold"] for asked in example["asked"]] == ["D", "N", "N", "D", "N"]
        wrong = [asked for asked in example["asked"] if not asked["answers"][0]["right"]]
        assert wrong
        assert all(asked["answers"][0]["clean"] == asked["gold"] for asked in wrong)


def test_answers_numbers_and_ranks_are_shown_as_people_read_them() -> None:
    questions = QuestionAnswering(impossible=True)
    example = QuestionExample("1", "q.json: 1", "Who?", "Ann and Bo.", (Answer("Ann", 0), Answer("Ann", 0)))
    right = AnswerPrediction((Candidate("Ann", 0.9, 0, 3),), -1.0)
    none = AnswerPrediction((Candidate("Ann", 0.9, 0, 3),), 1.0)
    assert [tuple(one) for one in questions.asked([example] * 2, [right, none])] == [
        ("answer", "Ann", "Ann", True),
        ("answer", "Ann", "(no answer)", False),
    ]
    impossible = example._replace(answers=(), impossible=True)
    assert tuple(questions.asked([impossible], [none])[0]) == ("answer", "(no answer)", "(no answer)", True)
    number = TextExample("1", "n.tsv:1", "a", label=2.5)
    assert tuple(Regression(COLUMNS).asked([number], [2.43219])[0]) == ("number", "2.5", "2.432", None)
    passages = [TextExample(str(n), "p:1", "q", "p", label=float(n == 2), group="g") for n in range(4)]
    (asked,) = Ranking.usual().asked(passages, [0.1, 3.0, 2.0, -1.0])
    assert tuple(asked) == ("place of the first relevant of 4 passages", "1", "2", False)
    assert Ranking.usual().asked(passages[:2], [0.1, 3.0]) == []


@pytest.mark.parametrize("spec", ["drop:0.3"])
def test_passages_are_shown_query_by_query(tmp_path: Path, spec: str) -> None:
    queries = ["where do cats sleep", "where do dogs sleep", "what do hens eat", "what do cows eat"]
    examples = [
        TextExample(f"{q}-{p}", f"p.jsonl:{q}", queries[q], "some passage", label=float(p == q % 3), group=str(q))
        for p in range(3)
        for q in range(4)
    ]
    says = lambda example: float((example.label or 0) > 0) if example.text in queries else -float(example.label or 0)
    found = shown([Fake("m", Ranking.usual(), says)], examples, [spec], tmp_path)
    assert found["by"] == "mrr"
    assert len({example["place"] for example in found["examples"]}) == len(found["examples"]) > 0
    for example in found["examples"]:
        assert [text["field"] for text in example["texts"]] == ["text"]
        assert example["asked"][0]["what"].endswith("of 3 passages")
        assert example["asked"][0]["answers"][0]["clean"] == "1"


def test_numbers_differ_by_their_error(tmp_path: Path) -> None:
    examples = [example._replace(label=float(n)) for n, example in enumerate(texts(12))]
    task = Regression(COLUMNS)
    near = Fake("near", task, lambda example: example.label + 0.01)
    far = Fake("far", task, lambda example: example.label if known(example.text) else example.label + 5)
    found = shown([near, far], examples, ["drop:0.3"], tmp_path)
    assert found["by"] == "mse"
    first = found["examples"][0]["asked"][0]
    assert float(first["answers"][1]["noisy"]) == pytest.approx(float(first["gold"]) + 5)
    assert {answer["right"] for answer in first["answers"]} == {None}
    assert found["better"] == {"near": found["better"]["near"], "far": 12 - found["better"]["near"]}
    assert np.isfinite(found["better"]["near"])
