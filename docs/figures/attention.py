"""Draws the figure of docs/howto/look-inside.md: python docs/figures/attention.py runs/hlm

The run is that of the README's first command, an HLM of `hlm_base:tiny`. Open it to show another sentence. Needs the
extra [eval], for matplotlib; it writes a SVG file beside this script, the same bytes each time.
"""

import sys
from pathlib import Path

import matplotlib

import charlm
from charlm.show.shown import Shown

TEXT = "I didn't see teh beautifull cat."


def main(run: str) -> None:
    """Writes the figure of a model."""
    seen = charlm.load(run).show(TEXT).seen
    with matplotlib.rc_context({"svg.hashsalt": "charlm"}):
        Shown("A small HLM", seen).save(Path(__file__).with_name("attention.svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
