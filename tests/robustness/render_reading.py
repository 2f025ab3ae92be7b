"""Reads a written report back, for tests."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path
from typing import Any

from charlm.robustness.render import write_report

SECTIONS = (
    *("says", "map", "curves", "sentences", "comparisons", "groups", "adversarial", "segmentation", "sensitivity"),
    *("scores", "how", "notes", "reproduce"),
)


def number(cell: str) -> float:
    """Returns the number at the beginning of a cell, which may have the minus sign of typography."""
    return float(cell.replace("\u2212", "-").split()[0].rstrip("°"))


class Page(html.parser.HTMLParser):
    """A page taken apart again: tables as text, headings, the tags in use and whether they nest."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.sections: dict[str, str] = {}
        self.text = ""
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self._table = self._cell = self._section = None
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "section":
            self._section = found["id"]
            self.sections[self._section] = ""
        elif tag == "table":
            self._table = self.tables.setdefault(found["id"], [])
        elif tag == "tr":
            self._table.append([])
        elif tag in ("td", "th"):
            self._cell = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another tag"
        if tag == "section":
            self._section = None
        if tag in ("td", "th"):
            self._table[-1].append(self._cell)
            self._cell = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell is not None:
            self._cell += data
        elif self._section:
            self.sections[self._section] += data


def written(results: dict[str, Any], folder: Path) -> tuple[Page, str]:
    """Returns the page taken apart, and the Markdown."""
    paths = write_report(results, folder)
    assert [path.name for path in paths] == ["report.json", "report.md", "report.html"]
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.md"]
    return Page(paths[2].read_text(encoding="utf-8")), paths[1].read_text(encoding="utf-8")


def markdown_tables(text: str) -> list[list[list[str]]]:
    """Returns the cells of all tables; a bar that is escaped is none."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("| "):
            inside = False
            continue
        assert line.endswith(" |")
        if not inside:
            tables.append([])
        inside = True
        tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return tables
