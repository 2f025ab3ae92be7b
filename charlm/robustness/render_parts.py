"""The parts of a report, independent of Markdown and HTML: sections of paragraphs, tables, plots and commands.

Open it to add a kind of block, which both writers then have to know. All text from measurements (names, paths, notes)
is plain text here; the Markdown and the HTML writer escape it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

NOTHING = "–"  # the cell of a value that was not measured
_KEPT_FORMAT = "\u200c\u200d\ufe0f"  # joiners that scripts and emoji need; other format characters may reorder a line


@dataclass(frozen=True)
class Name:
    """The name of a model: a separate run of text, whatever the direction of its script."""

    text: str


@dataclass(frozen=True)
class Strong:
    """Emphasised text."""

    text: str


@dataclass(frozen=True)
class Code:
    """A command, a path, a setting."""

    text: str


Inline = str | Name | Strong | Code
RichText = Inline | Sequence[Inline]


@dataclass(frozen=True)
class Table:
    """A table; all rows are as long as the header.

    Attributes:
      key: a name that is unique among the tables of a report.
      caption: explains the numbers.
      header: the header of each column.
      rows: the cells of each row.
      row_headers: the number of columns on the left that are row headers.
      texts: the number of columns on the left that hold text; all others hold numbers and are aligned right.
    """

    key: str
    caption: RichText
    header: Sequence[RichText]
    rows: Sequence[Sequence[RichText]]
    row_headers: int = 1
    texts: int = 0

    def __post_init__(self) -> None:
        """Checks that all rows are as long as the header; counts row headers as columns of text."""
        object.__setattr__(self, "texts", max(self.texts, self.row_headers))
        assert self.rows, f"table {self.key}: a table without rows is left out by its section"
        assert all(len(row) == len(self.header) for row in self.rows), f"table {self.key}: rows of unequal length"


@dataclass(frozen=True)
class Bullets:
    """A list of short texts."""

    items: Sequence[RichText]


@dataclass(frozen=True)
class Command:
    """Lines for a shell."""

    text: str


@dataclass(frozen=True)
class Curves:
    """The place of the plots in the HTML page; Markdown has no plots."""


PageBlock = RichText | Table | Bullets | Command | Curves


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it; strings and sequences among the blocks are paragraphs."""

    key: str
    title: str
    blocks: list[PageBlock] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    subtitle: RichText
    sections: list[Section]


def inlines(text: RichText) -> Sequence[Inline]:
    """Returns the parts of a text."""
    return (text,) if isinstance(text, str | Name | Strong | Code) else text


def harmless(text: str, keep_lines: bool = False) -> str:
    """Returns a text without characters that are invisible or that change the direction of the text after them.

    Control and format characters and lone surrogates (from paths that are not UTF-8) become U+FFFD. Line breaks become
    spaces; with `keep_lines`, newlines stay.
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
    """Returns the parts joined as in "a, b and c"."""
    found: list[Inline] = []
    for i, part in enumerate(parts):
        if i:
            found.append(f" {last} " if i == len(parts) - 1 else ", ")
        found.append(part)
    return found
