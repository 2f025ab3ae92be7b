"""Tests goodput: the share of a run's time, over all its starts, that went into steps that lasted."""

from __future__ import annotations

from unittest import mock

import pytest

from charlm.training import progress
from charlm.training.goodput import GOODPUT_FILE, Goodput, RunStart, account, read_starts


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_all_of_an_unbroken_run_lasts_but_what_is_no_step(tmp_path):
    clock = Clock(1000.0)
    goodput = Goodput(tmp_path, 0, clock)
    clock.now += 10  # compiling
    for step in (4, 8):
        clock.now += 20
        found = goodput.add(step, 20)
    assert found == (40, 0, 50, 1)
    assert found.share == pytest.approx(0.8)


def test_steps_that_are_done_again_and_the_time_between_are_lost(tmp_path):
    clock = Clock(0.0)
    first = Goodput(tmp_path, 0, clock)
    for step in (5, 10, 15):
        clock.now += 10
        first.add(step, 10)
    clock.now += 70  # it is killed, and started again from step 10
    second = Goodput(tmp_path, 10, clock)
    clock.now += 10
    found = second.add(15, 10)
    assert found == (30, 10, 110, 2)
    clock.now += 10
    third = Goodput(tmp_path, 0, clock)  # its checkpoints are gone: nothing of all that lasted
    assert third.add(1, 1) == (1, 41 - 1, 120, 3)


def test_between_two_known_steps_it_is_by_proportion():
    start = RunStart(0.0, 4, [8, 16], [2.0, 10.0])
    assert [start.until(step) for step in (2, 4, 6, 8, 12, 16, 99)] == [0, 0, 1, 2, 6, 10, 10]


def test_a_later_start_from_an_earlier_step_takes_away_from_all_before():
    starts = [RunStart(0, 0, [10], [10.0]), RunStart(20, 10, [20], [10.0]), RunStart(40, 5, [20], [15.0])]
    assert account(starts, 60) == (5 + 0 + 15, 5 + 10, 60, 3)


def test_damaged_lines_are_left_out(tmp_path):
    (tmp_path / GOODPUT_FILE).write_text(
        '{"time": 1, "step": 0}\n{"time": 2, "step": 5, "seconds": 4}\n[]\n{"time": "x", "step": 5}\n'
        '{"time": 3, "step": 5, "seconds": 5}\n{"time": 3, "step": 6, "seconds": "a"}\n{"time": 4, "st'
    )
    assert read_starts(tmp_path) == [RunStart(1.0, 0, [5], [4.0])]
    assert read_starts(tmp_path / "none") == []


def test_no_time_is_no_goodput():
    assert account([], 5.0).share == 0
    assert account([RunStart(5.0, 0, [], [])], 5.0).share == 0


def test_a_full_disk_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"goodput\.jsonl cannot be written: No such file or directory"):
        Goodput(tmp_path / "none", 0)


def test_a_line_that_a_crash_cut_short_takes_no_other_with_it(tmp_path):
    clock = Clock(0.0)
    first = Goodput(tmp_path, 0, clock)
    clock.now += 10
    first.add(5, 10)
    with (tmp_path / GOODPUT_FILE).open("a") as file:
        file.write('{"time": 15, "st')
    Goodput(tmp_path, 5, clock)
    assert read_starts(tmp_path) == [RunStart(0.0, 0, [5], [10.0]), RunStart(10.0, 5, [], [])]


def test_seconds_before_a_compilation_count_and_those_of_it_do_not(monkeypatch):
    clock = Clock(0.0)
    monkeypatch.setattr(progress.time, "perf_counter", clock)
    window = progress.SinceReport(mock.Mock(sums=mock.Mock(_fields=())))
    clock.now += 3
    window.keep_seconds()  # a batch of a new shape comes
    clock.now += 50
    window.forget_speed()
    clock.now += 2
    assert window.take_seconds() == 5
    clock.now += 1
    assert window.take_seconds() == 1
