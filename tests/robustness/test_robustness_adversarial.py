"""Tests the adversarial search: never milder than no edit, within its budget, the same in every run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm.robustness import adversarial
from charlm.robustness.adversarial import Editable, attack
from charlm.robustness.attacks import attacked
from charlm.robustness.cells import Cells
from charlm.robustness.settings import ReportSettings
from charlm.robustness.subjects import load
from charlm.text.noise import single_edits

TASKS = ("tagging", "classification", "regression", "question_answering", "ranking")


@pytest.fixture(scope="module", params=TASKS)
def case(request, models, taggers):
    """A model and four examples of its task."""
    path = taggers[1] if request.param == "tagging" else models.untrained(request.param)
    (subject,) = load([path], 8)
    return subject, subject.task.read([models.data(request.param)], training=False)[:4]


def texts_of(example):
    """Every text of an example, by field."""
    fields = ("words", "text", "pair", "question", "context")
    return {name: getattr(example, name) for name in fields if hasattr(example, name)}


def test_zero_edits_change_nothing(case):
    subject, examples = case
    found = attack(subject.task, subject.batches, examples, 0)
    predictions = subject.batches.predict(examples)
    for example, one, prediction in zip(examples, found, predictions, strict=True):
        assert one.example == example
        assert (one.edits, one.loss) == ((), one.attacked_loss)
        assert one.prediction == one.attacked_prediction == prediction


def test_losses_rise_within_the_budget_by_single_edits(case):
    subject, examples = case
    found = attack(subject.task, subject.batches, examples, 2)
    assert found == attack(subject.task, subject.batches, examples, 2), "the same every time"
    predictions, losses = subject.batches.predict_with_loss([one.example for one in found])
    for n, (example, one) in enumerate(zip(examples, found, strict=True)):
        before, after = Editable.of(subject.task, example), Editable.of(subject.task, one.example)
        assert one.attacked_loss >= one.loss
        assert one.attacked_loss == pytest.approx(losses[n], abs=1e-4)
        assert (one.attacked_loss > one.loss) == bool(one.edits)
        assert len(one.edits) == len({edit.word for edit in one.edits}) <= 2
        wanted = list(before.words)
        for edit in one.edits:
            assert wanted[edit.word] == edit.before
            assert edit.after in single_edits(edit.before)
            wanted[edit.word] = edit.after
        if subject.task.name == "tagging":
            assert list(one.example.words) == wanted
            assert one.example.tags == example.tags
            assert one.attacked_prediction == predictions[n]
        else:
            assert "".join("".join(after.words).split()) == "".join(wanted)
        kept = {"question_answering": ("context",), "ranking": ("text",)}.get(subject.task.name, ())
        for name in kept:
            assert texts_of(one.example)[name] == texts_of(example)[name]
        assert one.example._replace(**texts_of(example)) == example, "labels, ids and places stay"
    assert any(one.edits for one in found)


def test_more_edits_are_never_milder(case):
    subject, examples = case
    one, two = (attack(subject.task, subject.batches, examples, edits) for edits in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert b.attacked_loss >= a.attacked_loss
        assert b.edits[: len(a.edits)] == a.edits


def test_one_edit_is_the_worst_of_the_word_that_matters_most(case):
    """By hand, with the losses of all variants at once."""
    subject, examples = case
    (found,) = attack(subject.task, subject.batches, examples[:1], 1)
    text = Editable.of(subject.task, examples[0])
    places = [n for n, word in enumerate(text.words) if word.isalpha() and single_edits(word)]
    unknown = [text.replaced(n, "x" * len(text.words[n])).build() for n in places]
    place = places[int(np.argmax(subject.batches.predict_with_loss(unknown)[1]))]
    edits = single_edits(text.words[place])
    losses = subject.batches.predict_with_loss([text.replaced(place, edit).build() for edit in edits])[1]
    assert found.attacked_loss == pytest.approx(max(losses.max(), found.loss), abs=1e-4)
    if found.edits:
        assert found.edits[0].word == place
        assert losses[edits.index(found.edits[0].after)] == pytest.approx(losses.max(), abs=1e-4)


def test_small_chunks_find_the_same(case, monkeypatch):
    subject, examples = case
    want = attack(subject.task, subject.batches, examples[:2], 1)
    monkeypatch.setattr(adversarial, "CHUNK", 7)
    found = attack(subject.task, subject.batches, examples[:2], 1)
    for a, b in zip(want, found, strict=True):
        assert a.attacked_loss == pytest.approx(b.attacked_loss, abs=1e-4)
        assert len(a.edits) == len(b.edits)


def test_the_entry_is_counted_from_the_examples(case, tmp_path):
    subject, examples = case
    settings = ReportSettings((subject.path,), ("x",), str(tmp_path), adversarial=1)
    entry, rows = attacked(subject, examples, "key", settings, Cells(tmp_path))
    again, _ = attacked(subject, examples, "key", settings, Cells(tmp_path))
    assert entry == again
    found = attack(subject.task, subject.batches, examples, 1)
    task = subject.task
    assert entry["clean"] == pytest.approx(task.scores(examples, [one.prediction for one in found])[task.metric])
    after = [one.attacked_prediction for one in found]
    assert entry["attacked"] == pytest.approx(task.scores(examples, after)[task.metric])
    assert entry["edits_used"] == pytest.approx(np.mean([len(one.edits) for one in found]))
    assert (entry["edits"], entry["examples"]) == (1, 4)
    assert (entry["flipped"] is None) == (task.name in ("regression", "ranking"))
    if task.name == "classification":
        assert entry["flipped"] == np.mean([a.prediction.label != a.attacked_prediction.label for a in found])
    for one, row in zip(found, rows, strict=True):
        assert task.decoded(row["prediction"]) == one.prediction
    more = ReportSettings((subject.path,), ("x",), str(tmp_path), adversarial=2)
    entry, rows = attacked(subject, examples, "key", more, Cells(tmp_path))
    assert entry["edits"] == 2
    assert max(len(row["edits"]) for row in rows) == 2, "not those of one edit"


def test_examples_are_written_as_json_lines(report):
    folder, results = report
    for row in results["adversarial"]:
        lines = (folder / "adversarial" / f"{row['model']}.jsonl").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        assert len(found) == row["examples"] == 3
        assert row["edits_used"] == pytest.approx(np.mean([len(one["edits"]) for one in found]))
        assert row["flipped"] == np.mean([one["prediction"] != one["attacked_prediction"] for one in found])
        for one in found:
            assert one["attacked_loss"] >= one["loss"]
            differing = [
                n for n, pair in enumerate(zip(one["original"], one["attacked"], strict=True)) if len({*pair}) > 1
            ]
            assert differing == [edit["word"] for edit in one["edits"]]
