"""Reads the cells of labelled data as labels, numbers or texts, with an error message for cells that are not.

Open it when a label column is read differently from what a file means.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from charlm.core.nearest import ALIKE, did_you_mean
from charlm.data.examples import Skipped
from charlm.data.rows import Column

MULTI_LABEL = ("error", "first", "skip")

_SHOWN = 40  # characters of a wrong cell that a message shows


@dataclasses.dataclass(frozen=True)
class LabelRule:
    """How the cells of the label column are read; see `read_texts`."""

    column: Column
    labels: tuple[str, ...] | None
    are_numbers: bool
    multi_label: str
    separator: str
    skip: tuple[str, ...]

    def read(self, cell: object, place: str, skipped: Skipped) -> str | float | None:
        """Returns the label, or None when the row is skipped (and counted)."""
        parts = [plain(part, place, self.column) for part in self._parts(cell)]
        if not parts or any(part in (None, "") for part in parts):
            raise ValueError(f"{place}: column {self.column!r} has no label")
        if len(parts) > 1:
            if self.multi_label == "error":
                raise ValueError(
                    f"{place}: column {self.column!r} has {len(parts)} labels, {shown(cell)}; expected one "
                    '(multi_label="first" takes the first, "skip" leaves such rows out)'
                )
            if self.multi_label == "skip":
                skipped.skip("several labels", place)
                return None
            skipped.repair("several labels, the first taken", place)
        label = parts[0]
        assert label is not None
        if label in self.skip:
            skipped.skip(f"label {label!r}", place)
            return None
        return _number(label, place, self.column) if self.are_numbers else self._known(label, place)

    def _parts(self, cell: object) -> Sequence[object]:
        if isinstance(cell, list):
            return cell
        return cell.split(self.separator) if self.separator and isinstance(cell, str) else [cell]

    def _known(self, label: str, place: str) -> str:
        if self.labels is not None and label not in self.labels:
            some = ", ".join(self.labels[:20]) + (", ..." if len(self.labels) > 20 else "")
            near = did_you_mean(label, self.labels, ALIKE)
            raise ValueError(f"{place}: column {self.column!r} has label {shown(label)}; expected one of {some}{near}")
        return label


def plain(cell: object, place: str, column: Column) -> str | None:
    """Returns a single value as text without spaces around it, or None for null; raises ValueError for other values."""
    if cell is None or isinstance(cell, str):
        return cell if cell is None else cell.strip()
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int | float):
        return str(cell)
    raise ValueError(f"{place}: column {column!r} has {shown(cell)}; expected text or a number")


def shown(cell: object) -> str:
    """Returns a value as a message shows it, shortened."""
    text = repr(cell)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _number(cell: str, place: str, column: Column) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    raise ValueError(f"{place}: column {column!r} has {shown(cell)}; expected a number")


def text_cell(cell: object, place: str, column: Column) -> str:
    """Returns a text unchanged, "" for null; raises ValueError for any other value."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    raise ValueError(f"{place}: column {column!r} has {shown(cell)}; expected text")
