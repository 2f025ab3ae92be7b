"""The table of fusions, the layers that combine CharBERT's two channels, by the names used in `model.fusion`.

Open it to add a fusion to charlm; other packages use `charlm.register.fusion`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from charlm.core.entries import check_fields, is_line, problem_of, takes
from charlm.core.registry import Registry, load


@dataclasses.dataclass(frozen=True)
class FusionEntry:
    """The description of a fusion, available before its code is imported.

    Attributes:
      line: what it does, shown to users.
      layer: the subclass of `charlm.nn.fusions.Fusion`, or its place, "module:Class"; "": the channels are never
        combined.
      shared: whether all layers of a model share one fusion; False: each layer has its own.
      one_window: whether it has only one convolution, so that `model.windows` must name one size.
    """

    line: str
    layer: str | type
    shared: bool = False
    one_window: bool = False


_OWN = {
    "paper": FusionEntry(
        "convolutions, tanh, a GELU layer for each channel (CharBERT, section 3.4); see model.shared_fusion",
        "charlm.nn.fusions:PaperInteraction",
    ),
    "reference": FusionEntry(
        "one for all layers: a convolution, added to both channels (released code of CharBERT)",
        "charlm.nn.fusions:ReleasedInteraction",
        shared=True,
        one_window=True,
    ),
    "none": FusionEntry("the channels never meet (CharBERT, Table 4, w/o HI)", ""),
}


def _checked(name: str, thing: Any) -> FusionEntry:  # whatever a package adds; `_check_layer` checks it
    """Returns the entry for an added fusion, given as a class or an entry; ValueError naming what it lacks."""
    said = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0].rstrip(".")
    entry = thing if isinstance(thing, FusionEntry) else FusionEntry(said, thing)
    check_fields(f"fusion {name!r}", entry, {"line": str, "shared": bool, "one_window": bool})
    if not entry.line:
        raise ValueError(f"fusion {name!r}: it lacks a line that says what it does")
    if not is_line(entry.line):
        raise ValueError(f"fusion {name!r}: line={entry.line!r}, expected one line of text")
    if not isinstance(entry.layer, str):
        _check_layer(name, entry.layer)
    elif name not in _OWN and (problem := problem_of(entry.layer)):
        raise ValueError(f"fusion {name!r}: layer={entry.layer!r}: {problem}")
    return entry


def _check_layer(name: str, layer: Any) -> None:  # anything, until it is checked here
    base = load("charlm.nn.fusions:Fusion")
    if not (isinstance(layer, type) and issubclass(layer, base)):
        raise ValueError(f"fusion {name!r}: expected a subclass of charlm.nn.fusions.Fusion, got {layer!r}")
    if layer.__call__ is base.__call__:
        raise ValueError(f"fusion {name!r}: {layer.__name__} lacks __call__(tokens_BLD, chars_BLD, mask_BL1)")
    if not takes(layer.__call__, 4):  # with self
        raise ValueError(
            f"fusion {name!r}: {layer.__name__}.__call__, expected to take tokens_BLD, chars_BLD and mask_BL1"
        )


def layer_of(name: str) -> Any:  # a class whose module imports JAX, which this one must not
    """Returns the class of a fusion, a subclass of `charlm.nn.fusions.Fusion`; None for "none".

    Raises:
      KeyError: there is no such fusion.
      ValueError: it cannot be loaded, or lacks a part.
    """
    if not (part := FUSIONS[name].layer):
        return None
    layer = FUSIONS.load(name, part)
    _check_layer(name, layer)
    return layer


FUSIONS: Registry[FusionEntry] = Registry("fusion", "charlm.fusions", _OWN, _checked)
