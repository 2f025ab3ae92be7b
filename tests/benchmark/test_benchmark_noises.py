"""Tests the case `noises`: a figure for every kind of noise that needs no list."""

from __future__ import annotations

import json

import pytest
from small_run import write_text

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import noises
from charlm.benchmark.text import TextShape
from charlm.text.noise import KINDS, Noise

pytestmark = pytest.mark.usefixtures("log_lines")


def test_every_kind_is_timed_on_the_text(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(noises, "SENTENCES", TextShape(8, 12))
    text = write_text(tmp_path / "text.txt")
    assert benchmark.main(["--case=noises", f"--text={text}", "--repeats=2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {Noise.parse(figure["path"]).kind for figure in found} == {name for name in KINDS if not KINDS[name].listed}
    listed = tmp_path / "list.dat"
    listed.write_text("$word\nwrod\n", encoding="utf-8")
    given = ["--case=noises", f"--text={text}", "--repeats=1"]
    assert benchmark.main([*given, f"--misspellings={listed}"]) == 0
    more = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {Noise.parse(figure["path"]).kind for figure in more} == set(KINDS)
    assert [figure["path"] for figure in more if figure.get("misspellings") == str(listed)] == ["misspelling:0.1"]
    assert benchmark.main([*given, "--misspellings=/none"]) == 1
    assert "--misspellings=/none cannot be read" in capsys.readouterr().err
    assert benchmark.main(["--case=counts", f"--misspellings={listed}"]) == 1
    assert "--misspellings is read by noises" in capsys.readouterr().err
    for figure in found:
        assert 0 < figure["low"] <= figure["value"] <= figure["high"]
        assert (figure["unit"], figure["batch"], figure["rounds"]) == ("sentences/s", "8 x 12 words", 2)
        assert (figure["text"], figure["config"]) == (str(text), "")
        assert figure["processor"]
