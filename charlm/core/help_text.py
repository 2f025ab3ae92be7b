"""Help texts at the width of the terminal: sentences and lists are wrapped, examples stay as they are, to be copied.

`charlm.core.command_parser` uses it for every command. Open it to change how help is laid out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Protocol

_WIDEST = 120  # columns: longer lines are hard to read
_NARROWEST = 40  # columns: with fewer, a terminal breaks lines itself
_LISTED = re.compile(r"  (\S.*?)( {2,})(\S.*)")


class HasLine(Protocol):
    """An entry of a table that says what it is in a line."""

    @property
    def line(self) -> str:
        """What it is."""
        ...


def table(title: str, entries: Mapping[str, HasLine]) -> str:
    """Returns a table of names for the end of a help text: a line for each, with what it is."""
    return "\n".join([f"{title}:", *(f"  {name:<16} {entry.line}" for name, entry in entries.items())])


class HelpText(argparse.HelpFormatter):
    """The formatter of every command: a description is wrapped by paragraphs, its indented lines are not."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(wrapped(text, width), indent)


def columns() -> int:
    """Returns the width of help texts: the terminal's, or COLUMNS, but neither too wide to read nor too narrow.

    Where the output is a file or another program it is the widest.
    """
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns))


def wrapped(text: str, width: int) -> str:
    """Returns a text whose paragraphs and lists have lines of at most `width` characters.

    A line of a list has two spaces, a name, two spaces or more, and what it means. Other indented lines, which are
    examples, are left alone.
    """
    return "\n".join(_lines(text.strip("\n").splitlines(), width))


def _lines(lines: Iterable[str], width: int) -> Iterator[str]:
    for is_prose, several in groupby(lines, lambda line: bool(line.strip()) and not line[0].isspace()):
        if is_prose:
            yield from textwrap.wrap(" ".join(several), width, break_long_words=False, break_on_hyphens=False)
            continue
        for line in several:
            listed = _LISTED.match(line)
            yield line if listed is None else entry(listed[1], listed[3], len(listed[1] + listed[2]) + 2, width)


def entry(name: str, meaning: str, column: int, width: int) -> str:
    """Returns a name and what it means, as a list of options has them.

    Args:
      column: where meanings begin; a longer name takes more.
      width: characters of a line at most.
    """
    start = f"  {name:<{column - 3}} "
    further = " " * min(column, width // 2)
    return textwrap.fill(
        start + meaning, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
