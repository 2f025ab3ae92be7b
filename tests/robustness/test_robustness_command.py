"""Tests the command line of the report, other tasks from end to end, and mistakes in one line."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from urllib.parse import quote

import pytest
from small_run import python
from tiny_models import release

from charlm.data.conll import read_tagged
from charlm.robustness.__main__ import main


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Runs the command with a stand-in for what writes the report; returns status, results and standard error."""
    made = []
    stub = types.ModuleType("charlm.robustness.render")

    def write_report(results, folder):
        made.append((results, folder))
        return [folder / name for name in ("report.json", "report.md", "report.html")]

    stub.write_report = write_report
    monkeypatch.setitem(sys.modules, "charlm.robustness.render", stub)
    monkeypatch.setattr("charlm.robustness.__main__.start_logging", lambda: None)

    def run(*arguments, out=tmp_path / "out"):
        made.clear()
        status = main([*map(str, arguments), f"--out={out}"])
        assert not made or made[0][1] == out
        return status, made[0][0] if made else None, capsys.readouterr().err

    return run


@pytest.mark.parametrize("task", ["classification", "regression", "question_answering", "ranking"])
def test_every_task_from_end_to_end(command, models, task, tmp_path):
    path = models.untrained(task)
    options = ["--noise", "drop", "spaces:0.3", "--levels=0,.4", "--seeds=2", "--samples=50", "--batch-size=8"]
    status, results, error = command("--models", path, "--data", models.data(task), *options, f"--task={task}")
    assert (status, error) == (0, "")
    assert results == json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert (results["task"], results["models"][0]["family"]) == (task, "bert")
    metric, (name,) = results["metric"], results["clean"]
    assert metric in results["clean"][name]
    for row in results["noise"]:
        values = row["scores"][metric]["values"]
        if row["level"]:
            assert len(values) == 2
            assert row["drop"]["low"] <= row["drop"]["difference"] + 1e-9
            assert row["drop"]["difference"] <= row["drop"]["high"] + 1e-9
            assert row["changed"] > 0.1
            if task != "regression":  # whose score is no mean over examples, nor F1 of sums
                assert row["drop"]["difference"] == pytest.approx(results["clean"][name][metric] - sum(values) / 2)
    counts = {row["group"]: row["count"] for row in results["groups"] if row["kind"] == "drop"}
    assert counts["split"] + counts["in vocabulary"] == counts["all"]
    assert counts["unseen in training"] + counts["seen in training"] == counts["all"]
    assert counts["all"] == 2 * (16 if task != "ranking" else results["examples"] // 3)
    assert [row["kind"] for row in results["sensitivity"]] == ["drop"]
    assert results["sensitivity"][0]["changed"] > 0
    assert "--seeds=2" in results["settings"]["command"]


def test_a_model_behind_a_defence_and_under_attack(command, models, tmp_path):
    path, data = models.untrained("classification"), models.data("classification")
    options = ["--noise=homoglyph:1", "--seeds=1", "--samples=20", "--batch-size=8", "--defence=nfkc"]
    options += ["--attack=pruthi2019", "--adversarial-examples=2"]
    status, results, error = command("--models", path, "--data", data, *options)
    assert (status, error) == (0, "")
    plain, defended = (model["name"] for model in results["models"])
    assert defended == f"{plain} + nfkc"
    assert [model["defence"] for model in results["models"]] == ["", "nfkc"]
    assert results["clean"][plain] == results["clean"][defended], "there is nothing to correct"
    under = {row["model"]: row["scores"] for row in results["noise"]}
    assert under[defended]["accuracy"]["mean"] == results["clean"][plain]["accuracy"], "all letters are turned back"
    unknown = {row["model"]: row["unknown"] for row in results["segmentation"] if row["kind"]}
    assert unknown[plain] > unknown[defended], "what a model reads is counted behind its defence"
    assert {row["model"] for row in results["sensitivity"]} == {plain}
    assert [(row["model"], row["recipe"], row["examples"]) for row in results["adversarial"]] == [
        (plain, "pruthi2019", 2),
        (defended, "pruthi2019", 2),
    ]
    for row in results["adversarial"]:
        assert row["queries"] is None or row["queries"] >= 1
        name = quote(f"{row['model']}.pruthi2019.jsonl", safe=" ")
        lines = (tmp_path / "out" / "adversarial" / name).read_text(encoding="utf-8")
        assert sum(json.loads(line)["skipped"] for line in lines.splitlines()) == row["skipped"]
    ranker, passages = models.untrained("regression"), models.data("regression")
    error = command("--models", ranker, "--data", passages, "--attack=pruthi2019")[2]
    assert "--attack: regression predicts numbers, which no attack makes wrong" in error


def test_words_that_are_only_read_are_in_no_group_and_no_attack_wins_by_them(command, models, tmp_path):
    path, data = models.untrained("tagging", "bert", "O"), models.data("tagging")
    options = ["--noise=drop:0.4", "--seeds=2", "--samples=20", "--batch-size=8", "--attack=deepwordbug"]
    status, results, error = command("--models", path, "--data", data, *options, "--adversarial=2")
    assert (status, error) == (0, "")
    gold = [sentence.tags for sentence in read_tagged(data)]
    counts = {row["group"]: row["count"] for row in results["groups"] if row["kind"]}
    assert counts["all"] == 2 * sum(tag != "O" for tags in gold for tag in tags)
    assert 0 < counts["changed"] < counts["all"]
    assert counts["changed"] + counts["unchanged"] == counts["all"]
    flips = []
    for file in sorted((tmp_path / "out" / "adversarial").glob("*.jsonl")):
        for tags, line in zip(gold, file.read_text(encoding="utf-8").splitlines(), strict=True):
            row = json.loads(line)
            pairs = zip(tags, row["prediction"], row["attacked_prediction"], strict=True)
            moved = {tag == "O" for tag, before, after in pairs if before != after}
            flips.append((row.get("succeeded", False in moved), moved))
    assert all(won == (False in moved) for won, moved in flips)
    assert (False, {True}) in flips, "a flip of words that are only read"
    (plain,) = [row for row in results["adversarial"] if row.get("recipe") is None]
    assert plain["flipped"] == sum(won for won, _ in flips[len(gold) :]) / len(gold)


def test_scores_by_a_column_of_a_file_with_other_columns(command, models, tmp_path):
    """As HateCheck's cases, which have a functionality each."""
    path = models.untrained("classification")
    first, *rows = Path(models.data("classification")).read_text(encoding="utf-8").splitlines()
    at = {name: n for n, name in enumerate(first.split("\t"))}
    kinds = [("spell_leet_h", "spell_space_add_h")[n % 4 == 0] for n in range(len(rows))]
    cases = [[row.split("\t")[at[name]] for name in ("sentence", "label")] for row in rows]
    lines = [f"{kind},{text},{label}" for kind, (text, label) in zip(kinds, cases, strict=True)]
    lines.insert(1, f"spell_leet_h,,{cases[0][1]}")
    table = tmp_path / "cases.csv"
    table.write_text("\n".join(["functionality,test_case,label_gold", *lines, ""]), encoding="utf-8")
    columns = ["--columns", "text=test_case", "label=label_gold", "group=functionality"]
    options = ["--noise=drop:0.1", "--seeds=1", "--samples=20", "--batch-size=8"]
    status, results, error = command("--models", path, "--data", table, *columns, "pair=test_case", *options)
    assert (status, error) == (0, "")
    found = {row["group"]: row for row in results["groups"] if row["kind"] is None}
    leet, added = found["functionality=spell_leet_h"], found["functionality=spell_space_add_h"]
    assert (leet["count"], added["count"]) == (kinds.count("spell_leet_h"), kinds.count("spell_space_add_h"))
    mean = (leet["count"] * leet["score"] + added["count"] * added["score"]) / len(rows)
    assert results["examples"] == len(rows)
    assert f"skipped 1 x empty text: {table}:3" in results["notes"]
    assert mean == pytest.approx(found["all"]["score"])


def test_statistics_that_are_no_sums_of_scores_are_pooled(command, models):
    """Of one draw, the drop is the difference of the scores, whatever the score."""
    options = ["--noise", "drop:0.4", "--seeds=1", "--samples=50", "--batch-size=8"]
    path, data = models.untrained("regression"), models.data("regression")
    _, results, _ = command("--models", path, "--data", data, *options)
    (clean,) = results["clean"].values()
    (row,) = results["noise"]
    assert row["drop"]["difference"] == pytest.approx(clean["pearson"] - row["scores"]["pearson"]["mean"])


def test_the_first_examples_alone_and_notes(command, models, taggers, tmp_path):
    words = tmp_path / "train.txt"
    words.write_text("the cat", encoding="utf-8")
    options = ["--noise=drop:0.2", "--seeds=1", "--samples=20", "--batch-size=8", "--examples=5"]
    run = ["--models", taggers[0], "--data", models.data("tagging"), *options]
    _, results, _ = command(*run)
    assert results["examples"] == 5
    assert results["notes"] == [
        "no groups of split words: no model has a tokenizer of pieces (--tokenizer FOLDER names one)"
    ]
    assert {row["group"] for row in results["groups"]} == {
        "all", "seen in training", "unseen in training", "changed", "unchanged"
    }  # fmt: skip
    _, results, _ = command(*run, f"--train-words={words}", f"--tokenizer={release('bert')}")
    assert results["notes"] == []
    counts = {row["group"]: row["count"] for row in results["groups"] if row["kind"] is None}
    assert 0 < counts["seen in training"] < counts["unseen in training"]
    assert counts["split"] + counts["in vocabulary"] == counts["all"]


def test_misspellings(command, models, taggers, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("cat kat\nhouse hause hous\nsat satt\nthe teh\n", encoding="utf-8")
    options = ["--noise=misspelling", "--levels=1", "--seeds=1", "--samples=20", "--batch-size=8", "--examples=8"]
    run = ["--models", taggers[1], "--data", models.data("tagging"), *options, f"--misspellings={words}"]
    _, results, _ = command(*run)
    assert 0 < results["noise"][0]["changed"] < 1
    before = results["noise"][0]["scores"]
    assert len(list((tmp_path / "out" / "cells").glob("score-*misspelling*"))) == 1
    words.write_text("cat kitty\nthe t-h-e\n", encoding="utf-8")
    assert command(*run)[1]["noise"][0]["changed"] < results["noise"][0]["changed"]
    assert len(list((tmp_path / "out" / "cells").glob("score-*misspelling*"))) == 2
    assert before


def test_mistakes_are_one_line(command, models, taggers, tmp_path):
    bert, data = taggers[1], models.data("tagging")
    run = lambda *arguments: command(*arguments)
    unlabelled = tmp_path / "unlabelled.tsv"
    unlabelled.write_text("sentence\tsecond\tlabel\nthe cat\tin the town\t\n", encoding="utf-8")
    unanswered = tmp_path / "unanswered.json"
    question = {"id": "q", "question": "which ?"}  # of a test set whose answers are not published
    paragraphs = [{"context": "the cat", "qas": [question]}]
    unanswered.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    classes, answers = models.untrained("classification"), models.untrained("question_answering")
    cases = [
        (["--models", bert, "--data", data, "--levels=a"], "--levels=a: expected rates between commas"),
        (["--models", bert, "--data", data, "--levels="], "levels=(): expected a sequence of at least one"),
        (["--models", bert, "--data", data, "--noise", "keybord"], "did you mean keyboard"),
        (["--models", bert, "--data", data, "--noise", "misspelling"], "needs a list of misspellings"),
        (["--models", bert, "--data", data, "--misspellings=/none"], "--misspellings=/none cannot be read"),
        (["--models", bert, "--data", "/none.conll"], "--data: '/none.conll' does not exist"),
        (["--models", "/none", "--data", data], "/none"),
        (["--models", release("bert"), "--data", data], "fine-tuned for no task"),
        (["--models", bert, bert, "--data", data], "is given twice"),
        (["--models", bert, classes, "--data", data], "was fine-tuned for classification"),
        (["--models", bert, "--data", data, "--task=ranking"], "--task=ranking:"),
        (["--models", bert, "--data", data, "--train-words=/none"], "--train-words=/none cannot be read"),
        (["--models", bert, "--data", data, "--tokenizer=/none"], "/none"),
        (["--models", classes, "--data", unlabelled], "unlabelled.tsv"),
        (["--models", classes, "--data", unlabelled, "--columns", "txt=a"], "--columns=txt=a: expected NAME=COLUMN"),
        (["--models", classes, "--data", unlabelled, "--columns", "text"], "--columns=text: expected NAME=COLUMN"),
        (["--models", bert, "--data", data, "--columns", "text=a"], "--columns: tagging reads other files"),
        (["--models", answers, "--data", unanswered], "q has no label: nothing to compare predictions with"),
    ]
    for arguments, message in cases:
        status, results, error = run(*arguments)
        assert (status, results) == (1, None), arguments
        assert error.startswith("error: "), arguments
        assert message in error, error
        assert error.count("\n") == 1
    assert not list((tmp_path / "out").rglob("*.npz")), "nothing was measured"


def test_other_labels_cannot_be_compared(command, models, taggers):
    path = models.folder / "other_labels"
    if not path.exists():
        from charlm.families.pretrained import from_pretrained

        model = from_pretrained(taggers[1])
        labels = [label.replace("ANIMAL", "BEAST") for label in model.metadata["task"]["labels"]]
        metadata = {**model.metadata, "task": model.metadata["task"] | {"labels": labels}}
        model.__class__(**{**model.__dict__, "metadata": metadata}).save_pretrained(path)
    status, _, error = command("--models", taggers[1], path, "--data", models.data("tagging"))
    assert status == 1
    assert "other labels than" in error
    assert "'B-BEAST' only in" in error


def test_help_needs_no_jax():
    code = "import sys, charlm.robustness.__main__ as m\ntry: m.main(['--help'])\nfinally: print('jax' in sys.modules)"
    found = python("-c", code)
    assert "--adversarial-examples" in found.stdout
    assert found.stdout.strip().endswith("False")
