"""What a report is made of, before it is Markdown or HTML: sections of paragraphs, tables, plots and commands.

Everything that comes from a measurement (names, paths, notes) is plain text here; the two writers escape all of it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

NOTHING = "–"  # stands in a table for what was not measured
_KEPT_FORMAT = "\u200c\u200d\ufe0f"  # joiners that scripts and emoji need; other format characters can reorder a line


@dataclass(frozen=True)
class Name:
    """What a model is called: its own run of text, whatever the direction of its script."""

    text: str


@dataclass(frozen=True)
class Strong:
    """Text that stands out."""

    text: str


@dataclass(frozen=True)
class Code:
    """A command, a path, a setting."""

    text: str


Inline = str | Name | Strong | Code
Text = Inline | Sequence[Inline]


@dataclass(frozen=True)
class Table:
    """A table; all rows are as long as the header.

    Attributes:
      key: unique among the tables of a report.
      caption: what the numbers are.
      header: of each column.
      rows: cells.
      row_headers: so many columns on the left say what a row is about.
      texts: so many columns on the left hold text; all others hold numbers and stand on the right.
    """

    key: str
    caption: Text
    header: Sequence[Text]
    rows: Sequence[Sequence[Text]]
    row_headers: int = 1
    texts: int = 0

    def __post_init__(self) -> None:
        """Checks that the table is one; row headers are text."""
        object.__setattr__(self, "texts", max(self.texts, self.row_headers))
        assert self.rows, f"table {self.key}: a table without rows is left out by its section"
        assert all(len(row) == len(self.header) for row in self.rows), f"table {self.key}: rows of unequal length"


@dataclass(frozen=True)
class Bullets:
    """A list of short texts."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Command:
    """Lines for a shell."""

    text: str


@dataclass(frozen=True)
class Curves:
    """Where the page has plots; Markdown has none."""


Block = Text | Table | Bullets | Command | Curves


@dataclass(frozen=True)
class Section:
    """A heading and what is below it; strings and sequences among the blocks are paragraphs."""

    key: str
    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    subtitle: Text
    sections: list[Section]


def inlines(text: Text) -> Sequence[Inline]:
    """Returns a text as its parts."""
    return (text,) if isinstance(text, str | Name | Strong | Code) else text


def harmless(text: str, keep_lines: bool = False) -> str:
    """Returns a text in one line (or its lines) in which nothing is invisible or turns the rest of the page around.

    Control and format characters and halves of surrogate pairs (paths that are no UTF-8) become U+FFFD.
    """
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r\v\f\x85\u2028\u2029":
            kept.append("\n" if keep_lines and char == "\n" else " ")
        elif category in ("Cc", "Cs") or (category == "Cf" and char not in _KEPT_FORMAT):
            kept.append("\ufffd")
        else:
            kept.append(char)
    return "".join(kept)


def listed(parts: Sequence[Inline], last: str = "and") -> list[Inline]:
    """Returns "a, b and c"."""
    found: list[Inline] = []
    for i, part in enumerate(parts):
        if i:
            found.append(f" {last} " if i == len(parts) - 1 else ", ")
        found.append(part)
    return found
