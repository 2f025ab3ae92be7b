"""Tests the command line of the benchmark: what it prints, where it prints it, and which options it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark_jobs import CONFIG, figure
from small_run import ROOT, python, write_text

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import cases, report, standalone, worker
from charlm.benchmark.cases import Outcome

NO_TORCH = 'torch and transformers are not installed: pip install -e ".[torch]" transformers'

pytestmark = pytest.mark.usefixtures("log_lines")


def ask(capsys, *arguments):
    """Returns the status, the figures that the command prints, and what it writes to standard error."""
    status = benchmark.main(list(arguments))
    captured = capsys.readouterr()
    return status, [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_parameters_are_the_published_ones(capsys):
    status, figures, _ = ask(capsys, "--case=parameters", f"--config={CONFIG}")
    assert status == 0
    assert {figure["config"] for figure in figures} == {CONFIG}
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
                 f"--profile={tmp_path / 'my trace'}"]  # fmt: skip
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
        assert (one["config"], one["text"], one["texts"]) == (CONFIG, str(text), "consecutive")
        if " / " not in path:
            assert one["cpu_seconds"] > 0
            assert one["unit"] == "words/s"
            assert one["value"] == pytest.approx(24 / one["seconds"], rel=0.05)
    assert found["inference", "table"]["tokens"] == 12
    assert found["inference", "table"]["peak_mib"] > 50
    assert "wordpiece" in found["inference", "bert"]
    assert "device" in found["inference", "table / bert"]
    assert "times as fast as" in printed
    assert "tiny models: no measurement" in printed
    for path, part in (("table", "inter_word: feed-forward"), ("bert", "encoder: feed-forward")):
        assert part in (tmp_path / "my trace" / "inference" / path / "parts.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paths", "tabel"], "--paths: 'tabel' is not one of reshape, table"),
        (["--paths", "tabel"], "did you mean table"),
        (["--paths", "canine"], f"--paths: canine: {NO_TORCH}"),
        (["--case=training_step", "--paths", "cache_warm"], "--paths: cache_warm is a path of inference only"),
        (["--case=parameters", "--dtype=bfloat16"], "--dtype is read by inference, training_step, scaling, memory"),
        (["--case=parameters", "--no-compile"], "--no-compile is read by"),
        (["--case=inference", "--remat"], "--remat is read by training_step, memory"),
        (["--case=inference", "--lengths", "4"], "--lengths is read by scaling"),
        (["--case=parameters", "--drawn"], "--drawn is read by inference, training_step, scaling, memory"),
        (["--case=training_step", "--pairs"], "--pairs is read by inference: choose one of these with --case"),
        (["--case=inference", "--pairs", "--words=8"], "--pairs: 32 x 8 words are too few: expected 5 words in the"),
        (["--case=parameters", "--text=x.txt"], "--text is read by input_pipeline, collectives, inference"),
        (["--case=startup", "--config=configs/hlm_large.py"], "--config is read by parameters, input_pipeline"),
        (["--case=memory", "--case=parity", "--repeats=3"], "--repeats is read by startup, input_pipeline, inference"),
        (
            ["--case=inference", "--paths", "table", "--bert-vocab=v.txt"],
            "--bert-vocab is read by bert, bert_unpadded, hf_bert, hf_bert_sorted, onnx_bert, ",
        ),
        (["--case=inference", "--paths", "table", "--hlm-code=there"], "--hlm-code is read by authors_hlm, and none"),
        (["--case=inference", "--hlm-code=there"], f"none of these is measured: {NO_TORCH}"),
        (["--case=inference", "--no-compile"], "--no-compile is read by hf_bert, canine, byt5, authors_hlm, and none"),
        (["--case=memory", "--remat", "--paths", "table"], "--remat is read by reshape_remat, table_remat, and none"),
        (["--case=inference", "--batch=1", "--drawn"], "--drawn: 1 x 46 words cannot vary in length: expected two"),
        (["--case=scaling", "--lengths", "3", "--drawn"], "--drawn: 2 x 3 words cannot vary in length"),
        (["--case=scaling", "--lengths", "4", "6"], "--lengths: each must divide the longest, 6"),
        (["--case=parameters", "--config=configs/none.py"], "--config: no such file: configs/none.py"),
        (["--case=parity"], f"parity: {NO_TORCH}"),
        (["--case=parameters", "--case=parity"], f"parity: {NO_TORCH}"),
        (["--case=parameters", "--case=input_pipeline", "--text=none.txt"], "--text: 'none.txt' does not exist"),
        (["--case=parameters", "--case=inference", "--bert-vocab=none.txt"], "none.txt"),
        (["--from=nothing.jsonl", "--smoke"], "--from measures nothing and goes with --plot alone, not with smoke"),
        (["--from=nothing.jsonl"], "--from=nothing.jsonl: cannot be read"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, arguments, message):
    for package in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, package, None)
    status, figures, errors = ask(capsys, *arguments)
    assert (status, figures) == (1, [])
    assert message in errors
    (line,) = [line for line in errors.splitlines() if "skipped" not in line]
    assert line.startswith("error: ")


@pytest.mark.parametrize("code", ["", "/nowhere"])
def test_the_authors_code_has_to_be_named(capsys, monkeypatch, code):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    flag = [f"--hlm-code={code}"] if code else []
    status, _, errors = ask(capsys, "--case=inference", "--paths", "authors_hlm", *flag)
    assert status == 1
    assert ("no model/hlm.py there" if code else "git clone https://github.com/lisun-ai/HLM") in errors


def test_a_path_that_died_is_a_failure_with_figures(capsys, monkeypatch):
    monkeypatch.setattr(cases, "run", lambda *_: Outcome([figure("inference", "bert", 8.0)], {"table": "table died"}))
    status, figures, _ = ask(capsys, "--case=inference")
    assert status == 1
    assert [found["path"] for found in figures] == ["bert"]


def test_what_was_measured_before_a_mistake_is_shown(capsys, monkeypatch):
    def fail(config, repeats):
        raise ValueError("no such thing")

    monkeypatch.setitem(benchmark.ALONE, "startup", fail)
    monkeypatch.setattr(cases, "run", lambda *_: Outcome([figure("inference", "bert", 8.0)], {}))
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
    settings = cases.BenchmarkSettings(CONFIG, "builtin", 1)
    shapes = cases.shapes_of("scaling", settings)
    assert [shape.words for shape in shapes] == [64, 128, 256, 512, 1024, 2048]
    assert {shape.batch * shape.words for shape in shapes} == {2048}
    drawn = cases.shapes_of("scaling", cases.BenchmarkSettings(CONFIG, "builtin", 1, drawn=True))
    assert {shape.batch * shape.words for shape in drawn} == {sum(sum(s.drawn_lengths()) for s in drawn) / 6} == {4096}
    (training,) = cases.shapes_of("memory", cases.BenchmarkSettings(CONFIG, "builtin", 1, batch=8, words=512))
    assert (training.batch, training.words) == (8, 512)


def test_help_is_fast():
    script = "from charlm.benchmark import __main__ as b; b.parser(); print({'jax', 'torch'} & set(sys.modules))"
    done = python("-c", f"import sys; {script}")
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr


@pytest.mark.slow
def test_startup_is_measured(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)  # where there is no configs/: nothing of it is read
    run, programs = subprocess.run, []

    def counting(command, *, env, **options):
        done = run(command, env=env, **options)
        folder = None if env.get("JAX_ENABLE_COMPILATION_CACHE") == "false" else env.get("CHARLM_CACHE")
        programs.append(sum(path.name.endswith("-cache") for path in Path(folder).rglob("*")) if folder else None)
        return done

    monkeypatch.setattr(standalone.subprocess, "run", counting)
    status, found, errors = ask(capsys, "--case=startup", "--repeats=1")
    assert status == 0
    answers = ("first vectors of a small HLM", f"first tags of {standalone.TAGGER}")
    expected = ["charlm.main --help, without JAX", "import jax"]
    expected += [name + end for name in answers for end in ("", standalone.KEPT)]
    assert [one["path"] for one in found] == expected
    assert all(one["low"] == one["value"] == one["high"] < 300 for one in found)
    helped, imported, vectors, *_ = (one["value"] for one in found)
    assert 0 < helped < vectors > imported > 0
    first, again = programs[:6], programs[6:]
    assert first[:3] == again[:3] == [None] * 3  # compiled anew, whatever the cache of the user holds
    assert first[4] == again[4] is None
    for kept in (3, 5):
        assert first[kept] == again[kept] > 0  # nothing is left to compile when the time is taken
    assert {(one["unit"], one["config"]) for one in found} == {("s from process start", "")}
    assert "--help" in errors  # the table, since the figures are on standard output


def test_help_imports_no_jax():
    done = python("-X", "importtime", "-m", "charlm.main", "--help")
    assert done.returncode == 0, done.stderr
    assert "charlm.main" in done.stdout
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "argparse" in modules or "absl" in modules
    assert "jax" not in modules


def test_a_command_that_fails_has_no_time(capsys, monkeypatch):
    monkeypatch.setattr(standalone, "_save_small_model", lambda folder: None)
    status, figures, errors = ask(capsys, "--case=startup", "--repeats=1")
    assert (status, figures) == (1, [])
    assert "error: startup: first vectors of a small HLM failed: error: " in errors


def test_peak_memory_is_that_of_the_process_alone():
    held = b"x" * 600_000_000
    done = python("-c", "from charlm.benchmark.worker import peak_mebibytes; print(peak_mebibytes())")
    assert done.returncode == 0, done.stderr
    assert len(held) / 2**20 > 550 > int(done.stdout) > 10


def test_peak_memory_is_known_where_the_system_does_not_say_it(monkeypatch, tmp_path):
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t1 kB\n")
    for status in (tmp_path / "status", tmp_path / "none"):
        monkeypatch.setattr(worker, "PROCESS_STATUS", status)
        assert worker.peak_mebibytes() > 10


@pytest.mark.torch
def test_our_bert_computes_what_pytorchs_does(capsys, monkeypatch):
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    small = {"vocab_size": 50, "hidden": 16, "layers": 2, "heads": 2, "ffn": 24, "initializer": "lecun"}
    monkeypatch.setattr(standalone, "PARITY_SHAPE", standalone.PARITY_SHAPE | small)
    monkeypatch.setattr(standalone, "PARITY_BATCH", (2, 7))
    status, (found,), _ = ask(capsys, "--case=parity")
    assert status == 0
    assert (found["path"], found["unit"], found["batch"]) == ("bert - hf_bert", "largest difference", "2 x 7 subwords")
    assert 0 < found["value"] < 1e-5
