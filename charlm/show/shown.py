"""What `charlm.show` returns: the attention of a model that has read a text, as a page, a figure, or numbers.

Open it to give users another form of it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from charlm.core import extras
from charlm.core.durable import replacing, write_text
from charlm.families.views import AttentionView, Views
from charlm.show.figure import draw
from charlm.show.page import html_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES = ("html", "htm")  # endings of files that hold a page


@dataclasses.dataclass(frozen=True, eq=False)  # arrays have no single equality
class Shown:
    """The attention of a model that has read a text. Notebooks show it as a page.

    Attributes:
      model: what to call the model, such as "HLM from runs/hlm".
      seen: the views, with the weights of every layer and head.
    """

    model: str
    seen: Views

    @property
    def views(self) -> tuple[AttentionView, ...]:
        """The views; `view.maps[0].weights_LHQN` are the weights of a map, `view.maps[0].columns` what is read."""
        return self.seen.views

    @functools.cached_property
    def html(self) -> str:
        """One page that needs nothing else: no files, no fonts, no network."""
        return html_of(self.model, self.seen)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a page (.html), or the figure of all layers' and heads' mean (.svg, .png, .pdf); returns its path.

        Raises:
          ValueError: the ending of the path is none of a page or of matplotlib, or matplotlib is missing.
          OSError: the file cannot be written.
        """
        path = Path(path)
        check_ending(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if _ending(path) in PAGES:
            write_text(path, self.html)
        else:
            drawn = self.figure()
            with replacing(path) as temporary:
                undated = {"Date": None} if _ending(path) == "svg" else None  # equal figures are equal files
                drawn.savefig(temporary, format=_ending(path), bbox_inches="tight", metadata=undated)
        return path

    def figure(self, layer: int | None = None, head: int | None = None) -> Figure:
        """Draws all views with matplotlib.

        Args:
          layer, head: counted from 0; None: the mean over all of them.

        Raises:
          ValueError: matplotlib is missing, or a view has no such layer or head.
        """
        return draw(self.model, self.seen, layer, head)

    def _repr_html_(self) -> str:
        """The page, for notebooks, in a frame of its own, where its script can reach nothing else."""
        rows = sum(len(one.columns) for view in self.views for one in view.maps[-1:])
        height = min(60, 24 + 2 * rows)
        style = f"width: 100%; height: {height}em; border: 0"
        return f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        parts = ", ".join(view.title.lower() for view in self.views)
        return f"Shown({self.model}, {self.seen.read} {self.seen.unit}: {parts})"


def _ending(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def check_ending(path: Path) -> None:
    """Raises ValueError if no page or figure can be written to a path, for its ending or for want of matplotlib."""
    ending = _ending(path)
    if ending in PAGES:
        return
    canvas = extras.load(f"a figure in {path.name or path}", "matplotlib.backend_bases").FigureCanvasBase
    kinds = sorted({*canvas.get_supported_filetypes()} - {"pgf"})
    if ending not in kinds:
        raise ValueError(f"{path}: expected a page (.html), or a figure: .{', .'.join(kinds)}")
