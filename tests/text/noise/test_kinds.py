"""Tests that the documentation lists the kinds of noise as the table has them."""

from __future__ import annotations

from pathlib import Path

from charlm.text.noise import KINDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "robustness.md"


def test_the_readme_lists_every_kind_as_the_table_has_it():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "; default " in line]
    assert rows == [
        f"| `{name}` | {kind.share_of}{f' of {kind.min_length} characters or more' * (kind.min_length > 1)} | "
        f"{kind.line}; default {kind.rate:g} |"
        for name, kind in ((name, KINDS[name]) for name in KINDS.own)
    ]
