"""What the plots of the page share: scales, and the colour and marker of each model.

The SVG is written by hand, not by a plotting library, for four reasons: the policy of the page allows no inline styles,
colours must follow light and dark mode, text must stay text, and equal numbers must give equal bytes whatever is
installed. Open it to change how models are told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from charlm.core.pages import escaped

_COLOURS = 7  # classes c0 to c6 in the style of the page
_SHAPES = (
    "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z",  # circle
    "M-3.3 -3.3h6.6v6.6h-6.6Z",  # square
    "M0 -4.4L4.2 3.2H-4.2Z",  # triangle
    "M0 -4.8L4 0L0 4.8L-4 0Z",  # diamond
    "M0 4.4L4.2 -3.2H-4.2Z",  # inverted triangle
    "M-1.5 -4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9Z",  # plus
    "M0 -4.8L1.4 -1.5L4.8 -1.5L2 0.8L3 4.4L0 2.3L-3 4.4L-2 0.8L-4.8 -1.5L-1.4 -1.5Z",  # star
)


class Scale(NamedTuple):
    """A linear map from values [low, high] to coordinates [start, end] of the picture."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Returns the coordinate of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def style() -> str:
    """Returns the style of plots; a page that shows them has it before its own."""
    return resources.files("charlm.robustness.render").joinpath("plots.css").read_text(encoding="utf-8")


def nice_ticks(low: float, high: float) -> list[float]:
    """Returns four to eight round numbers; the first is at most `low`, the last at least `high`."""
    width = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(width / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if width / (step * factor) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def digits_of(ticks: Sequence[float]) -> int:
    """Returns the decimals, six at most, with which evenly spaced ticks are told."""
    digits = max(0, min(6, math.ceil(-math.log10(ticks[1] - ticks[0]) - 1e-9)))
    return digits + any(abs(round(tick, digits) - tick) > 1e-9 for tick in ticks)  # one more for steps of 0.025


def colour(place: int) -> str:
    """Returns the class of the colour of a model, by its place among the models."""
    return f"c{place % _COLOURS}"


def dashes(place: int) -> str:
    """Returns the class of the dashes of its line."""
    return f"d{place % 4}"


def marker(place: int, x: float, y: float, hollow: bool, said: str = "") -> str:
    """Returns a marker in the shape of a model; it is hollow if the model has seen the noise in training.

    Args:
      said: the tooltip.
    """
    number = (place + place // len(_SHAPES)) % len(_SHAPES)  # with more models than colours, other pairs of the two
    title = f"<title>{escaped(said)}</title>" if said else ""
    kind = "marker hollow" if hollow else "marker"
    return f'<path class="{kind}" transform="translate({short(x)} {short(y)})" d="{_SHAPES[number]}">{title}</path>'


def key(colours: str, drawn: str) -> str:
    """Returns a small picture for a legend."""
    return f'<svg class="key" viewBox="0 0 34 16" aria-hidden="true"><g class="{colours}">{drawn}</g></svg>'


def short(value: float) -> str:
    """Returns a coordinate."""
    return f"{round(value, 2) + 0.0:g}"
