"""Tests of the documentation: links lead somewhere, figures are those of the tables, and tutorials run as written."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from small_run import on_devices

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "reference" / "keys.md", DOCS / "reference" / "commands.md"}  # written by docs/conf.py
PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")} - GENERATED)


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and MyST name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> list[str]:
    """Returns the links of a page to files or headings that do not exist."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target not in GENERATED and (not target.exists() or (anchor and anchor not in anchors(target))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found():
    text = (
        "[a](howto/python.md) [b](howto/gone.md) [c](benchmarks.md#measured) [d](benchmarks.md#gone) [e](https://x.org)"
    )
    assert broken(DOCS / "index.md", text) == ["howto/gone.md", "benchmarks.md#gone"]


def test_every_page_is_in_the_table_of_contents():
    listed = re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in {*DOCS.rglob("*.md")} | GENERATED}
    assert set(listed) == pages - {"index"}


def test_figures_show_the_tables(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = runpy.run_path(str(DOCS / "figures" / "make.py"))
    rows = drawn["rows_of"]("parts of speech, accuracy | words changed | HLM")
    assert rows[0][0] == "clean (these 500 sentences)"
    assert [drawn["number"](cell) for cell in rows[0][2:]] == [93.8, 96.2]
    assert drawn["number"]("**96.2** (reads no case)") == 96.2
    corrected = drawn["rows_of"]("parts of speech, accuracy of 120 sentences")
    assert {len(row) for row in corrected} == {10}, "two taggers, alone and behind three defences"
    assert [drawn["number"](cell) for cell in corrected[1][2:4]] == [58.6, 88.7]
    with pytest.raises(ValueError, match="begins with 'gone'"):
        drawn["rows_of"]("gone")


def code_of(page: str) -> str:
    """Returns the Python of a page, block after block."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.slow
def test_tutorials_run_as_written(trained, tmp_path, monkeypatch, capsys):
    trained.copy(tmp_path / "runs" / "hlm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tutorial"])
    with on_devices(1):
        exec(compile(code_of("tutorials/first-model.md"), "first-model.md", "exec"), {})
        near, far = (float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines())
        assert max(abs(near), abs(far)) <= 1
        fewer = (
            code_of("tutorials/noisy-classifier.md").replace("epochs=8", "epochs=1").replace("epochs=24", "epochs=1")
        )
        exec(compile(fewer, "noisy-classifier.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert "rows to learn from" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["clean", "keyboard:0.1", "swap:0.1"] * 2
