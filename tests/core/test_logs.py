"""Tests what charlm's programs show on standard error, in processes of their own."""

from __future__ import annotations

import socket
import subprocess
import sys

from small_run import ROOT


def run(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program with charlm's logging."""
    start = "import sys\nfrom charlm.core import logs\nlogs.start_logging()\n"
    return subprocess.run([sys.executable, "-c", start + code], cwd=ROOT, text=True, **options)


def test_an_error_is_written_at_once_with_the_end_of_its_line():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps writes apart, which a pipe joins
    with ours, theirs:
        run("logs.print_error('the disk is full')", stderr=theirs, check=True)
        assert ours.recv(1000) == b"error: the disk is full\n"


def test_what_a_failed_write_leaves_in_a_closed_loop_is_not_shown():
    unraisable = """
class Left:
    def __init__(self, error):
        self.error = error
    def __del__(self):
        raise self.error
Left(RuntimeError("Event loop is closed"))
Left(RuntimeError("another error"))
Left(ValueError("Event loop is closed"))
logs.start_logging()  # a second time
Left(RuntimeError("Event loop is closed"))
"""
    said = run(unraisable, capture_output=True, check=True).stderr
    assert [line for line in said.splitlines() if "Error: " in line] == [
        "RuntimeError: another error",
        "ValueError: Event loop is closed",
    ]
