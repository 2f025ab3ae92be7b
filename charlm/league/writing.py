"""Writes the report of a league: `report.json` (all figures), `report.md` and `report.html`.

The HTML page is one file that loads nothing and runs no scripts. Names and paths are untrusted text, so both writers
escape them. Open it to change how the report looks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from charlm.core.durable import write_text
from charlm.core.pages import escaped, harmless, page
from charlm.core.types import JsonObject
from charlm.league.charts import drawn
from charlm.league.report import sections_of
from charlm.league.view import Charts, Folded, Section, Table
from charlm.robustness.render.svg import style

FILES = ("report.json", "report.md", "report.html")
_BODY = """<header>
<h1>{title}</h1>
<nav aria-label="Sections"><ul>
{contents}
</ul></nav>
</header>
<main>
{sections}
</main>"""


def write_report(results: JsonObject, folder: Path) -> list[Path]:
    """Writes the report into a folder; returns its files, report.json first.

    Args:
      results: as `charlm.league.gathering.gathered` returns them.

    Raises:
      ValueError: the folder cannot be written.
    """
    sections = sections_of(results)
    texts = (
        json.dumps(results, indent=1, sort_keys=True, allow_nan=False) + "\n",
        markdown(results["title"], sections),
        html(results["title"], sections),
    )
    try:
        for name, text in zip(FILES, texts, strict=True):
            write_text(folder / name, text)
    except OSError as error:
        raise ValueError(f"{folder} cannot be written: {error.strerror}") from error
    return [folder / name for name in FILES]


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Returns the report as Markdown; charts are left out, since a table beside them has their figures."""
    parts = [f"# {_plain(title)}"]
    for section in sections:
        parts.append(f"## {_plain(section.title)}")
        for block in section.blocks:
            if isinstance(block, Table):
                parts += [_plain(block.caption), _markdown_table(block)]
            elif isinstance(block, Folded):
                lines = "\n".join(f"- {_plain(line)}" for line in block.lines)
                parts.append(f"<details>\n<summary>{escaped(block.title)}</summary>\n\n{lines}\n\n</details>")
            elif isinstance(block, str):
                parts.append(_plain(block))
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    rule = ["---" if column < table.texts else "---:" for column in range(len(table.header))]
    rows = [[_plain(cell) for cell in row] for row in (table.header, *table.rows)]
    rows.insert(1, rule)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _plain(text: str) -> str:
    """Returns a text whose characters mean nothing to Markdown."""
    return re.sub(r"([\\`*_<>|#])", r"\\\1", harmless(text))


def html(title: str, sections: Sequence[Section]) -> str:
    """Returns the report as a page."""
    css = style() + resources.files("charlm.league").joinpath("page.css").read_text(encoding="utf-8")
    keys = [f"s{number}" for number, _ in enumerate(sections)]
    named = list(zip(keys, sections, strict=True))
    body = _BODY.format(
        title=escaped(title),
        contents="\n".join(f'<li><a href="#{key}">{escaped(section.title)}</a></li>' for key, section in named),
        sections="\n".join(_html_section(key, section) for key, section in named),
    )
    return page(title, css, body)


def _html_section(key: str, section: Section) -> str:
    blocks = []
    for block in section.blocks:
        if isinstance(block, Table):
            blocks.append(_html_table(block))
        elif isinstance(block, Folded):
            lines = "\n".join(f"<li>{escaped(line)}</li>" for line in block.lines)
            blocks.append(f"<details><summary>{escaped(block.title)}</summary>\n<ol>\n{lines}\n</ol></details>")
        elif isinstance(block, Charts):
            blocks.append(drawn(block.charts))
        else:
            blocks.append(f"<p>{escaped(block)}</p>")
    return f'<section id="{key}">\n<h2>{escaped(section.title)}</h2>\n' + "\n".join(blocks) + "\n</section>"


def _html_table(table: Table) -> str:
    """Returns a table in a box that scrolls sideways; the first cell of a row is its header."""
    kind = lambda column: "" if column < table.texts else "n"
    head = "".join(
        f'<th scope="col" class="{kind(column)}">{escaped(cell)}</th>' for column, cell in enumerate(table.header)
    )
    rows = []
    for number, row in enumerate(table.rows):
        cells = [f'<th scope="row">{escaped(row[0])}</th>']
        for column, cell in enumerate(row[1:], start=1):
            shade = table.heat[number][column - 1] if table.heat else -1
            classes = " ".join(part for part in (kind(column), f"h{shade}" if shade >= 0 else "") if part)
            cells.append(f'<td class="{classes}">{escaped(cell)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="table"><table>\n'
        f"<caption>{escaped(table.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )
