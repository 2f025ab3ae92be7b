"""The benchmark: published parameter counts, figures that say what they mean, JSON lines on standard output."""

from __future__ import annotations

import json

import pytest
from small_run import ROOT, python

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import cases

pytestmark = pytest.mark.usefixtures("quick", "log_lines")


def ask(capsys, *arguments):
    """Returns the status and the figures that the command prints."""
    status = benchmark.main(list(arguments))
    captured = capsys.readouterr()
    return status, [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_parameters_are_the_published_ones(capsys):
    status, figures, _ = ask(capsys, "--case=parameters", f"--config={ROOT}/configs/hlm_base.py")
    assert status == 0
    assert {figure["path"]: figure["value"] for figure in figures} == {
        "pre-training, paper wiring": 132_712_192,
        "pre-training, reference wiring": 133_894_144,
        "classifier, 2 labels": 125_031_170,  # "125M" in the paper
    }
    for figure in figures:
        assert sum(figure["parts"].values()) == figure["value"]
        assert set(figure) == {"case", "path", "value", "unit", "parts"}


def test_cases_may_be_chosen(capsys):
    tiny = f"--config={ROOT}/configs/hlm_base.py:tiny"
    status, figures, _ = ask(capsys, "--case=startup", "--case=parameters", tiny, "--repeats=1")
    assert status == 0
    assert [figure["case"] for figure in figures] == ["startup"] + ["parameters"] * 3
    assert 0 < figures[0]["value"] < 60
    assert figures[1]["value"] < 2_000_000


def test_inference_counts_words(trained, capsys, monkeypatch):
    """On the small text and model: two paths, each with its extremes, and their ratio."""
    monkeypatch.setattr("charlm.data.corpus.prepare", lambda config: trained.data)
    monkeypatch.setattr(cases, "load_config", lambda *_: trained.new_config())
    monkeypatch.setattr(cases, "INFERENCE", (2, 16))
    status, figures, _ = ask(capsys, "--case=inference", "--repeats=3")
    assert status == 0
    assert [figure["path"] for figure in figures] == ["reshape", "table", "table / reshape"]
    reshape, table, ratio = figures
    for figure in (reshape, table):
        assert figure["unit"] == "words/s"
        assert figure["low"] <= figure["value"] <= figure["high"]
        assert figure["value"] * figure["seconds"] == pytest.approx(32, rel=0.3)  # seconds are rounded
        assert figure["batch"] == "2 x 16 words"
        assert 0.1 < figure["distinct_words"] <= 1
    assert ratio["value"] > 0


def test_paths_are_timed_in_turn():
    calls = []
    seconds = cases.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3)
    assert calls == ["a", "b"] * 4  # a warm-up, then three times
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3}


def test_a_figure_is_the_median():
    slow, quick, ratio = cases._figures("x", {"reshape": [4.0, 2.0, 8.0], "table": [1.0, 2.0, 1.0]}, 8, "words/s", n=1)
    assert (slow["value"], slow["low"], slow["high"], slow["seconds"], slow["n"]) == (2.0, 1.0, 4.0, 4.0, 1)
    assert quick["value"] == 8.0
    assert ratio["value"] == 4.0  # the median of 4, 1 and 8


def test_an_unknown_config_is_one_line(capsys):
    status, figures, errors = ask(capsys, "--case=parameters", "--config=configs/none.py")
    assert (status, figures) == (1, [])
    assert errors == "error: --config: no Python file configs/none.py\n"


def test_every_case_gets_a_config_of_its_own(capsys, monkeypatch):
    seen = []

    def spoil(config, repeats):
        seen.append(config.data.train)
        config.data.train = ("gone",)
        return []

    for case in ("parameters", "inference"):
        monkeypatch.setitem(benchmark.TIMED, case, spoil)
    config = f"--config={ROOT}/configs/hlm_base.py"
    assert ask(capsys, "--case=parameters", "--case=inference", config)[0] == 0
    assert seen == [("builtin",)] * 2


def test_peak_memory_is_that_of_the_process_alone():
    held = b"x" * 600_000_000
    done = python("-c", "from charlm.benchmark.cases import peak_mebibytes; print(peak_mebibytes())")
    assert done.returncode == 0, done.stderr
    assert len(held) / 2**20 > 550 > int(done.stdout) > 10
