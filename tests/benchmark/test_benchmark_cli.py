"""The command line of the benchmark: what it prints, where to, and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest
from benchmark_jobs import CONFIG, figure
from small_run import ROOT, python, write_text

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import cases, report, standalone

pytestmark = pytest.mark.usefixtures("quick", "log_lines")


def ask(capsys, *arguments):
    """Returns the status, the figures that the command prints, and what it writes to standard error."""
    status = benchmark.main(list(arguments))
    captured = capsys.readouterr()
    return status, [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_parameters_are_the_published_ones(capsys):
    status, figures, _ = ask(capsys, "--case=parameters", f"--config={CONFIG}")
    assert status == 0
    assert {figure["path"]: figure["value"] for figure in figures} == {
        "pre-training, paper wiring": 132_712_192,
        "pre-training, reference wiring": 133_894_144,
        "classifier, 2 labels": 125_031_170,  # "125M" in the paper
    }
    for found in figures:
        assert sum(found["parts"].values()) == found["value"]


def test_paths_are_measured_side_by_side(capsys, tmp_path):
    """Two processes, from the command to the figures; one more path that cannot be loaded dies alone."""
    text = write_text(tmp_path / "text.txt")
    arguments = ["--case=inference", "--smoke", "--paths", "table", "bert", "--repeats=2", "--batch=2", "--words=12",
                 f"--profile={tmp_path / 'trace'}"]  # fmt: skip
    output = tmp_path / "out.jsonl"
    assert benchmark.main([*arguments, f"--config={CONFIG}", f"--text={text}", f"--output={output}"]) == 0
    printed = capsys.readouterr().out
    figures = report.read(str(output))
    found = {(f["case"], f["path"]): f for f in figures}
    assert list(found) == [
        ("inference", "table"), ("tokenisation", "table"), ("inference", "bert"), ("tokenisation", "bert"),
        ("inference", "table / bert"),
    ]  # fmt: skip
    for (_, path), one in found.items():
        assert one["low"] <= one["value"] <= one["high"]
        assert (one["batch"], one["rounds"], one["models"], one["threads"] > 0) == ("2 x 12 words", 2, "smoke", True)
        assert set(one["versions"]) == {"jax", "torch", "transformers"}
        assert {"date", "processor", "load", "dtype", "distinct_words"} <= set(one)
        if " / " not in path:
            assert one["cpu_seconds"] > 0
            assert one["unit"] == "words/s"
            assert one["value"] == pytest.approx(24 / one["seconds"], rel=0.05)
    assert found["inference", "table"]["tokens"] == 12
    assert found["inference", "table"]["peak_mib"] > 50
    assert "wordpiece" in found["inference", "bert"]
    assert "times as fast as" in printed
    assert "tiny models: no measurement" in printed
    for path, part in (("table", "inter_word: feed-forward"), ("bert", "encoder: feed-forward")):
        assert part in (tmp_path / "trace" / "inference" / path / "parts.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paths", "tabel"], "--paths: 'tabel' is not one of reshape, table"),
        (["--paths", "tabel"], "nearest: 'table'"),
        (["--paths", "canine"], "--paths: canine: torch is not installed: pip install 'charlm[torch]' transformers"),
        (["--case=training_step", "--paths", "cache_warm"], "--paths: cache_warm is a path of inference only"),
        (["--case=parameters", "--dtype=bfloat16"], "--dtype is read by inference, training_step, scaling, memory"),
        (["--case=parameters", "--no-compile"], "--no-compile is read by"),
        (["--case=inference", "--remat"], "--remat is read by training_step, memory"),
        (["--case=inference", "--lengths", "4"], "--lengths is read by scaling"),
        (["--case=scaling", "--lengths", "4", "6"], "--lengths: each must divide the longest, 6"),
        (["--case=parameters", "--config=configs/none.py"], "--config: no Python file configs/none.py"),
        (["--case=parity"], "parity: torch is not installed: pip install 'charlm[torch]' transformers"),
        (["--from=nothing.jsonl", "--smoke"], "--from measures nothing and goes with --plot alone, not with smoke"),
        (["--from=nothing.jsonl"], "--from=nothing.jsonl: cannot be read"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, arguments, message):
    monkeypatch.setitem(sys.modules, "torch", None)
    status, figures, errors = ask(capsys, *arguments)
    assert (status, figures) == (1, [])
    assert message in errors
    (line,) = [line for line in errors.splitlines() if "skipped" not in line]
    assert line.startswith("error: ")


@pytest.mark.parametrize("code", ["", "/nowhere"])
def test_the_authors_code_has_to_be_named(capsys, monkeypatch, code):
    monkeypatch.setattr("charlm.benchmark.paths.importlib.util.find_spec", lambda name: True)
    flag = [f"--hlm-code={code}"] if code else []
    status, _, errors = ask(capsys, "--case=inference", "--paths", "authors_hlm", *flag)
    assert status == 1
    assert ("no model/hlm.py there" if code else "git clone https://github.com/lisun-ai/HLM") in errors


def test_a_path_that_died_is_a_failure_with_figures(capsys, monkeypatch):
    monkeypatch.setattr(cases, "run", lambda *_: ([figure("inference", "bert", 8.0)], {"table": "table died"}))
    status, figures, _ = ask(capsys, "--case=inference")
    assert status == 1
    assert [found["path"] for found in figures] == ["bert"]


def test_what_was_measured_before_a_mistake_is_shown(capsys, monkeypatch):
    def fail(config, repeats):
        raise ValueError("no such thing")

    monkeypatch.setitem(benchmark.ALONE, "startup", fail)
    monkeypatch.setattr(cases, "run", lambda *_: ([figure("inference", "bert", 8.0)], {}))
    status, figures, errors = ask(capsys, "--case=inference", "--case=startup", f"--config={CONFIG}")
    assert (status, len(figures)) == (1, 1)
    assert "us/word" in errors
    assert errors.endswith("error: no such thing\n")


def test_every_case_gets_a_config_of_its_own(capsys, monkeypatch):
    seen = []

    def spoil(config, repeats):
        seen.append(config.data.train)
        config.data.train = ("gone",)
        return []

    for case in ("parameters", "startup"):
        monkeypatch.setitem(benchmark.ALONE, case, spoil)
    assert ask(capsys, "--case=parameters", "--case=startup", f"--config={CONFIG}")[0] == 0
    assert seen == [("builtin",)] * 2


def test_scaling_has_equal_words_a_batch():
    settings = cases.Settings(CONFIG, "builtin", 1)
    shapes = cases.shapes_of("scaling", settings)
    assert [shape.words for shape in shapes] == [64, 128, 256, 512, 1024, 2048]
    assert {shape.batch * shape.words for shape in shapes} == {2048}
    (training,) = cases.shapes_of("memory", cases.Settings(CONFIG, "builtin", 1, batch=8, words=512))
    assert (training.batch, training.words) == (8, 512)


SAVED = [
    figure("inference", "table", 2000.0),
    figure("inference", "hf_bert", 1000.0),
    {"case": "inference", "path": "table / hf_bert", "value": 1.5, "unit": "x", "batch": "4 x 8 words"},
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
    assert ["table", "2,000", "1,999", "2,001", "250.00", "500.0", "1.5", "9", "77"] in lines
    assert [line[1] for line in lines if line[:1] == ["table"]] == ["2,000", "1.50", "64", "128"]
    assert ["times", "as", "fast", "as", "(4", "x", "8", "words)", "hf_bert"] in lines
    assert ["table", "128", "250", "249", "251", "31.25", "4,000.0", "1.5", "9", "77"] in lines
    assert ["pre-training", "12,345", "parameters"] in lines
    drawn = picture.read_text()
    assert drawn.startswith("<?xml")
    for label in ("hf_bert", "scaling: the same words, in longer texts", "inference, 4 x 8 words"):
        assert f"<!-- {label} -->" in drawn


def test_a_file_of_something_else_is_refused(capsys, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(SAVED[0]) + "\n[1]\n")
    assert ask(capsys, f"--from={path}")[2] == f"error: --from={path}: line 2 is no figure of the benchmark\n"
    path.write_text(json.dumps(SAVED[-1]) + "\n")
    assert benchmark.main([f"--from={path}", f"--plot={tmp_path / 'x.png'}"]) == 1
    assert "no figures of inference" in capsys.readouterr().err


def test_help_is_fast():
    script = "from charlm.benchmark import __main__ as b; b.parser(); print({'jax', 'torch'} & set(sys.modules))"
    done = python("-c", f"import sys; {script}")
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr


def test_startup_is_measured(capsys):
    status, (found,), errors = ask(capsys, "--case=startup", "--repeats=1", f"--config={ROOT}/configs/hlm_base.py:tiny")
    assert status == 0
    assert 0 < found["low"] == found["value"] == found["high"] < 60
    assert "--help" in errors  # the table, since the figures are on standard output


def test_peak_memory_is_that_of_the_process_alone():
    held = b"x" * 600_000_000
    done = python("-c", "from charlm.benchmark.worker import peak_mebibytes; print(peak_mebibytes())")
    assert done.returncode == 0, done.stderr
    assert len(held) / 2**20 > 550 > int(done.stdout) > 10


@pytest.mark.torch
def test_our_bert_computes_what_pytorchs_does(capsys, monkeypatch):
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    small = {"vocab_size": 50, "hidden": 16, "layers": 2, "heads": 2, "ffn": 24, "initializer": "lecun"}
    monkeypatch.setattr(standalone, "PARITY_SHAPE", standalone.PARITY_SHAPE | small)
    monkeypatch.setattr(standalone, "PARITY_BATCH", (2, 7))
    status, (found,), _ = ask(capsys, "--case=parity", f"--config={CONFIG}")
    assert status == 0
    assert (found["path"], found["unit"], found["batch"]) == ("bert - hf_bert", "largest difference", "2 x 7 subwords")
    assert 0 < found["value"] < 1e-5
