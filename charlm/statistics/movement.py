"""Measures how far training moved the parameters of a model, by kind and layer (Figure 2 of XRayEmb).

`python -m charlm.statistics --model=AFTER --before=BEFORE` prints it. Open it to change which parameters are taken
together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from flax import traverse_util

from charlm.core.types import JsonObject, Params
from charlm.families.pretrained import from_pretrained

_LAYER = re.compile(r"(?:^|/)layer_(\d+)(?=/)")


class Moved(NamedTuple):
    """How far the arrays of one kind moved in one layer.

    Attributes:
      kind: the name of the arrays' parameters, without the number of the layer.
      layer: the number of the layer; -1: the parameters are in none.
      distance: Euclidean distance between the values before and after.
      numbers: how many values there are.
    """

    kind: str
    layer: int
    distance: float
    numbers: int

    def to_dict(self) -> JsonObject:
        """Returns the fields; `layer` is None for parameters in none."""
        return self._asdict() | {"layer": None if self.layer < 0 else self.layer}


def movements(before: Params, after: Params) -> list[Moved]:
    """Returns the distances of all parameters that both models have, by kind, then by layer.

    Raises:
      ValueError: they have no parameter in common, or one has another shape.
    """
    old, new = (dict(traverse_util.flatten_dict(params, sep="/")) for params in (before, after))
    common = [name for name in new if name in old]
    if not common:
        raise ValueError(f"no parameter is in both: {min(old, default='none')} and others, {min(new, default='none')}")
    found: dict[tuple[str, int], tuple[float, int]] = {}
    for name in common:
        a, b = (np.asarray(params[name], np.float64) for params in (old, new))
        if a.shape != b.shape:
            raise ValueError(f"{name} is {[*a.shape]} before, {[*b.shape]} after: they are different models")
        key = _LAYER.sub("", name).lstrip("/"), int(match[1]) if (match := _LAYER.search(name)) else -1
        squares, numbers = found.get(key, (0.0, 0))
        found[key] = squares + float(np.square(b - a).sum()), numbers + a.size
    return [Moved(*key, math.sqrt(squares), numbers) for key, (squares, numbers) in sorted(found.items())]


def moved_between(before: str, after: str) -> list[Moved]:
    """Returns `movements` of two models, each named as `charlm.from_pretrained` takes it; ValueError as there."""
    return movements(from_pretrained(before).params, from_pretrained(after).params)


def table(found: list[Moved]) -> str:
    """Returns a Markdown table with a row for each kind and a column for each layer; "-" for parameters in none."""
    layers = sorted({one.layer for one in found})
    cells: Mapping[tuple[str, int], float] = {(one.kind, one.layer): one.distance for one in found}
    names = ["-" if layer < 0 else str(layer) for layer in layers]
    rows = ["| parameters | " + " | ".join(names) + " |", "|---" + "|---:" * len(layers) + "|"]
    for kind in dict.fromkeys(one.kind for one in found):
        values = (f"{cells[kind, layer]:.3g}" if (kind, layer) in cells else "" for layer in layers)
        rows.append(f"| {kind} | " + " | ".join(values) + " |")
    return "\n".join(rows)
