"""Tests the command that trains, from a text file to a model that fills gaps, with every mistake in one line."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest
from small_run import ROOT, main, on_devices

import charlm.training.stages
from charlm.config import flatten, load_config_file
from charlm.training.progress import stop_signal

TINY = f"{ROOT}/configs/hlm_base.py:tiny"


def overrides(config, **changes):
    """Returns the flags that turn the tiny variant into `config`, with changes written section__key=value."""
    tiny = flatten(load_config_file(TINY))
    wanted = flatten(config) | {name.replace("__", "."): value for name, value in changes.items()}
    return [f"--config.{key}={value}" for key, value in wanted.items() if value != tiny[key]]


def test_from_a_text_file_to_a_trained_model(trained, tmp_path):
    flags = overrides(trained.config, train__steps=3, train__eval_every=3, train__examples=1)
    command = [f"--config={TINY}", *flags]
    with on_devices(1):
        done = main(*command, "--jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = (tmp_path / "runs" / "hlm_base_tiny" / "metrics.jsonl").read_text().splitlines()
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert printed == [{"run": "hlm_base_tiny"} | json.loads(line) for line in kept]
    assert printed[-1]["step"] == 3
    assert "no --workdir given: writing to runs/hlm_base_tiny" in done.stderr
    bits = re.search(r"held-out bits a masked character: (\S+) before \(step 0\), (\S+) after \(step 3\)", done.stderr)
    assert 6.2 > float(bits[1]) > float(bits[2]) > 5
    assert re.search(r"masked  .*\[\w+\]", done.stderr)
    assert "python -m charlm.predict fill-mask --checkpoint=runs/hlm_base_tiny" in done.stderr
    assert (tmp_path / "runs" / "hlm_base_tiny" / "checkpoints" / "3").is_dir()

    again = main(*command, "--workdir=runs/hlm_base_tiny", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert "runs/hlm_base_tiny holds a finished run of 3 steps: nothing to do" in again.stderr
    assert bits[0] in again.stderr
    other = main(*command, "--workdir=runs/hlm_base_tiny", "--config.model.inter_ffn=48", cwd=tmp_path)
    assert_one_error(other, "runs/hlm_base_tiny holds a run of another config: model.inter_ffn is 48, there 32; choose")


@pytest.mark.parametrize(
    ("streams", "apart"),
    [
        ({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}, True),
        ({"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}, False),  # > run.log 2>&1
        ({"stdout": pty.openpty()[1], "stderr": subprocess.PIPE}, False),
    ],
)
def test_metrics_are_printed_where_no_log_goes(streams, apart, tmp_path):
    code = f"import charlm.main; open({str(tmp_path / 'found')!r}, 'w').write(str(charlm.main._output_is_apart()))"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, **streams)
    assert (tmp_path / "found").read_text() == str(apart)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_ctrl_c_ends_a_run_with_a_status_that_and_sees(tmp_path, monkeypatch, number, status):
    def stopped(*_, **__):
        with stop_signal() as asked:
            signal.raise_signal(number)
            return not asked()

    monkeypatch.setattr(charlm.training.stages, "train", stopped)
    assert main(f"--config={TINY}", cwd=tmp_path).returncode == status


@pytest.mark.parametrize(("finished", "status"), [(False, 143), (True, 0)])
def test_a_stopped_run_ends_with_the_status_that_was_asked_for(tmp_path, monkeypatch, finished, status):
    monkeypatch.setattr(charlm.training.stages, "train", lambda *_, **__: finished)
    assert main(f"--config={TINY}", "--status_if_stopped=143", cwd=tmp_path).returncode == status
    assert main(f"--config={TINY}", cwd=tmp_path).returncode == 0


def assert_one_error(done, message):
    """One line that says what is wrong, after whatever was logged; no traceback."""
    assert done.returncode == 1, done.stderr
    *before, last = done.stderr.splitlines()
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in done.stderr
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in before)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--config.data.bach_size=4", "unknown config key data.bach_size; did you mean data.batch_size?"),
        ("--config.train.steps=many", "flag --config.train.steps=many"),
        ("--config.model.dropout=1.5", "model.dropout=1.5 must lie in [0, 1)"),
        ("--config.data.train=nowhere.txt", "data.train: 'nowhere.txt' does not exist"),
        ("--config.data.train=empty.txt", "'empty.txt' holds no document"),
        ("--config.data.train=binary.txt", "binary.txt: file looks binary"),
        ("--config.data.train=half.txt.gz", "half.txt.gz: truncated or damaged gzip file"),
        ("--workdir=text.txt", "--workdir=text.txt cannot be written: "),
        ("--config.mesh.data=3", "mesh.data=3, mesh.fsdp=1, mesh.model=1 do not multiply to the 8 devices present"),
        ("--config.data.batch_size=12", "data.batch_size=12 must be a multiple of data.accumulation=1 x data.table_sh"),
        ("--config.model.vocab_size=8", "size of a character vocabulary: expected 9 to 65536, got 8"),
        ("--config.init_from=text.txt", "init_from: text.txt holds no complete checkpoint"),
    ],
    ids=lambda value: value if value.startswith("--") else "",
)
def test_mistakes_are_one_line(trained, tmp_path, flag, message):
    (tmp_path / "text.txt").write_text("A cat sat.\nThe dog ran to town.\n" * 20)
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "half.txt.gz").write_bytes(gzip.compress(b"A cat sat on a mat.\n" * 1000)[:60])
    config = trained.new_config()
    config.data.cache_dir = str(tmp_path / "cache")
    flags = overrides(config, data__train="text.txt", data__heldout="text.txt")
    done = main(f"--config={TINY}", "--workdir=run", *flags, flag, cwd=tmp_path)
    assert_one_error(done, message)
