"""The parts of a report, independent of Markdown and HTML: sections of paragraphs, tables, plots and commands.

Open it to add a kind of block, which both writers, `page` and `markdown`, then have to know. All text from measurements
(names, paths, notes) is plain text here; the writers escape it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True)
class Typo:
    """A word that noise has changed."""

    text: str


@dataclass(frozen=True)
class Wrong:
    """A wrong answer."""

    text: str


Inline = str | Name | Strong | Code | Typo | Wrong
RichText = Inline | Sequence[Inline]


@dataclass(frozen=True)
class Shaded:
    """A cell of a heat map.

    Attributes:
      text: what stands in it.
      hue: what the colour says: "loss", "gain" (of a score under noise), "first" or "second" (which model is better).
      step: how strong the colour is: 0 (none) to `STEPS`.
    """

    text: RichText
    hue: str
    step: int


STEPS = 8
Cell = RichText | Shaded


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
    rows: Sequence[Sequence[Cell]]
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
class Plot:
    """A plot of the HTML page; Markdown has none, and the tables hold its numbers.

    Attributes:
      name: "curves" or "bars", see `page.PLOTS`.
    """

    name: str


@dataclass(frozen=True)
class Card:
    """A short block with a heading, one of several side by side: a text, and a table of answers.

    Attributes:
      title: the heading.
      lines: names and texts, one below the other.
      table: what stands below them.
    """

    title: RichText
    lines: Sequence[tuple[str, RichText]]
    table: Table


@dataclass(frozen=True)
class Grid:
    """Tables or cards, side by side if there is room."""

    items: Sequence[Table] | Sequence[Card]


@dataclass(frozen=True)
class Folded:
    """Blocks that the page shows on demand.

    Attributes:
      title: what they are, in a line.
      blocks: the blocks.
    """

    title: str
    blocks: Sequence[Block]


PageBlock = RichText | Table | Bullets | Command | Plot | Grid
Block = PageBlock | Folded


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it; strings and sequences among the blocks are paragraphs.

    Attributes:
      key: a name that is unique in the report.
      title: the heading.
      blocks: the blocks; a section without any is left out.
      folded: whether the page shows them on demand.
    """

    key: str
    title: str
    blocks: Sequence[Block] = ()
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """A whole report.

    Attributes:
      title: what was measured.
      subtitle: by which score, of how many examples.
      headline: what came out, in a sentence or two.
      sections: its sections, none without blocks.
    """

    title: str
    subtitle: RichText
    headline: RichText
    sections: Sequence[Section]


def inlines(text: RichText) -> Sequence[Inline]:
    """Returns the parts of a text."""
    return (text,) if isinstance(text, str | Name | Strong | Code | Typo | Wrong) else text


def listed(parts: Sequence[Inline], last: str = "and") -> list[Inline]:
    """Returns the parts joined as in "a, b and c"."""
    found: list[Inline] = []
    for i, part in enumerate(parts):
        if i:
            found.append(f" {last} " if i == len(parts) - 1 else ", ")
        found.append(part)
    return found
