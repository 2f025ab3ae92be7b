"""Tests that Ctrl-C and SIGTERM leave nothing behind and keep the rounds that were finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmark_jobs import CONFIG
from small_run import ROOT, write_text

from charlm.benchmark.rounds import WorkerAnswers
from charlm.core.interrupts import Terminated, terminable

in_linux = pytest.mark.skipif(not os.path.exists("/proc"), reason="looks into /proc")
both = pytest.mark.parametrize(
    ("number", "status", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)

WORKER = """
import json, os, sys, time
name, folder, sleeps_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
def say(**content):
    print(json.dumps(content), flush=True)
def begin(number):  # 0: loading; then the runs
    if number == sleeps_at:
        with open(f"{folder}/{name}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{folder}/{name}.new", f"{folder}/{name}")
        time.sleep(300)
begin(0)
say(ready={"device": "test"}, tokens=[[8.0, 8]], work=None)
number = 0
while line := sys.stdin.readline():
    if line.startswith("quit"):
        say(peak_mib=5, device_peak_bytes=None)
        break
    number += 1
    begin(number)
    say(seconds=1.0, cpu_seconds=2.0)
"""

PROGRAM = """
import signal, sys
from charlm.benchmark import __main__ as benchmark
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may have it ignored
measure = benchmark.cases.measure
fake = lambda name: [sys.executable, "-c", {worker!r}, name, {folder!r}, str({sleeps}.get(name, -1))]
benchmark.cases.measure = lambda commands, *more: measure({{name: fake(name) for name in commands}}, *more)
sys.exit(benchmark.main({arguments!r}))
"""


def gone(process_id: int) -> bool:
    """Whether a process has ended, within ten seconds."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process_id}/stat").read_text().split()[2] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def stopped(tmp_path, number, case, sleeps):
    """Stops a measurement of two paths as soon as a worker sleeps in its `sleeps`th run.

    Returns the exit status, what it wrote to standard output and error, and its figures.
    """
    text, temporary, output = write_text(tmp_path / "text.txt"), tmp_path / "tmp", tmp_path / "out.jsonl"
    temporary.mkdir()
    arguments = [f"--case={case}", "--smoke", "--paths", "reshape", "table", "--batch=2", "--words=12",
                 f"--config={CONFIG}", f"--text={text}", f"--output={output}"]  # fmt: skip
    script = PROGRAM.format(worker=WORKER, folder=str(tmp_path), sleeps=sleeps, arguments=arguments)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    file = tmp_path / next(iter(sleeps))
    try:
        for _ in range(600):
            if file.exists():
                break
            time.sleep(0.1)
        assert list(temporary.iterdir())  # there is something to leave behind
        process.send_signal(number)
        printed, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert gone(int(file.read_text()))
    assert list(temporary.iterdir()) == []
    assert "Traceback" not in errors
    return process.returncode, printed, errors, [json.loads(line) for line in output.read_text().splitlines()]


@in_linux
@both
def test_finished_rounds_are_kept(tmp_path, number, status, said):
    found, printed, errors, figures = stopped(tmp_path, number, "inference", {"table": 3})
    assert found == status
    assert errors.endswith(f"{said}; every process has ended\n")
    assert "stopped: 2 finished rounds are kept" in errors
    # The reshape has run three times, but its third round was not finished by all.
    assert [(figure["path"], figure["rounds"]) for figure in figures] == [
        ("reshape", 2), ("table", 2), ("table / reshape", 2)
    ]  # fmt: skip
    assert "table / reshape" not in printed
    assert [line.split()[0] for line in printed.splitlines()[1:]] == ["path", "reshape", "table", "times", "table"]


@in_linux
@both
def test_nothing_is_left_of_a_first_round(tmp_path, number, status, said):
    found, printed, errors, figures = stopped(tmp_path, number, "inference", {"table": 1})
    assert (found, printed, figures) == (status, "", [])
    assert f"{said}; every process has ended" in errors


@in_linux
def test_workers_end_while_they_load(tmp_path):
    assert stopped(tmp_path, signal.SIGTERM, "inference", {"table": 0})[0] == 143


@in_linux
def test_the_memory_of_finished_paths_is_kept(tmp_path):
    status, _, _, figures = stopped(tmp_path, signal.SIGTERM, "memory", {"table": 2})
    assert status == 143
    assert [(figure["path"], figure["value"]) for figure in figures] == [("reshape", 5)]


def test_rounds_are_whole_for_every_batch():
    one = {"seconds": 1.0}
    measured = WorkerAnswers(rounds={"a": [[one, one], [one, one]], "b": [[one, one], [one]]})
    measured.keep_whole_rounds()
    assert measured.rounds == {"a": [[one], [one]], "b": [[one], [one]]}
    measured.rounds["b"][1].clear()
    measured.keep_whole_rounds()
    assert measured.rounds == {}


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)

    @terminable()
    def terminated():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with pytest.raises(Terminated):
        terminated()
    assert signal.getsignal(signal.SIGTERM) is before
    found = []

    def elsewhere():
        with terminable():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]
