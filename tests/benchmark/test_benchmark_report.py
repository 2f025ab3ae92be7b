"""Tests the file of figures: which figures replace each other, their tables and plots, and which files are refused."""

from __future__ import annotations

import json
import math

import pytest
from benchmark_jobs import figure

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import cases, plot, report
from charlm.benchmark.cases import Outcome

pytestmark = pytest.mark.usefixtures("log_lines")

SAVED = [
    figure("inference", "table", 2000.0),
    figure("inference", "hf_bert", 1000.0),
    figure("inference", "table / hf_bert", 1.5, unit="x"),
    figure("scaling", "table", 500.0, words=64),
    figure("scaling", "table", 250.0, words=128, batch="2 x 8 words"),
    {"case": "parameters", "path": "pre-training", "value": 12345, "unit": "parameters"},
]


def test_tables_and_plot_of_saved_figures(capsys, tmp_path):
    path, picture = tmp_path / "saved.jsonl", tmp_path / "picture.svg"
    first = figure("inference", "table", 1.0)  # measured again below: the later one counts
    path.write_text("".join(json.dumps(one) + "\n" for one in [first, *SAVED]))
    assert benchmark.main([f"--from={path}", f"--plot={picture}"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["table", "2,000", "1,999", "2,001", "250.00", "500.0", "1.5", "9", "11", "77"] in lines
    assert [line[1] for line in lines if line[:1] == ["table"]] == ["2,000", "1.50", "64", "128"]
    assert ["times", "as", "fast", "as", "(4", "x", "8", "words)", "hf_bert"] in lines
    assert ["table", "128", "250", "249", "251", "31.25", "4,000.0", "1.5", "9", "11", "77"] in lines
    assert ["pre-training", "12,345", "parameters"] in lines
    drawn = picture.read_text()
    assert drawn.startswith("<?xml")
    for label in ("hf_bert", "scaling: the same words, in longer texts", "inference, 4 x 8 words"):
        assert f"<!-- {label} -->" in drawn


def write(path, figures):
    path.write_text("".join(json.dumps(one) + "\n" for one in figures))
    return str(path)


DIFFERENT = [
    {},
    {"models": "smoke"},
    {"config": "large.py"},
    {"wordpiece": "vocab.txt"},
    {"texts": "drawn"},
    {"text": "wiki.txt"},
    {"dtype": "bfloat16"},
    {"compile": False},
    {"processor": "slide rule"},
    {"threads": 4},
    {"versions": {"jax": "0.11"}},
    {"device": "1 x GPU"},
    {"batch": "8 x 8 words"},
]


def test_only_measurements_alike_in_everything_replace_each_other(tmp_path):
    each = [
        [figure("inference", path, value, **about) for path, value in (("table", 4.0), ("bert", 2.0))]
        + [figure("inference", "table / bert", number / 2, unit="x", **about)]
        for number, about in enumerate(DIFFERENT, 1)
    ]
    first, again = [one for group in each for one in group], figure("inference", "table", 7.0)
    path = write(tmp_path / "x.jsonl", [*first, again])
    found = report.read(path)
    assert len(found) == 3 * len(DIFFERENT)
    assert found[0] == again
    assert found[1:] == first[1:]
    # Each has a table and a matrix of its own: nothing of another measurement stands in it.
    tables = report.table(found).split("\n\n")
    assert len(tables) == len(DIFFERENT)
    for number, part in enumerate(tables, 1):
        lines = [line.split() for line in part.splitlines()]
        assert [line[0] for line in lines[1:]] == ["path", "table", "bert", "times", "table"]
        assert lines[-1] == ["table", f"{number / 2:.2f}"]


def test_titles_say_what_was_measured():
    def title(**about):
        return report.table([figure("inference", "table", 4.0, **about)]).splitlines()[0]

    assert title().startswith(
        "inference (4 x 8 words) on builtin: consecutive texts, 30% distinct words, float32, base.py"
    )
    assert title(text="wiki.txt", texts="drawn").startswith("inference (4 x 8 words) on wiki.txt: drawn texts, ")
    assert "tiny models: no measurement" in title(models="smoke")
    assert "pieces of vocab.txt" in title(wordpiece="vocab.txt")


def test_a_smoke_run_keeps_the_real_one(monkeypatch, tmp_path):
    """Two runs into one file: the figures of the first are still there."""
    output = tmp_path / "out.jsonl"
    for models, value in ((cases.PUBLISHED, 100.0), (cases.SMOKE, 9000.0)):
        made = Outcome([figure("inference", "table", value, models=models)], {})
        monkeypatch.setattr(cases, "run", lambda *_, made=made: made)
        assert benchmark.main(["--case=inference", f"--output={output}"]) == 0
    assert [(one["models"], one["value"]) for one in report.read(str(output))] == [
        (cases.PUBLISHED, 100.0), (cases.SMOKE, 9000.0),
    ]  # fmt: skip


def test_a_picture_has_a_panel_for_every_setting(tmp_path):
    figures = [figure("inference", "table", 4.0), figure("inference", "table", 5.0, texts="drawn", text="wiki.txt")]
    figures += [figure("scaling", "table", 4.0 * n, words=n) for n in (2, 4)]
    plot.plot(figures, str(tmp_path / "x.svg"))
    drawn = (tmp_path / "x.svg").read_text()
    assert drawn.count("<!-- inference, 4 x 8 words -->") == 2
    assert "texts: drawn" in drawn
    assert "dtype" not in drawn  # all have the same


BAD = figure("inference", "table", 4.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((json.dumps({k: v for k, v in BAD.items() if k != name}), f"line 2: '{name}' is missing") for name in
          ("case", "path", "unit", "value", "low", "texts_per_second", "cpu_seconds", "tokens", "batch")),
        (json.dumps({k: v for k, v in figure("scaling", "table", 1.0).items() if k != "words"}), "'words' is missing"),
        (json.dumps(BAD | {"value": "4"}), "line 2: 'value' is '4': expected a number"),
        (json.dumps(BAD | {"batch": [4, 8]}), "line 2: 'batch' is [4, 8]: expected a string"),
        (json.dumps(BAD | {"mfu": "high"}), "line 2: 'mfu' is 'high': expected a number"),
        (json.dumps(BAD | {"value": math.nan}), "'value' does not lie between 'low' and 'high'"),
        (json.dumps(BAD | {"low": 5.0}), "'value' does not lie between 'low' and 'high'"),
        ("[1]", "line 2 is no figure of the benchmark"),
        ("", "line 2 is no figure of the benchmark"),
    ],
)  # fmt: skip
def test_a_figure_that_lacks_something_is_named(capsys, tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(figure("inference", "bert", 4.0)) + f"\n{line}\n")
    assert benchmark.main([f"--from={path}"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: --from={path}: ")
    assert message in error


def test_a_file_without_figures_is_a_mistake(capsys, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("")
    assert benchmark.main([f"--from={path}"]) == 1
    assert capsys.readouterr() == ("", f"error: --from={path}: no figures in it\n")


@pytest.mark.parametrize("name", [*BAD])
def test_whatever_is_missing_there_is_no_traceback(capsys, tmp_path, name):
    for one in SAVED:
        for broken in ({k: v for k, v in one.items() if k != name}, one | {name: None}, one | {name: [{}]}):
            path = write(tmp_path / "x.jsonl", [broken])
            status = benchmark.main([f"--from={path}"])
            assert status in (0, 1)
            assert len(capsys.readouterr().err.splitlines()) == status


def test_nothing_to_draw_is_said(capsys, tmp_path):
    path = write(tmp_path / "x.jsonl", SAVED[-1:])
    assert benchmark.main([f"--from={path}", f"--plot={tmp_path / 'x.png'}"]) == 1
    assert "no figures of inference" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "case", "message"),
    [
        ("x.doc", "inference", "the name must end in one of ."),
        ("x", "inference", "the name must end in one of"),
        ("none/x.png", "scaling", "there is no folder"),
        ("folder.png", "inference", "cannot be written"),
        ("x.png", "memory", "nothing to draw: choose inference, training_step, scaling with --case"),
    ],
)
def test_a_picture_that_cannot_be_written_is_found_first(capsys, monkeypatch, tmp_path, target, case, message):
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr(cases, "run", lambda *_: pytest.fail("measured before the target was looked at"))
    assert benchmark.main([f"--case={case}", f"--plot={tmp_path / target}"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"error: --plot={tmp_path / target}: {message}" in printed.err
    assert len(printed.err.splitlines()) == 1


def test_a_trace_that_cannot_be_written_is_found_first(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cases, "run", lambda *_: pytest.fail("measured before the target was looked at"))
    assert benchmark.main(["--case=inference", f"--profile={tmp_path / 'file' / 'traces'}"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: --profile={tmp_path}/file/traces: ")


def test_a_trace_needs_a_path_in_jax(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    assert benchmark.main(["--case=inference", "--paths", "canine", f"--profile={tmp_path / 'traces'}"]) == 1
    assert (
        "--profile is read by reshape, table, cache_cold, cache_warm, cache_cold_unpadded," in capsys.readouterr().err
    )
    assert not (tmp_path / "traces").exists()


def test_a_number_of_runs_is_positive(capsys):
    for wrong in ("0", "-1", "many"):
        with pytest.raises(SystemExit):
            benchmark.main(["--case=startup", f"--repeats={wrong}"])
        assert f"--repeats: expected a whole number from 1 on, got '{wrong}'" in capsys.readouterr().err
