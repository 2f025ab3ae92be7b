"""Tests when a progress bar is shown, and that log lines stay whole beside it."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import time

import pytest

from charlm.core import progress_bar as module
from charlm.core.logs import start_logging
from charlm.core.progress_bar import counter, progress_bar


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self):
        return True


def use_terminal(monkeypatch):
    """Makes standard error a terminal to the end of the test, and returns it; no fixture, which pytest would undo."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(module, "_plain", False)
    return stream


def test_the_bar_shows_steps_loss_speed_and_the_time_left(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress_bar(100, "words") as bar:
        assert terminal.getvalue() == ""  # while the step is compiled
        bar.show(41, math.nan, 0.0)
        time.sleep(0.12)  # it is drawn ten times a second at most
        bar.show(42, 2.34567, 12345.6)
        shown = terminal.getvalue().split("\r")[-1]
    assert shown.startswith(" 42% |")
    assert "| 42/100, loss 2.3457  12,346 words/s  ETA 00:0" in shown
    assert len(shown) == 80
    assert not terminal.getvalue().split("\r")[-2].strip()  # in the end it is wiped out


def test_a_run_may_go_back(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress_bar(100, "words") as bar:
        bar.show(50, 1.0, 1.0)
        bar.show(20, 1.0, 1.0)
        time.sleep(0.12)
        bar.show(21, 1.0, 1.0)
        assert "| 21/100" in terminal.getvalue().split("\r")[-1]


def test_log_lines_stand_above_the_bar(monkeypatch):
    terminal = use_terminal(monkeypatch)
    log = logging.getLogger("charlm")
    log.handlers.clear()
    start_logging()
    with progress_bar(100, "words") as bar:
        log.info("before")
        bar.show(1, 1.0, 1.0)
        log.info("within")
    log.info("after")
    *lines, last = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    assert [line.partition(" ")[2] for line in lines] == ["before", "within", "after"]
    assert last == ""


@pytest.mark.parametrize(
    ("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("--plain", ""), ("a pipe", ""), ("several hosts", "")]
)
def test_where_no_bar_is_shown(monkeypatch, name, value):
    terminal = use_terminal(monkeypatch)
    assert module.is_shown()
    if name == "--plain":
        module.use_plain_output()
    elif name == "a pipe":
        monkeypatch.setattr("sys.stderr", io.StringIO())
    elif name == "several hosts":
        monkeypatch.setattr(module.hosts, "alone", lambda: False)
    else:
        monkeypatch.setenv(name, value)
    with progress_bar(100, "words") as bar:
        assert bar is None
    assert terminal.getvalue() == ""


def test_a_counter_shows_how_many_are_done(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with contextlib.ExitStack() as stack:
        count = counter(stack, "texts")
        time.sleep(0.12)
        count(128)
        assert terminal.getvalue().split("\r")[-1].startswith("128 texts [00:00, ")
    monkeypatch.setenv("NO_COLOR", "1")
    with contextlib.ExitStack() as stack:
        assert counter(stack, "texts") is None
