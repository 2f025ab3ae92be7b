"""Tests the workers of the benchmark: their order, the figures of their rounds, and what happens if one dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from small_run import ROOT

from charlm.benchmark import report
from charlm.benchmark.figures import ratios, speeds, spread
from charlm.benchmark.paths import PATHS
from charlm.benchmark.rounds import WorkerAnswers, measure
from charlm.benchmark.text import TextShape

WORKER = """
import json, sys
name, seconds, log = sys.argv[1], json.loads(sys.argv[2]), open(sys.argv[3], "a")
say = lambda **content: print(json.dumps(content), flush=True)
work = {"useful_gflop": 6.0, "padded_gflop": 9.0, "peak_gflop": 12.0}
say(ready={"device": "test"}, tokens=[[8.0, 8], [4.0, 4]], work=[work, work] if name == "table" else None)
number = 0
for line in sys.stdin:
    print(name, line.strip(), file=log, flush=True)
    if line.startswith("quit"):
        break
    if number == len(seconds):
        sys.exit("first line\\nthe end of " + name)
    say(seconds=seconds[number], cpu_seconds=2 * seconds[number])
    number += 1
say(peak_mib=5, device_peak_bytes=None)
"""


def workers(folder, **seconds):
    """Returns commands of processes that answer with the given seconds, and the file where they note their commands."""
    log = folder / "log"
    return {n: [sys.executable, "-c", WORKER, n, str(list(s)), str(log)] for n, s in seconds.items()}, log


def test_paths_take_turns_and_ratios_are_those_of_the_rounds(tmp_path):
    commands, log = workers(tmp_path, table=[1.0, 2.0, 4.0], hf_bert=[3.0, 2.0, 8.0], reshape=[5.0, 20.0, 16.0])
    measured = measure(commands, batches=1, repeats=3)
    order = ["table go 0", "hf_bert go 0", "reshape go 0"]
    assert log.read_text().splitlines() == order * 3 + [f"{name} quit" for name in commands]
    shape = TextShape(4, 8)
    fast, other, *_ = speeds("inference", measured, [shape], [{"text": "x"}])
    assert (fast["path"], fast["value"], fast["low"], fast["high"], fast["unit"]) == (
        "table",
        16.0,
        8.0,
        32.0,
        "words/s",
    )
    assert (fast["seconds"], fast["cpu_seconds"], fast["texts_per_second"]) == (2.0, 4.0, 2.0)
    assert (fast["tokens"], fast["padded_to"], fast["batch"], fast["peak_mib"]) == (8.0, 8, "4 x 8 words", 5)
    assert (fast["gflop_per_second"], fast["mfu"], fast["padded_gflop"]) == (3.0, 0.25, 9.0)
    assert "gflop_per_second" not in other  # a peer's operations are not known
    found = {f["path"]: (f["value"], f["low"], f["high"]) for f in ratios("inference", measured, [shape], [{}])}
    # Of each round: 3, 1, 2 and 5, 10, 4; medians of seconds would give 1.5 and 8.
    assert found == {"table / hf_bert": (2.0, 1.0, 3.0), "table / reshape": (5.0, 4.0, 10.0)}


def measured_as(rounds, **about):
    """Returns rounds of one batch as they would have been measured: what `go` answered, by path."""
    made = WorkerAnswers(rounds={name: [answers] for name, answers in rounds.items()})
    made.ready, made.tokens = {name: {} for name in rounds}, {name: [(20.0, 30)] for name in rounds}
    made.work = {name: [about] for name in rounds}
    return made


def test_where_we_are_slower_the_ratio_says_so():
    seconds = {
        "table": [4.0, 2.0, 8.0],
        "hf_bert": [2.0, 2.0, 1.0],
        "bert": [1.0] * 3,
        "reshape": [4.0, 2.0, 1.0],
    }
    rounds = {name: [{"seconds": s, "cpu_seconds": s} for s in found] for name, found in seconds.items()}
    figures = ratios("inference", measured_as(rounds), [TextShape(4, 8)], [{}])
    found = {f["path"]: (f["value"], f["low"], f["high"]) for f in figures}
    assert found == {
        "table / hf_bert": (0.5, 0.125, 1.0), "table / bert": (0.25, 0.125, 0.5), "table / reshape": (1.0, 0.125, 1.0)
    }  # fmt: skip
    printed = report.table([f | {"text": "x"} for f in figures])
    assert [line.split() for line in printed.splitlines()][-1] == ["table", "0.50", "0.25", "1.00"]


@pytest.mark.parametrize("path", PATHS)
def test_speeds_of_all_paths_are_counted_alike(path):
    """Words of the text, whatever pieces there are; all rounds; beside the median, with the text's way to arrays."""
    answer = lambda s, other: {"seconds": s, "cpu_seconds": 2 * s, f"{other}_seconds": 3.0, f"{other}_cpu_seconds": 5.0}
    for case, other in (("inference", "tokenise"), ("training_step", "pack")):
        rounds = {path: [answer(s, other) for s in (4.0, 1.0, 16.0)]}
        whole, *more = speeds(case, measured_as(rounds), [TextShape(4, 8)], [{"text": "x"}])
        assert (whole["value"], whole["low"], whole["high"], whole["rounds"]) == (8.0, 2.0, 32.0, 3)
        assert (whole["words"], whole["texts_a_batch"], whole["seconds"], whole["cpu_seconds"]) == (8, 4, 4.0, 8.0)
        if case == "inference":
            assert whole["with_tokenisation"] == round(32 / 7, 1)
            assert [(f["case"], f["value"]) for f in more] == [("tokenisation", round(32 / 3, 1))]
            assert "pack s" not in report.table([whole])
        else:
            assert (whole["pack_seconds"], whole["with_packing"], more) == (3.0, round(32 / 7, 1), [])
            header, row = report.table([whole | {"date": "today"}]).splitlines()[1:]
            assert "pack s" in header
            assert row.split()[-1] == "3"


def test_recomputing_is_compared_with_recomputing(tmp_path):
    paths = ("reshape", "table", "reshape_remat", "table_remat", "bert")
    commands, _ = workers(tmp_path, **{path: [1.0, 1.0] for path in paths})
    measured = measure(commands, batches=1, repeats=2)
    found = {figure["path"] for figure in ratios("training_step", measured, [TextShape(4, 8)], [{}])}
    assert found == {"table / reshape", "table / bert", "table_remat / reshape_remat", "table_remat / bert"}


def test_every_batch_is_run_in_every_round(tmp_path):
    commands, log = workers(tmp_path, table=[1.0, 2.0, 3.0, 4.0], bert=[1.0] * 4)
    measured = measure(commands, batches=2, repeats=2)
    assert log.read_text().splitlines()[:4] == ["table go 0", "bert go 0", "table go 1", "bert go 1"]
    assert [[r["seconds"] for r in batch] for batch in measured.rounds["table"]] == [[1.0, 3.0], [2.0, 4.0]]
    figures = speeds("scaling", measured, [TextShape(1, 8), TextShape(2, 4)], [{}, {}])
    assert [(f["path"], f["words"], f["tokens"]) for f in figures] == [
        ("table", 8, 8.0), ("bert", 8, 8.0), ("table", 4, 4.0), ("bert", 4, 4.0),
    ]  # fmt: skip


def test_a_worker_that_dies_is_named_and_the_others_go_on(tmp_path, log_lines):
    commands, _ = workers(tmp_path, table=[1.0] * 3, canine=[1.0], bert=[2.0] * 3)
    commands["byt5"] = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    measured = measure(commands, batches=1, repeats=3)
    assert set(measured.rounds) == set(measured.peaks) == {"table", "bert"}
    assert measured.died == {
        "canine": "canine died (exit status 1): first line | the end of canine",
        "byt5": "byt5 died (ended by SIGKILL): no word of why",
    }
    assert "error: canine died (exit status 1): first line | the end of canine; it has no figures" in log_lines.lines
    assert len(speeds("inference", measured, [TextShape(4, 8)], [{}])) == 2


def test_no_round_means_no_spread():
    assert spread([2.0, 1.0, 4.0]) == {"value": 2.0, "low": 1.0, "high": 4.0, "spread": 1.5}


BUSY = """
from charlm.benchmark import worker
from charlm.benchmark.paths import Job, Runner
class Busy(Runner):
    tokenise = lambda self, texts, words: None
    tokens = lambda self, host: (1.0, 1)
    run = lambda self, host: __import__("time").sleep(300)
print("noise of a library")
worker.prepare = lambda job: (Busy(job), [None])
Job.load = lambda path: Job("table", "inference", [["x"]], [3], False, {}, "", [], "", "", True, False, "")
worker.main("")
"""


def test_a_worker_ends_with_whoever_started_it():
    """Also in the midst of a run: the other end of its input is closed when its parent is killed."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "noise of a library\n"  # before it serves
        assert process.stdout.readline().startswith('{"ready": {"ready_seconds"')
        process.stdin.write("go 0\n")
        process.stdin.flush()
        time.sleep(0.2)
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(timeout=10) == 1
    finally:
        process.kill()
        process.stdout.close()
