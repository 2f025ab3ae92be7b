"""The benchmark against transformers: two speeds of equal computations, and their ratio."""

from __future__ import annotations

import json
import sys

import pytest

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import bert

pytestmark = pytest.mark.usefixtures("quick", "log_lines")


@pytest.mark.torch
def test_both_compute_the_same_and_their_speeds_are_compared(capsys, monkeypatch):
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    monkeypatch.setattr(bert, "BATCH", (2, 7))
    small = {"vocab_size": 50, "hidden": 16, "layers": 2, "heads": 2, "ffn": 24, "initializer": "lecun"}
    monkeypatch.setattr(bert, "SHAPE", bert.SHAPE | small)
    assert benchmark.main(["--case=bert", "--repeats=3"]) == 0
    ours, theirs, ratio = map(json.loads, capsys.readouterr().out.splitlines())
    assert [figure["path"] for figure in (ours, theirs, ratio)] == ["charlm", "transformers", "charlm / transformers"]
    for figure in (ours, theirs):
        assert 0 < figure["low"] <= figure["value"] <= figure["high"]
        assert (figure["unit"], figure["batch"]) == ("subwords/s", "2 x 7 subwords")
    assert ratio["largest_difference"] < 1e-5
    assert ratio["value"] > 0


def test_what_is_not_installed_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert benchmark.main(["--case=bert"]) == 1
    assert "error: bert: torch is not installed: pip install 'charlm[torch]' transformers" in capsys.readouterr().err
