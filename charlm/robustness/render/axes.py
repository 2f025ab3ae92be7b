"""The frame that plots of curves share: their sizes, the grid with its labels, the names of both axes, and the legend.

Open it to change how all of them look.
"""

from __future__ import annotations

from collections.abc import Sequence

from charlm.core.pages import escaped
from charlm.robustness.render.svg import Scale, colour, dashes, digits_of, key, marker, short

WIDTH, HEIGHT = 340, 236
LEFT, RIGHT, TOP, BOTTOM = 46, 6, 12, 40
INSET = 10  # keeps markers off the axis and its labels


def across(low: float, high: float) -> Scale:
    """Returns the scale of the lower axis; `high` is more than `low`."""
    return Scale(low, high, LEFT + INSET, WIDTH - RIGHT - INSET)


def upward(ticks: Sequence[float]) -> Scale:
    """Returns the scale of the axis on the left."""
    return Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)


def grid(ticks: Sequence[float], y: Scale) -> list[str]:
    """Returns a line across the plot and a label for each tick of the axis on the left."""
    digits, parts = digits_of(ticks), []
    for tick in ticks:
        at = short(y.at(tick))
        parts.append(f'<path class="grid" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at}" dy="4" text-anchor="end">{tick:.{digits}f}</text>')
    return parts


def mark_below(at: float) -> str:
    """Returns a mark on the lower axis."""
    return f'<path class="tickmark" d="M{short(at)} {HEIGHT - BOTTOM}v4"/>'


def label_below(at: float, label: str) -> str:
    """Returns a label of the lower axis, plain text."""
    place = f'x="{short(at)}" y="{HEIGHT - BOTTOM + 16}"'
    return f'<text class="tick" {place} text-anchor="middle">{escaped(label)}</text>'


def names_of(x: Scale, y: Scale, below: str, left: str) -> list[str]:
    """Returns the names of both axes, given as plain text."""
    middle, height = short((x.start + x.end) / 2), short((y.start + y.end) / 2)
    turned = f'transform="translate(10 {height}) rotate(-90)"'
    return [
        f'<text class="axis" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escaped(below)}</text>',
        f'<text class="axis" {turned} text-anchor="middle">{escaped(left)}</text>',
    ]


def legend(names: Sequence[str], further: Sequence[str] = ()) -> str:
    """Returns the list of what curves are of, plain text, each with its line and marker, and further items, HTML."""
    items = []
    for place, name in enumerate(names):
        line = f'<path class="line {dashes(place)}" d="M2 8H32"/>'
        items.append(f"<li>{key(colour(place), line + marker(place, 17, 8, False))}<bdi>{escaped(name)}</bdi></li>")
    return '<ul class="legend">\n' + "\n".join([*items, *further]) + "\n</ul>"
