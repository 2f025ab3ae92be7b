"""Tests the training curves: which metrics are drawn, of which runs, and what is said of folders without any."""

from __future__ import annotations

import json
import re

import pytest

from charlm import plot

PRETRAINED = [
    {"step": 0, "heldout_loss": 3.0, "heldout_bits_per_char": 4.0, "heldout_words": 100.0},
    {"step": 10, "loss": 2.0, "bits_per_char": 3.0, "words_per_second": 50.0, "grad_norm": 1.0},
    {"step": 20, "loss": 1.0, "bits_per_char": float("nan"), "words_per_second": 60.0, "heldout_loss": 1.5},
]  # fmt: skip
TUNED = [
    {"step": 5, "train_loss": 0.7, "train_rows_per_second": 9.0, "train_epoch": 1.0, "train_tflops_per_second": 0.1},
    {"step": 5, "dev_loss": 0.6, "dev_accuracy": 0.8},
]


def write(folder, lines):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "damaged\n")
    return str(folder)


@pytest.fixture
def runs(tmp_path):
    write(tmp_path / "tags" / "seed_0", TUNED)
    write(tmp_path / "tags" / "seed_1", TUNED)
    return [write(tmp_path / "hlm", PRETRAINED), str(tmp_path / "tags")]


def test_a_run_has_curves_of_training_and_of_evaluations(runs):
    hlm, *tagged = plot.read_runs([runs[0], *runs])
    assert hlm.trained["loss"] == [(10, 2.0), (20, 1.0)]
    assert hlm.trained["bits_per_char"] == [(10, 3.0)], "what is not finite is left out"
    assert hlm.evaluated == {"loss": [(0, 3.0), (20, 1.5)], "bits_per_char": [(0, 4.0)], "words": [(0, 100.0)]}
    assert [run.name for run in tagged] == [f"{runs[1]}/seed_0", f"{runs[1]}/seed_1"]
    assert tagged[0].evaluated["accuracy"] == [(5, 0.8)]


def test_the_usual_metrics_are_losses_scores_and_speed(runs):
    read = plot.read_runs(runs)
    assert plot.chosen_metrics(read) == ["loss", "bits_per_char", "accuracy", "words_per_second", "rows_per_second"]
    assert plot.chosen_metrics(read, ["grad_norm", "loss", "loss"]) == ["grad_norm", "loss"]
    with pytest.raises(ValueError, match=r"^--metric=los: none of the runs has it; did you mean loss\?; they have acc"):
        plot.chosen_metrics(read, ["los"])


@pytest.mark.parametrize("flags", [[], ["--log-x", "--log-y"], ["--metric", "loss"]])
def test_a_figure_has_a_panel_for_each_metric(runs, tmp_path, flags, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "curves.svg"
    assert plot.main([*runs, "--out", str(out), *flags]) == 0
    assert re.fullmatch(rf"{re.escape(str(out))}: loss.* of 3 runs, up to step 20\n", capsys.readouterr().out)
    assert out.read_text().count('id="axes_') >= (1 if "--metric" in flags else 5)
    read = plot.read_runs(runs)
    drawn = plot.draw(read, ["loss", "bits_per_char"], log_x="--log-x" in flags)
    trained, evaluated = drawn.axes[0].lines[:2]
    assert trained.get_xydata().tolist() == [[10, 2.0], [20, 1.0]]
    assert evaluated.get_xydata().tolist() == [[0, 3.0], [20, 1.5]]["--log-x" in flags :]
    assert trained.get_linestyle() != evaluated.get_linestyle()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "is no folder: expected the workdir of a run"),
        (lambda folder: folder.mkdir(), "is no run with metrics: it has no metrics.jsonl"),
        (lambda folder: write(folder, []), "is no run with metrics: metrics.jsonl there holds no metrics yet"),
    ],
)
def test_a_folder_without_metrics_is_refused_in_one_line(tmp_path, make, message, capsys):
    pytest.importorskip("matplotlib")
    make(tmp_path / "run")
    assert plot.main([str(tmp_path / "run"), "--out", str(tmp_path / "x.svg")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/run {message}\n"
    assert not (tmp_path / "x.svg").exists()


def test_a_file_that_is_no_figure_is_refused(runs, capsys):
    pytest.importorskip("matplotlib")
    assert plot.main([*runs, "--out", "curves.txt"]) == 1
    assert capsys.readouterr().err.startswith("error: --out=curves.txt: expected a file that ends in .")
    assert plot.main([*runs, "--out", "curves.pgf"]) == 1  # which needs LaTeX
    assert ".svg" in (said := capsys.readouterr().err)
    assert ", .pgf" not in said
