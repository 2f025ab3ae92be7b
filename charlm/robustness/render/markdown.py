"""Writes a report as Markdown that GitHub renders well; only the HTML page has plots.

Open it when a name or path is shown wrongly there; the content comes from `report`.
"""

from __future__ import annotations

import re

from charlm.core.pages import harmless
from charlm.robustness.render.parts import (
    Block,
    Bullets,
    Card,
    Cell,
    Code,
    Command,
    Folded,
    Grid,
    Inline,
    Plot,
    Report,
    RichText,
    Shaded,
    Strong,
    Table,
    Typo,
    Wrong,
    inlines,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
_LINE_START = re.compile(r"^(\s*)([-+=#]|\d+(?=[.)]))")
_LINKS = re.compile(r"(?i)(?<=http)(s?):|(?<=ftp)():|(?<=www)()\.|(?<=mailto)():|(?<=xmpp)():")


def markdown(report: Report) -> str:
    """Returns the whole report."""
    lines = [f"# {_escaped(report.title)}", _line(report.subtitle), _line(report.headline)]
    for section in report.sections:
        lines += [f"## {_escaped(section.title)}", *(_block(block) for block in section.blocks)]
    return "\n\n".join(line for line in lines if line) + "\n"


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Bullets():
            return "\n".join(f"- {_line(item)}" for item in block.items)
        case Command():
            text = harmless(block.text, keep_lines=True)
            fence = "`" * max(3, 1 + _longest_run(text))
            return f"{fence}bash\n{text}\n{fence}"
        case Plot():
            return f"The {block.name} are in `report.html`."
        case Grid():
            return "\n\n".join(_card(item) if isinstance(item, Card) else _table(item) for item in block.items)
        case Folded():
            return "\n\n".join([f"### {_escaped(block.title)}", *(_block(inner) for inner in block.blocks)])
    return _line(block)


def _card(card: Card) -> str:
    lines = [f"- {_escaped(name)}: {_inline(text)}" for name, text in card.lines]
    return "\n\n".join([f"### {_inline(card.title)}", "\n".join(lines), _table(card.table)])


def _table(table: Table) -> str:
    """Returns a caption and a table, with numbers aligned right."""
    sides = [":--" if i < table.texts else "--:" for i in range(len(table.header))]
    rows = [[_cell(cell) for cell in row] for row in (table.header, *table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in [rows[0], sides, *rows[1:]]]
    return f"**Table.** {_inline(table.caption)}\n\n" + "\n".join(lines)


def _cell(cell: Cell) -> str:
    return _inline(cell.text if isinstance(cell, Shaded) else cell, in_table=True) or " "


def _line(text: RichText) -> str:
    """Returns a paragraph, escaped so that its beginning does not make it a heading, a list or a rule."""
    return _LINE_START.sub(_escape_start, _inline(text))


def _escape_start(found: re.Match[str]) -> str:
    """Escapes the beginning of a line; a digit, as in the list `1.`, becomes an HTML entity, as \\ cannot escape it."""
    start = found.group(2)
    return f"&#{ord(start[0])};{start[1:]}" if start[0].isdigit() else f"\\{start}"


def _inline(text: RichText, in_table: bool = False) -> str:
    return "".join(_part(part, in_table) for part in inlines(text)).strip()


def _part(part: Inline, in_table: bool) -> str:
    if isinstance(part, Code):
        return _code(harmless(part.text), in_table)
    if isinstance(part, Wrong):
        return _escaped(f"✗ {part.text}")
    if isinstance(part, Strong | Typo):
        return f"**{_escaped(part.text).strip()}**" if part.text.strip() else ""
    return _escaped(part if isinstance(part, str) else part.text)


def _code(text: str, in_table: bool) -> str:
    """Returns inline code, fenced by more backticks than the longest run of backticks in the text."""
    fence = "`" * (1 + _longest_run(text))
    padding = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    code = f"{fence}{padding}{text or ' '}{padding}{fence}"
    return code.replace("|", "\\|") if in_table else code


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _escaped(text: str) -> str:
    """Returns text escaped so that it makes no HTML, emphasis, link or new table cell."""
    text = _SPECIAL.sub(r"\\\1", harmless(text).replace("&", "&amp;"))
    text = text.replace("\\<", "&lt;").replace("\\>", "&gt;").replace("@", "&#64;")
    return _LINKS.sub(lambda found: found.group(0)[:-1] + ("&#58;" if found.group(0)[-1] == ":" else "&#46;"), text)
