"""Tests the tables of docs/papers.md: their keys exist, and the defaults that they name are those of the configs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from charlm.config import flatten, load_config_file

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "papers.md"


class Entry(NamedTuple):
    """A row of a table: the config file of its section, its key, and the default that it names."""

    config: str
    key: str
    default: str


def rows() -> Iterator[Entry]:
    """Yields the rows of the tables of pre-training, whose last column is a key."""
    config = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            found = re.search(r"`(configs/\w+\.py)`", line)
            config = found[1] if found else ""
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        key = re.fullmatch(r"`([\w.]+)`", cells[-1]) if config and cells else None
        if key:
            named = re.match(r"`([^`]+)`", cells[-2])
            yield Entry(config, key[1], named[1] if named else "")


def test_defaults_are_those_of_the_configs():
    found = list(rows())
    configs = {name: flatten(load_config_file(str(ROOT / name))) for name in {row.config for row in found}}
    assert len(configs) == 5
    assert len(found) > 80
    unlike = [
        (row, configs[row.config].get(row.key)) for row in found if str(configs[row.config].get(row.key)) != row.default
    ]
    assert unlike == []
