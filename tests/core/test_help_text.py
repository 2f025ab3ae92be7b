"""Tests help texts: sentences and lists fit the terminal, examples stay whole, and so it is with every command."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest

from charlm.__main__ import COMMANDS
from charlm.core.help_text import HelpText, columns, entry, wrapped

TEXT = """Reads one file after another, and says of each what it is, how long it is and how many words it has.

    charlm stats --model bert-base-cased --data one.txt another.txt a/third.txt and-more.txt

kinds:
  short  nothing
  a name of two words  what it means takes more than one line of a narrow terminal, as this does"""


def test_sentences_and_lists_are_wrapped_and_examples_stay():
    lines = wrapped(TEXT, 50).split("\n")
    assert lines[:3] == [
        "Reads one file after another, and says of each",
        "what it is, how long it is and how many words it",
        "has.",
    ]
    assert lines[4] == TEXT.split("\n")[2]
    assert lines[6:] == [
        "kinds:",
        "  short  nothing",
        "  a name of two words  what it means takes more",
        "                       than one line of a narrow",
        "                       terminal, as this does",
    ]
    assert wrapped(wrapped(TEXT, 50), 200).split("\n")[0] == TEXT.split("\n")[0]


def test_a_long_name_leaves_room_for_what_it_means():
    lines = entry("--a-name-longer-than-the-column VALUE", "short words " * 6, 25, 50).split("\n")
    assert max(map(len, lines)) <= 50
    assert lines[0] == "  --a-name-longer-than-the-column VALUE short"
    assert all(line.startswith(" " * 25 + "words short") for line in lines[1:])


@pytest.mark.parametrize(("asked", "given"), [("10", 40), ("72", 72), ("500", 120)])
def test_the_width_is_the_terminals_within_reason(monkeypatch, asked, given):
    monkeypatch.setenv("COLUMNS", asked)
    assert columns() == given


def test_a_description_follows_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = argparse.ArgumentParser(description=TEXT, formatter_class=HelpText).format_help()
    assert all(len(line) <= 60 or line.startswith("    charlm") for line in text.split("\n"))
    assert TEXT.split("\n")[2] in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_eighty_columns_but_for_what_is_copied(command):
    env = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-m", "charlm", command, "--help"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wide = [line for line in done.stdout.splitlines() if len(line) > 80 and not line.startswith("    ")]
    assert wide == []
