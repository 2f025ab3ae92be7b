"""Reads texts, has them answered, and writes the answers; one bad text never ends the stream.

The commands of `charlm.predict` use it. Open it to change how lines are read, what one line of output looks like, or
what happens to a text that cannot be answered.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from charlm.core.commands import fail
from charlm.core.reading import LINE, scaled, too_large
from charlm.core.types import JsonObject

CUT = 80  # number of characters shown of a text that is too long
BATCHES_AT_A_TIME = 4  # batches of texts read before they are answered, so that texts of similar length share a batch


class Asked(NamedTuple):
    """An input text: where it comes from ("text 2", "line 2"), how often it came before, and whether it was cut."""

    text: str
    where: str
    before: int
    cut: bool = False


Answerer = Callable[[list[Asked]], list[JsonObject]]  # returns an answer for each text, or raises


def answer_stream(
    answer: Answerer,
    arguments: list[str],
    size: int,
    written: Callable[[str, JsonObject], str] | None = None,
    counter: Callable[[contextlib.ExitStack, str], Callable[[int], None] | None] | None = None,
) -> int:
    """Prints the answers to texts in their order; returns the exit status: 1 if any text could not be answered.

    Args:
      arguments: the texts; none: the lines of standard input.
      size: number of texts that are read before they are answered; on a terminal every line is answered at once.
      written: returns what is printed of a text and its answer; None: a JSON line, also of a text that has none.
      counter: as `charlm.core.progress_bar.counter`, for texts and answers that are files or pipes; None: no display.
    """
    status, texts = 0, _texts(arguments)
    if not arguments and sys.stdin.isatty():
        size = 1
        print("texts, a line each; Ctrl-D ends them", file=sys.stderr, flush=True)
    with contextlib.ExitStack() as stack:
        by_files = not (arguments or sys.stdin.isatty() or sys.stdout.isatty())
        count = counter(stack, "texts") if counter is not None and by_files else None
        while chunk := list(itertools.islice(texts, size)):
            for asked, result in zip(chunk, _answers(answer, chunk), strict=True):
                if isinstance(result, str):
                    status = fail(f"{asked.where}: {result}")
                    result = {"error": result}
                if written is None:
                    print(json.dumps({"text": asked.text} | result, ensure_ascii=False))
                elif "error" not in result:
                    print(written(asked.text, result))
            sys.stdout.flush()
            if count is not None:
                count(len(chunk))
    return status


def _answers(answer: Answerer, chunk: list[Asked]) -> list[JsonObject | str]:
    """Answers texts together; if that fails, one by one, so that one bad text does not affect the others.

    Returns:
      For each text its answer, or an error message. No exception ends the stream.
    """
    try:
        for asked in chunk:
            if asked.cut:
                raise too_large("the text", f"longer than {scaled(LINE):,} characters")
            if any("\ud800" <= char <= "\udfff" for char in asked.text):
                raise ValueError("expected a text in UTF-8")
        return [*answer(chunk)]
    except Exception as error:
        if len(chunk) > 1:
            return [_answers(answer, [asked])[0] for asked in chunk]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return [" ".join(f"{kind}{error}".split())]


def _texts(arguments: list[str]) -> Iterator[Asked]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    write_utf8()
    seen: Counter[str] = Counter()
    kind, lines = ("text", ((text, False) for text in arguments)) if arguments else ("line", _lines())
    for number, (text, cut) in enumerate(lines, start=1):
        yield Asked(text, f"{kind} {number}", seen[text], cut)
        seen[text] += 1


def write_utf8() -> None:
    """Makes standard output write UTF-8, whatever the locale is."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # bytes that were not UTF-8 are written as JSON escapes like "\udcff"
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _lines() -> Iterator[tuple[str, bool]]:
    """Yields (line, False) for each line of standard input; (its beginning, True) for a line that is too long."""
    most = scaled(LINE)
    while line := sys.stdin.readline(most + 1):
        if not (cut := len(line) > most):
            yield line.rstrip("\r\n"), cut
            continue
        shown = line[:CUT]
        while line and not line.endswith("\n"):
            line = sys.stdin.readline(most)
        yield shown, cut
