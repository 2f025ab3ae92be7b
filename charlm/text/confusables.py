"""Reads which letters of other scripts look like ASCII letters, from Unicode's list of confusable characters (UTS 39).

Open it when a letter should count as a lookalike and does not. The table is in `confusables.json`; how it was chosen
from the published file stands in tests/text/noise/public_tables.py, which can write it again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType


@functools.cache
def lookalikes() -> Mapping[str, str]:
    """Returns for each letter and digit its lookalikes: of ASCII all letters listed, of a listed one the ASCII."""
    file = json.loads(resources.files("charlm.text").joinpath("confusables.json").read_text(encoding="utf-8"))
    return MappingProxyType(file["lookalikes"] | prototypes_of(file["lookalikes"]))


@functools.cache
def prototypes() -> Mapping[str, str]:
    """Returns the ASCII letter or digit that each listed letter looks like, in the same case if both have one."""
    return MappingProxyType({char: one for char, one in lookalikes().items() if not char.isascii()})


def prototypes_of(table: Mapping[str, str]) -> dict[str, str]:
    """Turns a table round: letters rather than digits, and capitals for letters that have a small form."""
    found: dict[str, str] = {}
    for one in sorted(table, key=lambda char: (char.isdigit(), not char.islower())):
        for char in table[one]:
            if char not in found or (one.isupper() and char.isupper()):
                found[char] = one
    return found
