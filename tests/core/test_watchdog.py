"""Tests the watchdog: it ends a run without progress, with the stacks of its threads, and no other run."""

from __future__ import annotations

import threading
import time

from charlm.core.watchdog import Watchdog


def test_a_stall_is_told_with_the_stacks_of_all_threads(capfd):
    said, heard = [], threading.Event()

    def end(message: str) -> None:
        said.append(message)
        heard.set()

    def waits_for_ever(over: threading.Event) -> None:
        over.wait()

    over = threading.Event()
    for _ in range(110):  # more than faulthandler would list
        threading.Thread(target=waits_for_ever, args=(over,), daemon=True).start()
    with Watchdog(0.2 / 60, "train.stall_minutes", end) as watchdog:
        watchdog.progress("step 7")
        assert heard.wait(10)
    over.set()
    (message,) = said
    assert message.startswith("no progress for 0.00333333 minutes (train.stall_minutes), last step 7; ")
    stacks = capfd.readouterr().err
    assert stacks.startswith("thread MainThread:")
    assert "in test_a_stall_is_told" in stacks
    assert "in waits_for_ever" in stacks


def test_progress_and_the_end_of_the_block_are_no_stall():
    said = []
    with Watchdog(0.6 / 60, "key", said.append) as watchdog:
        for step in range(10):
            time.sleep(0.1)
            watchdog.progress(f"step {step}")
    time.sleep(0.8)
    assert not said


def test_without_minutes_there_is_none():
    said = []
    with Watchdog(0, "key", said.append):
        assert "watchdog" not in [thread.name for thread in threading.enumerate()]
    assert not said
