"""Tests that all processes end soon after one of them, and say in one line which one ended and what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from several_processes import free_port
from small_run import ROOT

# Like training: all meet in every step. After three, a process whose third argument is not empty fails with it.
PROGRAM = """
import sys, time
from charlm.core import hosts
from charlm.core.logs import start_logging
start_logging()
own = int(sys.argv[2])
hosts.start(sys.argv[1], 3, own)
with hosts.ending_together():
    for step in range(1200):
        hosts.from_primary(step)
        if step == 3:
            print("at work", flush=True)
            if sys.argv[3]:
                raise ValueError(sys.argv[3])
        time.sleep(0.05)
"""


@contextmanager
def three(*errors: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Three processes at work; each fails with its error, if there is one."""
    address, running = f"127.0.0.1:{free_port()}", []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": ""}
    try:
        for i, error in enumerate(errors):
            command = [sys.executable, "-c", PROGRAM, address, str(i), error]
            running.append(subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True))
        for process in running:
            while "at work" not in process.stdout.readline():  # after a line of XLA's
                assert process.poll() is None, process.communicate()
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def end(process: subprocess.Popen[str], seconds: float) -> tuple[int, list[str]]:
    """Returns the status of a process that ends in time, and what it says of the reason."""
    _, said = process.communicate(timeout=seconds)
    return process.returncode, [line for line in said.splitlines() if line.startswith(("error", "Traceback", "*** "))]


@pytest.mark.parametrize("killed", [0, 2])
def test_a_process_that_is_killed(killed):
    with three("", "", "") as running:
        running[killed].send_signal(signal.SIGKILL)
        started = time.monotonic()
        for i in {0, 1, 2} - {killed}:
            status, (said,) = end(running[i], 30)
            assert status == 1
            assert said.startswith(f"error: process {i}: process {killed} died")
            assert said.endswith("start the same command on all hosts again: it goes on from the last checkpoint")
        assert time.monotonic() - started < 30


def test_a_process_that_fails_tells_the_others_why():
    with three("", "the disk is full", "") as running:
        assert end(running[1], 30) == (1, ["error: process 1: the disk is full"])
        for i in (0, 2):
            assert end(running[i], 30) == (1, [f"error: process {i}: process 1 failed: the disk is full"])
