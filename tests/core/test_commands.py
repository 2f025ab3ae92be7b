"""Tests that commands end in one line with the right status: after mistakes, out of memory, Ctrl-C, a closed pipe."""

from __future__ import annotations

import importlib
import os
import threading

import pytest

from charlm.core.commands import run_command

COMMANDS = {
    "charlm.convert.__main__": ("_run", "inspect --input=x"),
    "charlm.statistics.__main__": ("_run", "--model=x"),
    "charlm.robustness.__main__": ("_run", "--models=x --data=y --out=z --batch-size=7"),
    "charlm.families.char2subword.table_report": ("_run", "--checkpoint=x"),
    "charlm.predict.command_line": ("_answer_all", "encode --checkpoint=x --batch-size=7"),
}


def fails(error: BaseException):
    """A command that raises."""

    def command(*_) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("a mistake\nof two lines"), "error: a mistake of two lines\n"),
        (OSError(28, "No space left on device"), "error: [Errno 28] No space left on device\n"),
        (OSError(2, "No such file or directory", "a.txt"), "error: a.txt: No such file or directory\n"),
        (MemoryError(), "error: out of memory: this machine has no more; ask for less\n"),
        (RuntimeError("RESOURCE_EXHAUSTED: 9 bytes"), "error: out of memory on the device: 9 bytes; ask for less\n"),
    ],
)
def test_what_goes_wrong_is_one_line(error, said, capsys):
    assert run_command(fails(error), "ask for less") == 1
    assert capsys.readouterr() == ("", said)


def test_a_bug_is_no_mistake_of_the_user():
    with pytest.raises(RuntimeError, match="a bug"):
        run_command(fails(RuntimeError("a bug")), "")


def test_the_status_is_the_command_s():
    assert run_command(lambda: 3, "") == 3


@pytest.mark.parametrize("module", COMMANDS)
def test_every_command_ends_so(module, monkeypatch, capsys):
    name, arguments = COMMANDS[module]
    command = importlib.import_module(module)
    monkeypatch.setattr(command, name, fails(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")))
    assert command.main(arguments.split()) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: out of memory on the device: Out of memory allocating 9 bytes; ")
    assert line.count("\n") == 1
    if "--batch-size=7" in arguments:
        assert "lower --batch-size (now 7)" in line

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", leave)  # the process ends without tearing the interpreter down
    monkeypatch.setattr("charlm.core.interrupts._ending", threading.Lock())
    monkeypatch.setattr(command, name, fails(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as stop:
        command.main(arguments.split())
    assert stop.value.code == 130
    assert capsys.readouterr().err.startswith("interrupted")
