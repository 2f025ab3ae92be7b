"""Tests the case `accelerator`, its time limit, and the kernel of attention that training is measured with."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time

import jax.numpy as jnp
import pytest
from benchmark_jobs import CONFIG, NO_JOB, figure, small_job
from small_run import write_text

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import accelerator, attention_case, cases, report
from charlm.benchmark.bert import BertInference
from charlm.benchmark.cases import Outcome
from charlm.benchmark.hlm import hlm_config
from charlm.benchmark.paths import PATHS
from charlm.core.interrupts import limited

pytestmark = pytest.mark.usefixtures("log_lines")


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """The cases and settings that are measured; each has a figure and takes no time."""
    monkeypatch.setattr(accelerator, "NVIDIA", tmp_path / "no device")
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # so that what is set is undone
    seen = []

    def measure(case, settings):
        seen.append((case, settings))
        return Outcome([figure(case, "table", float(len(seen)), dtype=settings.dtype)], {})

    monkeypatch.setattr(cases, "run", measure)
    monkeypatch.setattr(attention_case, "run", lambda settings: measure("attention", settings))
    return seen


def test_one_command_measures_all(capsys, measured, monkeypatch, tmp_path):
    monkeypatch.setattr(accelerator, "missing", lambda name, code: "")
    text = write_text(tmp_path / "text.txt", lines=8000)
    assert benchmark.main(["--case=accelerator", f"--config={CONFIG}", f"--text={text}", "--repeats=3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(measured) == len(accelerator.STEPS)
    found = [(case, s.batch, s.words, s.attention_kernel) for case, s in measured]
    assert {one[:3] for one in found} == {
        ("attention", None, None), ("training_step", 64, 512), ("training_step", 16, 2048), ("inference", 32, 46),
        ("inference", 8, 512),
    }  # fmt: skip
    assert [one[3] for one in found if one[:3] == ("training_step", 64, 512)] == ["pallas", "einsum"]
    for case, settings in measured:
        assert (settings.dtype, settings.repeats, settings.text) == ("bfloat16", 3, str(text))
        assert all(case in PATHS[name].cases for name in settings.paths)
        if case == "inference":
            assert {"cache_warm", "bert", "hf_bert"} <= set(settings.paths)


@pytest.mark.parametrize("there", [True, False])
def test_on_nvidia_gpus_programs_are_quick_to_compile(there, capsys, measured, monkeypatch, tmp_path):
    device = tmp_path / "nvidiactl"
    if there:
        device.touch()
    monkeypatch.setattr(accelerator, "NVIDIA", device)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=4")
    assert benchmark.main(["--case=accelerator", f"--config={CONFIG}", "--smoke"]) == 0
    flags = os.environ["XLA_FLAGS"].split()
    assert flags[-1] == "--xla_gpu_autotune_level=4"
    assert flags[:-1] == (accelerator.QUICK_TO_COMPILE.split() if there else [])


def test_a_corpus_that_is_too_small_is_found_before_anything_is_measured(capsys, measured):
    assert benchmark.main(["--case=accelerator", f"--config={CONFIG}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    # The words of Python's documentation are others in another version of Python.
    assert re.fullmatch("error: --text=builtin: 2[0-9],[0-9]{3} words are too few for a batch of 64 x 512 words", line)
    assert measured == []
    assert benchmark.main(["--case=accelerator", f"--config={CONFIG}", "--smoke"]) == 0
    assert {settings.words for _, settings in measured} == {None, accelerator.TINY.words}


def test_paths_that_cannot_run_are_left_out(measured, monkeypatch, log_lines):
    monkeypatch.setattr(accelerator, "missing", lambda name, code: "no such package" if name == "hf_bert" else "")
    assert benchmark.main(["--case=accelerator", f"--config={CONFIG}", "--smoke"]) == 0
    assert "inference: hf_bert is left out: no such package" in log_lines.lines
    assert {settings.paths for case, settings in measured if case == "inference"} == {("table", "cache_warm", "bert")}


def test_a_limit_keeps_what_was_measured(capsys, monkeypatch, measured, log_lines):
    measure, begun = cases.run, time.monotonic()

    def slow(case, settings):
        if len(measured) == 2:
            try:
                time.sleep(60)
            except KeyboardInterrupt as stop:
                return Outcome([], {}, stop)
        return measure(case, settings)

    monkeypatch.setattr(cases, "run", slow)
    monkeypatch.setattr(benchmark, "limited", lambda seconds: limited(seconds / 120))
    assert benchmark.main(["--case=accelerator", f"--config={CONFIG}", "--smoke", "--minutes=1"]) == 124
    captured = capsys.readouterr()
    assert [json.loads(line)["case"] for line in captured.out.splitlines()] == ["attention", "training_step"]
    (stopped,) = [line for line in log_lines.lines if "not begun" in line]
    assert stopped.startswith(
        "stopped in step 3; not begun: inference, 8 x 512 words; training_step, 16 x 2048 words, "
    )
    assert captured.err.endswith("out of time; every process has ended\n")
    assert time.monotonic() - begun < 30


def test_the_kernel_of_attention_is_that_of_our_models(tmp_path):
    for kernel in ("pallas", "einsum"):
        assert hlm_config(dataclasses.replace(NO_JOB, attention_kernel=kernel)).model.attention_kernel == kernel
    assert hlm_config(NO_JOB).model.attention_kernel == "auto"
    config = BertInference(small_job(tmp_path, "bert", attention_kernel="pallas"))._shape(8)
    assert (config.attention_kernel, config.dtype) == ("pallas", jnp.float32)


def test_kernels_are_told_apart_in_a_file(tmp_path):
    path = tmp_path / "figures.jsonl"
    of = [figure("training_step", "table", 9.0, attention_kernel=kernel) for kernel in ("", "pallas", "einsum")]
    path.write_text("".join(json.dumps(one) + "\n" for one in of))
    found = report.read(str(path))
    assert found == of
    assert "attention by pallas" in report.table(found)
    with_device = figure("training_step", "table", 9.0, device_peak_bytes=3 * 2**30, mfu=0.25, executed_mfu=0.5)
    (_, titles, row) = report.table([with_device]).splitlines()
    assert titles.endswith("MFU, padding too  MiB on device")
    assert row.split()[-2:] == ["50.0%", "3,072"]
