"""What Linux tells of this machine's processor. Open it when a program depends on instructions that not all have."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def _first_lines() -> dict[str, str]:
    """Returns what is told of the first core, by name; {} where nothing is told."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def model_name() -> str:
    """Returns the name of the processor; "" if it is not known."""
    return _first_lines().get("model name", "")


def instruction_sets() -> frozenset[str]:
    """Returns the names of the processor's instruction sets and other abilities; empty if they are not known."""
    lines = _first_lines()
    return frozenset((lines.get("flags") or lines.get("Features", "")).split())
