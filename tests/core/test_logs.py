"""Tests what charlm's programs show on standard error, in processes of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios

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


LINES = """
import logging
log = logging.getLogger("charlm")
log.info("a line that is longer than the terminal is wide breaks between words, each of which stays whole")
log.info("try it: python -m charlm.predict fill-mask --checkpoint=runs/hlm 'The [MASK] of the list.'")
log.info("two\\n\\nlines")
"""


def test_long_lines_break_between_words_on_a_terminal_but_commands_stay_whole():
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    run(LINES, stderr=secondary, check=True)
    os.close(secondary)
    said = re.sub(r"\d\d:\d\d:\d\d", "20:00:00", os.read(primary, 10_000).decode()).replace("\r\n", "\n")
    os.close(primary)
    assert said.splitlines() == [
        "20:00:00 a line that is longer than the terminal",
        "         is wide breaks between words, each of",
        "         which stays whole",
        "20:00:00 try it: python -m charlm.predict fill-mask --checkpoint=runs/hlm 'The [MASK] of the list.'",
        "20:00:00 two",
        "",
        "lines",
    ]


def test_lines_in_a_pipe_stay_whole():
    said = run(LINES, capture_output=True, check=True).stderr
    assert [len(line) for line in said.splitlines()] == [9 + 95, 9 + 90, 12, 0, 5]
