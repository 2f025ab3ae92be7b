"""How the answers of `charlm.predict` look to people: a line for the text, and indented lines for what the model says.

Open it to change what a terminal shows, or to add the form of a command. It needs no JAX.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import TypeAlias

from charlm.core.types import JsonObject

Written: TypeAlias = Callable[[str, JsonObject], str]  # the text, its answer as a JSON object -> what is printed
_NUMBERS = 6  # of a vector, the first ones, are shown
_OBEYED = ("Cc", "Zl", "Zp")  # categories of characters that move, colour or clear
_JOINERS = "\u200c\u200d"  # between letters of a word, without a column of their own
_CLASSES = 5  # of the likeliest classes, that many are shown


def as_conll(_: str, result: JsonObject) -> str:
    """Returns the result of `tag` as fine-tuning reads it: "word<tab>tag" a line, and an empty line at the end."""
    return "".join(f"{word['word']}\t{word['label']}\n" for word in result["words"])


def _rows(rows: Iterable[tuple[str | float | None, ...]]) -> list[str]:
    """Returns a line for each row, with columns of equal width; numbers have three decimals."""
    written = [tuple(_cell(cell) for cell in row) for row in rows]
    widths = [max(map(_columns, column)) for column in zip(*written, strict=True)]
    lines = (zip(row, widths, strict=True) for row in written)
    return [
        ("  " + "  ".join(cell + " " * (width - _columns(cell)) for cell, width in line)).rstrip() for line in lines
    ]


def _cell(cell: str | float | None) -> str:
    if isinstance(cell, str):
        return _plain(cell)
    return "-" if cell is None else f"{cell:.3f}"


def _plain(text: str) -> str:
    """Returns a text on one line, whose control characters, which a terminal would obey, are written as escapes."""
    written = (c.encode("unicode_escape").decode() if unicodedata.category(c) in _OBEYED else c for c in text)
    return "".join(written)


def _columns(text: str) -> int:
    """Returns how many columns of a terminal a text takes: two for a wide character, none for an accent of another."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    none = sum(unicodedata.combining(c) != 0 or c in _JOINERS for c in text)
    return len(text) + wide - none


def _encoded(_: str, result: JsonObject) -> list[str]:
    unit = "pieces" if "pieces" in result else "words"
    rows = [(one[unit[:-1]], one["vector"]) for one in result.get(unit, ())]
    rows.append(("(all)", result["sentence"]))
    return _rows((name, *map(float, vector[:_NUMBERS]), "...") for name, vector in rows)


def _filled(_: str, result: JsonObject) -> list[str]:
    lines, several = [], len(result["fills"]) > 1
    for number, gap in enumerate(result["fills"], start=1):
        lines += [f"  gap {number}"] * several
        lines += _rows((fill["score"], fill["word"]) for fill in gap) or ["  no word that is known fits"]
    return lines


def _corrected(_: str, result: JsonObject) -> list[str]:
    edits = result["edits"]
    shown = _rows((edit["probability"], f"{edit['word']} -> {edit['correction']}") for edit in edits)
    return [f"  {_plain(result['corrected'])}", *shown] if edits else ["  nothing to correct"]


def _scored(_: str, result: JsonObject) -> list[str]:
    pieces = _rows((piece["log_prob"], piece["piece"]) for piece in result.get("pieces", ()))
    return [f"  log-probability {result['log_prob']:.3f}, {result['bits_per_char']:.3f} bits a character", *pieces]


def _written_on(_: str, result: JsonObject) -> list[str]:
    written = "\n".join(map(_plain, result["generated"].split("\n")))
    return [f"  ...{written}" + ("" if result["finished"] else " ...")]


def _near(_: str, result: JsonObject) -> list[str]:
    return _rows((near["cosine"], near["subword"]) for near in result["neighbors"])


def _tagged(_: str, result: JsonObject) -> list[str]:
    return _rows((word["probability"], word["word"], word["label"]) for word in result["words"])


def _classified(_: str, result: JsonObject) -> list[str]:
    likeliest = sorted(result["probabilities"].items(), key=lambda item: -item[1])
    left = len(likeliest) - _CLASSES
    more = [f"  and {left} less likely ones"] if left > 0 else []
    return _rows((probability, name) for name, probability in likeliest[:_CLASSES]) + more


def _measured(_: str, result: JsonObject) -> list[str]:
    return [f"  {result['value']:.3f}"]


def _answered(_: str, result: JsonObject) -> list[str]:
    candidates = _rows((one["probability"], one["text"] or "(no answer)") for one in result["candidates"])
    return candidates if result["answer"] else ["  no answer; the likeliest are", *candidates]


def _ranked(_: str, result: JsonObject) -> list[str]:
    return [f"  {result['score']:.3f}"]


_COMMANDS: dict[str, Callable[[str, JsonObject], list[str]]] = {
    "encode": _encoded,
    "fill-mask": _filled,
    "correct": _corrected,
    "score": _scored,
    "generate": _written_on,
    "neighbors": _near,
    "tag": _tagged,
    "classify": _classified,
    "measure": _measured,
    "answer": _answered,
    "rank": _ranked,
}


def printed(command: str, form: str, terminal: bool) -> Written | None:
    """Returns what prints the answers of a command; None for JSON lines.

    Args:
      form: "json", "text" for people, "conll" for fine-tuning, or "auto": for people if they read it on a terminal.
    """
    if form == "conll":
        return as_conll
    lines = _COMMANDS.get(command)
    if lines is None or not (form == "text" or (form == "auto" and terminal)):
        return None
    return lambda text, result: "\n".join([_plain(text), *lines(text, result)])
