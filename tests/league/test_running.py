"""Tests of how jobs run: order, failures, signals, locks and resumption, with small shell commands as jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from charlm.league.events import END, START, STOPPED, Events, read_events
from charlm.league.jobs import Job
from charlm.league.places import Places
from charlm.league.running import Runner, alone, chosen, last_line, slots_of


def shell(folder: Path, name: str, needs=(), line="true") -> Job:
    """A job whose result is a file; its line runs before the file is written."""
    result = folder / f"{name.replace('/', '.')}.done"
    command = ["sh", "-c", f"{line} && echo {name} >> {folder}/order && touch {result}"]
    return Job(name, tuple(needs), lambda: command, result.exists)


def run(folder: Path, jobs, slots=1):
    """What became of the jobs of a league in a folder."""
    places = Places(folder)
    with alone(places) as lock:
        return Runner(places, [{}] * slots, lock, Events(places.events)).run(jobs)


def order(folder: Path) -> list[str]:
    """The names of the jobs in the order in which they ended."""
    path = folder / "order"
    return path.read_text().split() if path.exists() else []


def wait_for(condition, seconds=20.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_jobs_wait_for_what_they_need(tmp_path):
    waits = f"while [ ! -e {tmp_path}/c.done ]; do sleep 0.1; done"
    jobs = [shell(tmp_path, "a", line=waits), shell(tmp_path, "b", ["a"]), shell(tmp_path, "c")]
    found = run(tmp_path, jobs, slots=2)
    assert sorted(found.done) == ["a", "b", "c"]
    assert (found.failed, found.waiting, found.stopped) == ({}, [], 0)
    assert order(tmp_path) == ["c", "a", "b"]


def test_what_is_done_is_not_done_again(tmp_path):
    jobs = [shell(tmp_path, "a"), shell(tmp_path, "b", ["a"])]
    run(tmp_path, jobs[:1])
    run(tmp_path, jobs)
    assert order(tmp_path) == ["a", "b"]


def test_a_result_counts_only_after_those_that_it_needs(tmp_path):
    jobs = [shell(tmp_path, "a"), shell(tmp_path, "b", ["a"])]
    (tmp_path / "b.done").touch()
    run(tmp_path, jobs)
    assert order(tmp_path) == ["a", "b"]


def test_a_failure_stops_only_what_needs_it(tmp_path):
    bad = shell(tmp_path, "bad", line="echo error: no such file >&2; echo; false")
    jobs = [bad, shell(tmp_path, "after", ["bad"]), shell(tmp_path, "other"), shell(tmp_path, "last", ["after"])]
    found = run(tmp_path, jobs)
    assert (found.done, found.waiting) == (["other"], ["after", "last"])
    assert found.failed == {"bad": "no such file"}


def test_a_process_that_ends_without_its_result_has_failed(tmp_path):
    job = Job("a", (), lambda: ["true"], lambda: False)
    assert run(tmp_path, [job]).failed == {"a": "it ended before its result was there"}


def test_a_command_that_cannot_be_made_is_a_failure(tmp_path):
    def command():
        raise ValueError("budget.json is damaged")

    jobs = [Job("a", (), command, lambda: False), shell(tmp_path, "b")]
    found = run(tmp_path, jobs)
    assert (found.failed, found.done) == ({"a": "budget.json is damaged"}, ["b"])


def test_a_signal_lets_jobs_save_and_the_same_jobs_go_on(tmp_path):
    saves = f"trap 'echo saved >> {tmp_path}/order; exit 0' TERM; touch {tmp_path}/began; sleep 30 & wait"
    line = f"if [ ! -e {tmp_path}/order ]; then {saves}; fi"
    jobs = [shell(tmp_path, "a", line=line), shell(tmp_path, "b", ["a"])]

    def interrupt():
        wait_for((tmp_path / "began").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt).start()
    found = run(tmp_path, jobs)
    assert (found.stopped, found.done, found.waiting) == (signal.SIGTERM, [], ["a", "b"])
    assert order(tmp_path) == ["saved"]
    assert run(tmp_path, jobs).done == ["a", "b"]
    begun = [event for event in read_events(Places(tmp_path).events) if event["event"] == "begin"]
    assert [(event["job"], event["again"]) for event in begun] == [("a", False), ("a", True), ("b", False)]


def test_a_signal_that_is_ignored_stops_nothing(tmp_path):
    """As under nohup, where the terminal is closed."""
    jobs = [shell(tmp_path, "a", line=f"kill -HUP {os.getpid()}")]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        found = run(tmp_path, jobs)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (found.stopped, found.done) == (0, ["a"])


def test_a_second_league_is_refused(tmp_path):
    with alone(Places(tmp_path)), pytest.raises(ValueError, match="another league is running there"):
        alone(Places(tmp_path)).__enter__()


KILLED = """
import os, sys
from pathlib import Path
from charlm.league.events import Events
from charlm.league.places import Places
from charlm.league.jobs import Job
from charlm.league.running import Runner, alone

folder = Path(sys.argv[1])
line = f"trap 'sleep 1; echo saved >> {folder}/order; exit 0' TERM; touch {folder}/began; while :; do sleep 0.1; done"
with alone(Places(folder)) as lock:
    events = Events(Places(folder).events)
    events.add("start")
    Runner(Places(folder), [{}], lock, events).run([Job("a", (), lambda: ["sh", "-c", line], lambda: False)])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux to tell when the parent dies")
def test_after_kill_9_the_jobs_save_and_the_next_league_waits_for_them(tmp_path):
    league = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    wait_for((tmp_path / "began").exists, 120)
    league.kill()
    league.wait()
    found = run(tmp_path, [shell(tmp_path, "b")])
    assert found.done == ["b"]
    assert order(tmp_path) == ["saved", "b"]
    assert "killed" in [event["event"] for event in read_events(Places(tmp_path).events)]


def test_each_job_has_a_device(tmp_path, monkeypatch):
    assert slots_of(0, "none") == [{}]
    assert slots_of(3, "none") == [{}] * 3
    assert slots_of(0, "0,2") == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "2"}]
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots_of(3, "0,1")] == ["0", "1", "0"]
    assert {slot["XLA_CLIENT_MEM_FRACTION"] for slot in slots_of(3, "0,1")} == {"0.450"}
    with monkeypatch.context() as patch:
        patch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        assert slots_of(2, "0") == [{"CUDA_VISIBLE_DEVICES": "0"}] * 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots_of(0, "auto")] == ["5", "7"]
    places = Places(tmp_path)
    job = shell(tmp_path, "a", line='test "$CUDA_VISIBLE_DEVICES" = 7')
    with alone(places) as lock:
        assert Runner(places, slots_of(0, "7"), lock, Events(places.events)).run([job]).done == ["a"]
    assert slots_of(0, "GPU-1a-2b")[0]["CUDA_VISIBLE_DEVICES"] == "GPU-1a-2b"
    with pytest.raises(ValueError, match="--jobs=-1"):
        slots_of(-1, "none")
    for wrong in ("gpu0", "0,,1", ""):
        with pytest.raises(ValueError, match=f'^--devices={wrong}: expected "auto", "none", or numbers such as 0,1$'):
            slots_of(0, wrong)


def test_chosen_jobs_come_with_what_they_need(tmp_path):
    jobs = [shell(tmp_path, "a"), shell(tmp_path, "b", ["a"]), shell(tmp_path, "c", ["b"]), shell(tmp_path, "d")]
    assert [job.name for job in chosen(jobs, ["b"])] == ["a", "b"]


def test_events_survive_a_cut_line(tmp_path):
    path = tmp_path / "events.jsonl"
    Events(path).add(START)
    path.write_text(path.read_text() + '{"time": 1, "ev')
    Events(path, clock=lambda: 5.0).add(END)
    assert [event["event"] for event in read_events(path)] == [START, "killed", END]
    Events(path).add(STOPPED)
    assert [event["event"] for event in read_events(path)] == [START, "killed", END, STOPPED]


def test_the_last_line_is_one_that_says_something(tmp_path):
    path = tmp_path / "log"
    path.write_text("first\n  error: why  \n\n")
    assert last_line(path) == "why"
