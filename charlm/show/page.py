"""Writes the attention of a model as one page of HTML that needs nothing else: no files, no fonts, no network.

Without its script the page shows the means over all layers and heads; the script, which stands in the page, changes to
single ones. Open it to change the page; its style is in `page.css`, its script in `page.js`.

The script gets the weights as bytes: b stands for (b / 255)^2, which is off by at most 0.4 %.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from importlib import resources

import numpy as np

from charlm.core.pages import escaped, page, shortened
from charlm.families.views import SPACE, AttentionMap, AttentionView, Views

NUMBERED = 16  # a heat map of at most so many columns shows its numbers
# From this weight on, the text of a cell has the colour of the page, to be read on the cell's: on dark pages, on light.
MID, HIGH = 0.33, 0.56  # also in page.js
CAVEAT = "Attention says where a model looks, not why it answers as it does."

_BODY = """<header>
<p class="model">Attention of {model}</p>
<h1><bdi>{text}</bdi></h1>
{left}<p class="key"><span class="ramp" aria-hidden="true"></span>The stronger, the more is read, from 0 to
100&nbsp;%; what one reader reads adds up to 100&nbsp;%. {caveat}</p>
</header>
<main>
{sections}
</main>"""


def html_of(model: str, seen: Views) -> str:
    """Returns the whole page.

    Args:
      model: what to call the model.
      seen: its views.
    """
    here = resources.files("charlm.show")
    css, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    left = ""
    if seen.left:
        left = (
            f'<p class="left">The first {seen.read:,} of {seen.read + seen.left:,} {seen.unit} were read and are '
            "shown; the rest was left out.</p>\n"
        )
    body = _BODY.format(
        model=escaped(model),
        text=escaped(" ".join(seen.text.split())),
        left=left,
        caveat=CAVEAT,
        sections="\n".join(_section(view, number) for number, view in enumerate(seen.views)),
    )
    return page(f"Attention: {shortened(seen.text, 60)}", css, body, script=script, inline_styles=True)


def _section(view: AttentionView, number: int) -> str:
    title = f'<h2 id="view{number}">{escaped(view.title)}</h2>\n<p>{escaped(view.about)}</p>'
    if not view.maps:
        return f'<section aria-labelledby="view{number}">\n{title}\n</section>'
    layers, heads = view.maps[0].weights_LHQN.shape[:2]
    parts = [title, _choices(number, layers, heads), *(_words if view.inside else _text)(view)]
    # Equal words of a text have equal weights: the script needs them once.
    data = json.dumps([{"readers": len(m.readers), "weights": _packed(m)} for m in _distinct(view)])
    parts.append(f'<script type="application/json">{data}</script>')
    body = "\n".join(parts)
    sizes = f'data-layers="{layers}" data-heads="{heads}"'
    return f'<section {sizes} aria-labelledby="view{number}">\n{body}\n</section>'


def _packed(one: AttentionMap) -> str:
    return base64.b64encode(np.rint(255 * np.sqrt(one.weights_LHQN)).astype(np.uint8).tobytes()).decode()


def _choices(number: int, layers: int, heads: int) -> str:
    """Returns the choices of layer and head, which the script makes visible, and what is shown without it."""
    said = f"mean of {_count(layers, 'layer')} and {_count(heads, 'head')}"
    choices = []
    for name, count in (("layer", layers), ("head", heads)):
        options = [f'<option value="{n}">{n + 1}</option>' for n in range(count)]
        options = ['<option value="-1" selected>mean of all</option>', *options]
        choices.append(f'<label>{name.capitalize()} <select name="{name}">{"".join(options)}</select></label>')
    return f'<p class="means">Shown: {said}.</p>\n<form class="choices" hidden>{"".join(choices)}</form>'


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _distinct(view: AttentionView) -> list[AttentionMap]:
    """Returns the maps without those of words that were there before."""
    return list({(one.title, one.columns): one for one in view.maps}.values())


def _words(view: AttentionView) -> list[str]:
    """Returns the words of a view of characters in the order of the text, and if they have several, their readers."""
    distinct = _distinct(view)
    place = {(one.title, one.columns): n for n, one in enumerate(distinct)}
    items = []
    for one in view.maps:
        number = place[one.title, one.columns]
        cells = [_cell(name, weight) for name, weight in zip(one.columns, one.chosen().mean(axis=0), strict=True)]
        items.append(f'<li class="strip" data-map="{number}">{"".join(cells)}</li>')
    parts = ['<ol class="words">', *items, "</ol>"]
    if any(len(one.readers) > 1 for one in distinct):
        tables = "\n".join(_table(one, n, f"The characters of {one.title}") for n, one in enumerate(distinct))
        note = "Above, the mean over all characters that read."
        body = f'<p>{note}</p>\n<div class="tables">\n{tables}\n</div>'
        parts.append(f"<details><summary>Character by character</summary>\n{body}\n</details>")
    return parts


def _text(view: AttentionView) -> list[str]:
    """Returns the text of a view of words, shaded by how much each is read, and the heat map."""
    (one,) = view.maps
    cells = [_cell(name, weight) for name, weight in zip(one.columns, one.chosen().mean(axis=0), strict=True)]
    return [
        '<p class="hint" hidden>Choose a word to see what it reads; again, or Escape, for the mean over all.</p>',
        f'<p class="strip text" data-map="0">{" ".join(cells)}</p>',
        _table(one, 0, "Rows read, columns are read"),
    ]


def _cell(name: str, weight: float) -> str:
    """Returns a character or word over its share."""
    kind = "cell" if len(name) == 1 else "cell name"
    return f'<span class="{kind}{_strength(weight)}" style="{_shade(weight)}"><bdi>{_label(name)}</bdi><small>{_percent(weight)}</small></span>'  # noqa: E501


def _table(one: AttentionMap, number: int, caption: str) -> str:
    """Returns a heat map, a table in a box that scrolls if it is wider than the page."""
    weights_QN = one.chosen()
    single = ' class="single"' if max(map(len, one.columns)) == 1 else ""  # such heads need not be turned
    head = "".join(f'<th scope="col"{single}><span><bdi>{_label(name)}</bdi></span></th>' for name in one.columns)
    rows = [_row(name, weights_N) for name, weights_N in zip(one.readers, weights_QN, strict=True)]
    dense = " dense" if len(one.columns) > NUMBERED else ""
    said = escaped(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{said}">\n'
        f'<table class="heat{dense}" data-map="{number}">\n<caption><bdi>{said}</bdi>, in %</caption>\n'
        f"<thead><tr><td></td>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>\n</div>"
    )


def _row(name: str, weights_N: Sequence[float] | np.ndarray) -> str:
    cells = [f'<td class="w{_strength(w)}" style="{_shade(w)}">{_percent(w)}</td>' for w in weights_N]
    return f'<tr><th scope="row"><bdi>{_label(name)}</bdi></th>{"".join(cells)}</tr>'


def _shade(weight: float) -> str:
    return f"--a:{np.sqrt(weight):.2f}"  # the root, so that small shares can be told apart


def _strength(weight: float) -> str:
    return " mid high" if weight >= HIGH else " mid" if weight >= MID else ""


def _percent(weight: float) -> str:
    return f"{100 * weight:.0f}"


def _label(name: str) -> str:
    return escaped(name) if name.strip() else SPACE
