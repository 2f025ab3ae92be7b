"""Writes a report as one self-contained HTML page, whose content security policy forbids it to load or run anything.

Open it to change the look of the page; the content comes from `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from charlm.core.pages import escaped, page
from charlm.robustness.render.bars import bars
from charlm.robustness.render.curves import curves
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
    Name,
    Plot,
    Report,
    RichText,
    Section,
    Shaded,
    Strong,
    Table,
    Typo,
    Wrong,
    inlines,
)
from charlm.robustness.render.svg import style
from charlm.robustness.render.view import View

PLOTS = {"curves": curves, "bars": bars}
_LONG = 40  # a table with more rows gets a vertical scroll box
_BODY = """<header>
<h1>{title}</h1>
<p class="subtitle">{subtitle}</p>
<p class="lead">{headline}</p>
<nav aria-label="Sections">
<ul>
{contents}
</ul>
</nav>
</header>
<main>
{sections}
</main>"""


def html(report: Report, view: View | None = None) -> str:
    """Returns the whole page.

    Args:
      report: what it says.
      view: the measurements that plots are drawn of; None: there are no plots.
    """
    css = style() + resources.files("charlm.robustness.render").joinpath("page.css").read_text(encoding="utf-8")
    contents = [f'<li><a href="#{s.key}">{escaped(s.title)}</a></li>' for s in report.sections]
    body = _BODY.format(
        title=escaped(report.title),
        subtitle=_inline(report.subtitle),
        headline=_inline(report.headline),
        contents="\n".join(contents),
        sections="\n".join(_section(section, view) for section in report.sections),
    )
    return page(report.title, css, body)


def _section(section: Section, view: View | None) -> str:
    blocks = "\n".join(_block(block, view) for block in section.blocks)
    heading = f'<h2 id="{section.key}-title">{escaped(section.title)}</h2>'
    start = f'<section id="{section.key}" aria-labelledby="{section.key}-title">'
    if section.folded:  # the section is inside, so that a link to it unfolds it
        return f'<details class="folded">\n<summary>{heading}</summary>\n{start}\n{blocks}\n</section>\n</details>'
    return f"{start}\n{heading}\n{blocks}\n</section>"


def _block(block: Block, view: View | None) -> str:
    match block:
        case Table():
            return _table(block)
        case Bullets():
            return "<ul>\n" + "\n".join(f"<li>{_inline(item)}</li>" for item in block.items) + "\n</ul>"
        case Command():
            text = escaped(block.text, keep_lines=True)
            return f'<pre tabindex="0" role="region" aria-label="Command"><code>{text}</code></pre>'
        case Plot():
            assert view is not None, f"the plot {block.name} needs the measurements"
            return PLOTS[block.name](view)
        case Grid():
            items = [_card(item) if isinstance(item, Card) else _table(item) for item in block.items]
            name = "cards" if isinstance(block.items[0], Card) else "tables"
            return f'<div class="{name}">\n' + "\n".join(items) + "\n</div>"
        case Folded():
            blocks = "\n".join(_block(inner, view) for inner in block.blocks)
            return f"<details>\n<summary>{escaped(block.title)}</summary>\n{blocks}\n</details>"
    return f"<p>{_inline(block)}</p>"


def _card(card: Card) -> str:
    lines = [f"<dt>{escaped(name)}</dt>\n<dd>{_inline(text)}</dd>" for name, text in card.lines]
    listed = "<dl>\n" + "\n".join(lines) + "\n</dl>"
    return f'<article class="card">\n<h3>{_inline(card.title)}</h3>\n{listed}\n{_table(card.table)}\n</article>'


def _table(table: Table) -> str:
    """Returns a table in a box that scrolls if the table is wider than the page, or long."""
    head = "".join(f'<th scope="col"{_side(i, table)}>{_inline(cell)}</th>' for i, cell in enumerate(table.header))
    body = "\n".join(_row(row, table) for row in table.rows)
    box, more = "scroll", ""
    if any(isinstance(cell, Shaded) for row in table.rows for cell in row):
        box = "scroll map"
    if len(table.rows) > _LONG:
        box, more = "scroll long", f' <small class="rows">{len(table.rows)} rows: scroll down.</small>'
    return (
        f'<div class="{box}" tabindex="0" role="region" aria-labelledby="{table.key}-caption">\n'
        f'<table id="{table.key}">\n'
        f'<caption id="{table.key}-caption"><span>{_inline(table.caption)}{more}</span></caption>\n'
        f"<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _row(row: Sequence[Cell], table: Table) -> str:
    cells = []
    for i, cell in enumerate(row):
        if isinstance(cell, Shaded):
            cells.append(f'<td class="n {cell.hue} s{cell.step}">{_inline(cell.text)}</td>')
            continue
        tag = ("th", ' scope="row"') if i < table.row_headers else ("td", "")
        cells.append(f"<{tag[0]}{tag[1]}{_side(i, table)}>{_inline(cell)}</{tag[0]}>")
    return f"<tr>{''.join(cells)}</tr>"


def _side(column: int, table: Table) -> str:
    return "" if column < table.texts else ' class="n"'


def _inline(text: RichText) -> str:
    return "".join(_part(part) for part in inlines(text))


def _part(part: Inline) -> str:
    match part:
        case Name():
            return f"<bdi>{escaped(part.text)}</bdi>"
        case Strong():
            return f"<strong>{escaped(part.text)}</strong>"
        case Typo():
            return f'<mark class="typo">{escaped(part.text)}</mark>'
        case Wrong():
            return f'<span class="wrong">✗ {escaped(part.text)}</span>'
        case Code():
            return f"<code>{escaped(part.text)}</code>"
    return escaped(part)
