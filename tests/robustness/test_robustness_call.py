"""Tests `charlm.robustness(model, data)`: the report of the command, from rows of Python or a file."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import webbrowser

import jax
import jax.numpy as jnp
import pytest
from again import again
from small_run import ROOT
from tiny_models import release

import charlm
from charlm.api import reports

FEW = {"noise": ["drop:0.4"], "seeds": 1, "samples": 20, "batch_size": 8}


def rows_of(task, models):
    """Returns rows with the labels that the models of a task know."""
    if task == "classification":
        labels = charlm.load(models.untrained(task)).labels
        words = ("cat", "dog", "mouse", "cow")
        return [(f"the {word} sat", "it slept", labels[n % len(labels)]) for n, word in enumerate(words)]
    if task == "question_answering":
        return [("who sat?", "the cat sat on the mat", "the cat"), ("who ran?", "the dog ran", None)]
    return [("the cat", "the cat sat", 1), ("the cat", "a dog ran", 0)]


@pytest.mark.parametrize("task", [again("classification"), "question_answering", "ranking"])
def test_rows_are_measured_as_a_file_of_them_is(models, tmp_path, task):
    rows = rows_of(task, models)
    report = charlm.robustness(models.untrained(task), rows, tmp_path / "out", **FEW)
    assert report.results["examples"] == len(rows)
    (row,) = [row for row in report.results["noise"] if row["level"]]
    assert (row["kind"], row["level"]) == ("drop", 0.4)
    (file,) = (tmp_path / "out").glob("rows.*")
    again = charlm.robustness([charlm.load(models.untrained(task))], file, tmp_path / "again", **FEW)
    model = charlm.load(models.untrained(task))
    zeros = jax.tree.map(jnp.zeros_like, model.pretrained.params)
    changed = charlm.Model(dataclasses.replace(model.pretrained, params=zeros), path=model.path)
    with pytest.raises(ValueError, match="holds other parameters or another config than the model that was given"):
        charlm.robustness(changed, rows, tmp_path / "changed", **FEW)
    assert again.results["clean"] == report.results["clean"]
    assert again.results["noise"] == report.results["noise"]
    assert json.loads(report.json.read_text(encoding="utf-8"))["examples"] == len(rows)
    assert str(report) == report.markdown.read_text(encoding="utf-8")
    assert repr(report).startswith("Report(")


def test_a_report_is_shown(models, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(webbrowser, "open", lambda address: seen.append(address) or True)
    rows = rows_of("classification", models)
    report = charlm.robustness(models.untrained("classification"), rows, tmp_path, **FEW)
    assert report.show()
    assert seen == [report.html.resolve().as_uri()]
    frame = report._repr_html_()
    assert frame.startswith('<iframe srcdoc="')
    assert frame.count('"') == 4  # those of its own attributes


def test_mistakes(models, tmp_path):
    with pytest.raises(ValueError, match="was fine-tuned for no task"):
        charlm.robustness(str(release("bert")), [("a", "b")], tmp_path)
    with pytest.raises(ValueError, match="expected at least one"):
        charlm.robustness([], [("a", "b")], tmp_path)
    with pytest.raises(ValueError, match=r"^data, row 0: the model reads two texts, and this row has one"):
        charlm.robustness(models.untrained("classification"), [("a", "b")], tmp_path)
    with pytest.raises(ValueError, match=r"^data, row 0: expected text, pair, label"):
        charlm.robustness(models.untrained("classification"), [("a",)], tmp_path)


def test_the_package_can_be_called_and_used():
    code = "import charlm\nfrom charlm.robustness.settings import LEVELS\nassert LEVELS\n"
    code += "try:\n    charlm.robustness([], [])\nexcept ValueError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "models: expected at least one\n", done.stderr
    assert reports.robustness is not charlm.robustness


def test_rows_for_a_model_that_reads_columns_by_number(tmp_path, log_lines):
    """The classifier that comes with charlm learned from tables without names."""
    model = charlm.load("hlm-small-en-emotions")
    rows = [("I love it", "love"), ("so sad", "sadness")] * 2
    report = charlm.robustness(model, rows, noise=["swap:0.1"], seeds=1, samples=10, out=tmp_path / "report")
    assert report.results["clean"]["hlm-small-en-emotions"]["accuracy"] > 0.5
    assert report.results["examples"] == 4
    with pytest.raises(ValueError, match="none of its tags is one of the model's: ZZZ; expected ADJ, ADP"):
        charlm.robustness("hlm-small-en-pos", [(["a"], ["ZZZ"])], noise=["swap:0.1"], out=tmp_path / "report")
    lines = [line for line in log_lines.lines if "is replaced" in line]
    assert len(lines) == 1
    assert "the report on hlm-small-en-emotions and" in lines[0]
