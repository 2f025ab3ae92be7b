"""The noises of a report, each at one rate, from what a user asks for.

Open it to change what "all" means, or which kinds are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from charlm.text.noise import KINDS, Noise

ALL, CLEAN = "all", "clean"


def kinds_of_noise() -> str:
    """Returns the table of the kinds of noise for the end of a help text, with their usual rates."""
    lines = (f"  {name:<16} {kind.line} (usual rate {kind.rate:g})" for name, kind in KINDS.usable())
    return "\n".join(["kinds of noise:", *lines])


class Level(NamedTuple):
    """A noise as a report names it, and what draws it; None: clean text."""

    name: str
    noise: Noise | None


def planned(specs: Iterable[str], misspellings: str) -> tuple[list[Level], list[str]]:
    """Returns clean text and every noise, and notes on kinds that are left out.

    Args:
      specs: noises as `charlm.text.noise.Noise.parse` reads them; "all": every kind at its usual rate.
      misspellings: the file of the list for the kind "misspelling"; "": none.

    Raises:
      ValueError: a noise does not exist, or needs a list of misspellings that is not given.
    """
    notes, found = [], {CLEAN: Level(CLEAN, None)}
    for spec in specs:
        if spec != ALL:
            noise = Noise.parse(spec)
            if KINDS[noise.kind].listed and not misspellings:
                raise ValueError(f"noise {spec!r} needs a list of misspellings: --misspellings FILE")
            found[str(noise)] = Level(str(noise), noise)
            continue
        for name, kind in KINDS.usable():
            if kind.listed and not misspellings:
                notes.append(f"{name} is not measured: no list of misspellings was given (--misspellings)")
                continue
            noise = Noise.parse(name)
            found[str(noise)] = Level(str(noise), noise)
    return list(found.values()), notes
