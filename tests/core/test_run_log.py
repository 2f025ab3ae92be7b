"""Tests that the log of a run lies in its folder, once, and only if a run began there."""

from __future__ import annotations

import contextlib
import logging
import re

import pytest

from charlm.core import run_log

log = logging.getLogger("charlm")
pytestmark = pytest.mark.usefixtures("log_lines")


def lines(folder):
    """The lines of a folder's log without their times."""
    found = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in found)
    return [line[20:] for line in found]


def fail(folder, first, message):
    """Ends a run in a folder by an error."""
    with contextlib.suppress(ValueError), run_log.kept(folder):
        first()
        raise ValueError(message)


def test_lines_before_the_beginning_are_kept_too(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "propagate", False)  # pytest's workers cannot report a line that is not UTF-8
    for run in (1, 2):
        with run_log.kept(tmp_path):
            log.info("reading %d", run)
            run_log.begin()
            log.info("step %d \udcff", run)
        log.info("outside")
    assert lines(tmp_path) == ["reading 1", r"step 1 \udcff", "reading 2", r"step 2 \udcff"]


def test_a_run_that_does_not_begin_leaves_nothing(tmp_path):
    fail(tmp_path, lambda: log.info("reading"), "no data")
    assert list(tmp_path.iterdir()) == []
    run_log.begin()  # none is open
    assert not [handler for handler in log.handlers if isinstance(handler, run_log.RunLog)]


def test_the_error_that_ends_a_run_is_its_last_line(tmp_path, log_lines):
    fail(tmp_path, run_log.begin, "step 3:\n loss nan")
    assert lines(tmp_path) == ["error: step 3: loss nan"]
    assert log_lines.lines == []  # the command prints it


def test_a_log_that_the_launcher_writes_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_LOG_FILE", str(tmp_path / "log.txt"))
    with run_log.kept(tmp_path):
        run_log.begin()
        log.info("step 1")
    assert list(tmp_path.iterdir()) == []


def test_output_that_goes_to_the_file_is_not_written_twice(tmp_path, monkeypatch):
    with (tmp_path / "log.txt").open("w") as file:
        monkeypatch.setattr("sys.stderr", file)
        with run_log.kept(tmp_path):
            run_log.begin()
            log.info("step 1")
    assert (tmp_path / "log.txt").read_text() == ""


def test_a_folder_that_cannot_be_written_does_not_end_the_run(tmp_path, read_only):
    read_only(tmp_path)
    with run_log.kept(tmp_path):
        run_log.begin()
        log.info("step 1")
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_shows_warnings_alone_still_has_the_whole_log_in_the_folder(tmp_path, monkeypatch):
    shown = []

    class Shown(logging.Handler):
        def emit(self, record):
            shown.append(record.getMessage())

    root, handler = logging.getLogger(), Shown()
    monkeypatch.setattr(log, "level", logging.NOTSET)
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(root, "level", logging.WARNING)
    for one in (root, log):
        one.manager._clear_cache()  # levels set past `setLevel`
    root.addHandler(handler)
    try:
        with run_log.kept(tmp_path):
            run_log.begin()
            log.info("step 1")
            log.warning("the loss rises")
        log.info("outside")
    finally:
        root.removeHandler(handler)
    assert lines(tmp_path) == ["step 1", "the loss rises"]
    assert shown == ["the loss rises"]
    assert (log.level, log.propagate) == (logging.NOTSET, True)
