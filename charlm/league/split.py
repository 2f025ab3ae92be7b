"""Parts a task's files into examples to learn from and others to measure on, where there is only one file.

    python -m charlm.league.split --files dev.conll --every 5 --out parts

Every fifth example is measured on. An example is an article of SQuAD's JSON, a sentence of CoNLL columns (blank lines
between), or a line of a table. The order stays.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.durable import write_text
from charlm.core.local_paths import check_options
from charlm.core.reading import loads, read_bytes

LEARNED, MEASURED = "learn", "measure"  # the names of the parts
_TABLES = (".tsv", ".csv")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # as the readers of tasks cut: other characters that end lines stay in texts
_BLANK = " \t\r\n"

T = TypeVar("T")


def part_file(file: str, number: int, folder: Path, part: str) -> Path:
    """Returns where a part of the examples of the file with that number is written."""
    return folder / f"{part}_{number}_{Path(file).name.removesuffix('.gz')}"


def parts_of(text: str, suffix: str, every: int, header: bool = False, table: bool = False) -> tuple[str, str]:
    """Returns the text of the examples to learn from, and that of every `every`-th, which is measured on.

    Args:
      suffix: the end of the file's name: ".json" is SQuAD's.
      header: whether the first line of a table names its columns; both parts have it.
      table: whether it is a table for certain, so that blank lines part nothing.

    Raises:
      ValueError: the file has fewer than `every` examples, or is no JSON of SQuAD.
    """
    if suffix == ".json":
        return _articles(text, every)
    lines = _LINE.findall(text)
    if suffix == ".csv":
        lines = _records(lines)
    if table:
        lines = [line for line in lines if line.strip(_BLANK)]
    while lines and not lines[-1].strip(_BLANK):
        lines.pop()
    if any(not line.strip(_BLANK) for line in lines):
        return _dealt(_blocks(lines), every)
    head = "".join(lines[:1]) if header and suffix in _TABLES else ""
    return _dealt(lines[1:] if head else lines, every, head)


def _dealt(examples: Sequence[str], every: int, head: str = "") -> tuple[str, str]:
    learned, measured = _two(examples, every)
    return head + "".join(learned), head + "".join(measured)


def _two(examples: Sequence[T], every: int) -> tuple[list[T], list[T]]:
    if len(examples) < every:
        raise ValueError(f"{len(examples)} examples, expected at least {every}")
    measured = [one for number, one in enumerate(examples, start=1) if number % every == 0]
    return [one for number, one in enumerate(examples, start=1) if number % every], measured


def _records(lines: Sequence[str]) -> list[str]:
    """Returns the records of a table whose quoted cells may hold line ends."""
    found, record = [], ""
    for line in lines:
        record += line
        if record.count('"') % 2 == 0:
            found.append(record)
            record = ""
    return [*found, record] if record else found


def _blocks(lines: Sequence[str]) -> list[str]:
    """Returns the parts between blank lines, each with one behind it."""
    found, block = [], ""
    for line in (*lines, "\n"):
        if line.strip(_BLANK):
            block += line if line.endswith("\n") else f"{line}\n"
        elif block:
            found.append(f"{block}\n")
            block = ""
    return found


def _articles(text: str, every: int) -> tuple[str, str]:
    content = loads(text)
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise ValueError('expected the JSON of SQuAD, an object with "data"')
    learned, measured = _two(content["data"], every)
    return json.dumps(content | {"data": learned}), json.dumps(content | {"data": measured})


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    parser = Parser(prog="python -m charlm.league.split", description=__doc__)
    add = parser.add_argument
    add("--files", nargs="+", required=True, metavar="FILE", help="files of a task, .gz too")
    add("--every", type=int, default=5, metavar="N", help="one of so many examples is measured on (default: 5)")
    add("--table", action="store_true", help="the files are tables: blank lines part no sentences")
    add("--header", action="store_true", help="the first line of a table names its columns")
    add("--out", required=True, metavar="FOLDER", help="folder of the parts")
    options = parser.parse_args(argv)
    return run_command(lambda: _run(options), "split the file by hand")


def _run(options: argparse.Namespace) -> int:
    check_options(vars(options), needed=("files", "out"))
    if options.every < 2:
        raise ValueError(f"--every={options.every}: expected at least 2")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(options.files):
        try:
            text = read_bytes(file, unpack=file.endswith(".gz")).decode("utf-8")
            suffix = Path(file.removesuffix(".gz")).suffix
            parts = parts_of(text, suffix, options.every, options.header, options.table)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        for name, part in zip((LEARNED, MEASURED), parts, strict=True):
            write_text(part_file(file, number, folder, name), part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
