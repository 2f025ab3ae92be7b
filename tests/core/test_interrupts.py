"""Tests Ctrl-C and SIGTERM: one line and status 130 or 143, soon, also inside compiled code; a block may save first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_run import ROOT
from test_main import TINY, overrides

from charlm.core.interrupts import EXIT_STATUS, TIMED_OUT, OutOfTime, ending_clearly, limited, status_of

# Compiled code that no signal stops takes the place of a compiler.
PROGRAM = """
import hashlib, time
from charlm.core import interrupts
interrupts.CLEAN_UP_SECONDS = 0.5
compile = lambda: (print("at work", flush=True), hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9))
with interrupts.ending_clearly("advice"):
    try:
        print("begun", end=" ")
        {body}
    finally:
        print("cleaned up", flush=True)
print("done")
"""
SLEEP = "print('at work', flush=True); time.sleep(60)"
# As a callback of the garbage collector that a library has added.
CALLBACK = (
    "import gc; gc.callbacks.append(lambda *_: (print('at work', flush=True), time.sleep(60))); gc.collect(); "
    "gc.callbacks.pop(); time.sleep(60)"
)
IGNORE = "import signal; signal.signal(signal.SIGINT, lambda *_: None); "
DEFERRED = "import contextlib; stack = contextlib.ExitStack(); stack.enter_context(interrupts.deferred()); "
# Python runs a program or a module; a shell may have started it with Ctrl-C ignored.
AS_IN_A_TERMINAL = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv.pop(0)
if sys.argv[0] == "-c":
    exec(sys.argv[1])
else:
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def interrupted(
    *command: str, times: int = 1, after: str = "at work", number: int = signal.SIGINT
) -> tuple[int, str, str]:
    """Runs Python, interrupts it when it has printed a text, and returns its status and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", AS_IN_A_TERMINAL, *command],
        stdout=-1, stderr=-1, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        stream = process.stdout if after == "at work" else process.stderr
        while after not in (line := stream.readline()):
            assert line, process.communicate()
        for _ in range(times):
            time.sleep(0.2)
            process.send_signal(number)
        said, errors = process.communicate(timeout=60)
        return process.returncode, said, errors
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("body", "times", "cleaned"),
    [
        (SLEEP, 1, True),
        ("compile()", 1, False),
        (IGNORE + SLEEP, 1, False),  # the exception is lost
        (CALLBACK, 1, False),  # here, too
        (IGNORE + DEFERRED + "stack.enter_context(interrupts.deferred(until_saved=False)); compile()", 1, False),
        (IGNORE + DEFERRED + "compile()", 2, False),  # a second one does not wait for what is saved
    ],
)
def test_it_ends_at_once_in_one_line(body, times, cleaned):
    status, said, errors = interrupted("-c", PROGRAM.format(body=body), times=times)
    assert status == EXIT_STATUS == 130
    assert errors == "interrupted; advice\n"
    assert ("cleaned up" in said) == cleaned
    assert "done" not in said


@pytest.mark.parametrize("body", ["compile()", CALLBACK, SLEEP])
def test_a_terminable_block_ends_in_one_line_even_where_the_exception_is_lost_or_late(body):
    program = PROGRAM.replace('ending_clearly("advice"):', 'ending_clearly("advice"), interrupts.terminable():')
    status, _, errors = interrupted("-c", program.format(body=body), number=signal.SIGTERM)
    assert (status, errors) == (143, "terminated; advice\n")


TERMINABLE = (
    "import contextlib, signal; stack = contextlib.ExitStack(); stack.enter_context(interrupts.terminable()); "
    "before = signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, before)); "
)


def test_a_terminable_block_may_leave_the_first_signal_to_one_that_saves():
    program = lambda body: PROGRAM.format(body=TERMINABLE + "stack.enter_context(interrupts.deferred()); " + body)
    end = lambda body, times: interrupted("-c", program(body), times=times, number=signal.SIGTERM)
    status, said, errors = end("print('at work', flush=True); time.sleep(1.5)", 1)
    assert (status, errors) == (0, "")
    assert said.endswith("done\n")
    before_anything = "stack.enter_context(interrupts.deferred(until_saved=False)); compile()"
    for body, times in ((SLEEP, 2), ("compile()", 2), (before_anything, 1)):
        status, said, errors = end(body, times)
        assert (status, errors) == (143, "terminated; advice\n")
        assert ("cleaned up" in said) == (body == SLEEP)


def test_an_unfinished_folder_is_removed_where_the_main_thread_cannot(tmp_path):
    folder = tmp_path / "unfinished"
    body = f"from pathlib import Path; at = Path({str(folder)!r}); at.mkdir(); (at / 'weights').write_bytes(b'1'); "
    enter = "import contextlib; stack = contextlib.ExitStack(); stack.enter_context(interrupts.unfinished(at)); "
    status, _, errors = interrupted("-c", PROGRAM.format(body=body + enter + "compile()"))
    assert (status, errors) == (130, "interrupted; advice\n")
    assert not folder.exists()


def test_before_a_command_takes_over_it_ends_in_one_line():
    program = (
        "from charlm.core import interrupts; import time; interrupts.end_at_once(); {}"
        "print('at work', flush=True); time.sleep(60)"
    )
    assert interrupted("-c", program.format("")) == (130, "", "interrupted\n")
    taken = program.format("context = interrupts.ending_clearly('advice'); context.__enter__(); ")
    status, _, errors = interrupted("-c", taken)
    assert status != 0
    assert "KeyboardInterrupt" in errors  # the exception is raised again, for the block to clean up


def test_what_is_deferred_is_left_to_end_by_itself():
    body = IGNORE + DEFERRED + "print('at work', flush=True); time.sleep(1.5)"
    status, said, errors = interrupted("-c", PROGRAM.format(body=body))
    assert (status, errors) == (0, "")
    assert said.endswith("done\n")


def test_it_leaves_no_trace_and_works_in_any_thread():
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    threads, open_files = threading.active_count(), len(os.listdir("/proc/self/fd")) if Path("/proc").is_dir() else 0
    with pytest.raises(ValueError, match="mine"), ending_clearly():
        raise ValueError("mine")
    assert signal.set_wakeup_fd(before) == before
    assert threading.active_count() == threads
    assert not open_files or len(os.listdir("/proc/self/fd")) == open_files
    found = []

    def elsewhere() -> None:
        with ending_clearly():
            found.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [True]


@pytest.mark.parametrize(
    ("number", "ends", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_the_training_command_before_its_first_step(trained, tmp_path, number, ends, word):
    command = ["-m", "charlm.main", f"--config={TINY}", *overrides(trained.config), f"--workdir={tmp_path / 'run'}"]
    status, said, errors = interrupted(*command, after="writing to", number=number)
    assert (status, said) == (ends, "")
    assert "Traceback" not in errors
    advice = "the same command goes on from the last checkpoint, or begins again if there is none"
    assert errors.splitlines()[-1] == f"{word}; {advice}"
    assert not (tmp_path / "run" / "checkpoints").exists() or not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_limited_block_ends_when_its_time_is_over():
    before = signal.getsignal(signal.SIGALRM)
    started = time.monotonic()
    with pytest.raises(OutOfTime) as raised, limited(0.1):
        time.sleep(20)
    assert time.monotonic() - started < 10
    assert status_of(raised.value) == (TIMED_OUT, "out of time")
    with limited(0.1):
        pass
    with limited(None):
        time.sleep(0.3)  # the timer of the block before has ended with it
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
