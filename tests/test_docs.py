"""Tests the documentation: links lead somewhere, figures show what is described, the reference has what is public."""

from __future__ import annotations

import json
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

import charlm

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


def test_tables_of_leagues_are_those_of_their_results():
    written = runpy.run_path(str(DOCS / "league" / "tables.py"))
    for page, tables in written["PAGES"].items():
        text = (DOCS / "league" / f"{page}.md").read_text("utf-8")
        found = json.loads((DOCS / "league" / f"{page}.json").read_text("utf-8"))
        assert [mark[2] for mark in written["MARKED"].finditer(text)] == [*tables]
        assert written["filled"](page, text, found) == text, "python docs/league/tables.py writes them anew"


def test_a_difference_is_bold_if_it_is_beyond_doubt():
    shown = runpy.run_path(str(DOCS / "league" / "tables.py"))["shown"]
    assert shown({"value": 0.0123, "low": 0.001, "high": 0.02}, interval=True) == "**+1.2** (0.1 to 2.0)"
    assert shown({"value": -0.0123, "low": -0.02, "high": 0.0}, interval=True) == "-1.2 (-2.0 to 0.0)"
    assert shown({"value": -0.0001, "low": -0.02, "high": 0.01}, interval=False) == "0.0"
    assert shown({"value": -0.02, "low": -0.03, "high": -0.01}, interval=False) == "**-2.0**"
    assert shown(None, interval=True) == "–"


def test_answers_are_those_of_the_model_and_the_figure_is_drawn_from_them():
    drawn = runpy.run_path(str(DOCS / "figures" / "answers.py"))
    stored = json.loads((DOCS / "figures" / "answers.json").read_text(encoding="utf-8"))
    assert [stored["meant"], stored["written"]] == [drawn[text].split() for text in ("MEANT", "WRITTEN")]
    assert drawn["tags"]("hlm-small-en-pos", drawn["MEANT"], drawn["WRITTEN"]) == stored["hlm"]
    assert stored["hlm"] == [stored["right"]] * 2
    as_meant, as_written, corrected = stored["bert"]
    assert as_meant == corrected == stored["right"] != as_written
    picture = (DOCS / "figures" / "answers.svg").read_text(encoding="utf-8")
    wrong = {f"{tag} ✗" for tag, right in zip(as_written, stored["right"], strict=True) if tag != right}
    assert all(f"<!-- {word} -->" in picture for word in (*stored["written"][:-1], *stored["right"], *wrong))


def test_flows_are_drawn_as_described_and_said_in_words():
    drawn = runpy.run_path(str(DOCS / "figures" / "flows.py"))
    for name, flow in drawn["FLOWS"].items():
        figure = DOCS / "figures" / f"flow-{name}.svg"
        assert figure.read_text(encoding="utf-8") == drawn["svg"](flow), "python docs/figures/flows.py draws them anew"
        page = (DOCS / "systems" / f"{name}.md").read_text(encoding="utf-8")
        said = re.search(rf"!\[([^\]]*(?:\][^\]]*)*?)\]\(\.\./figures/{figure.name}\)", page)[1]
        assert len(said.split()) > 40


def test_the_parts_of_a_flow_have_room_and_exist():
    drawn = runpy.run_path(str(DOCS / "figures" / "flows.py"))
    for flow in drawn["FLOWS"].values():
        assert {end for arrow in flow.arrows for end in arrow.split()} <= set(flow.boxes)
        lines = [text for name, box in flow.boxes.items() for text in box.text if name != "cycles"]
        assert max(map(len, lines)) <= 22, max(lines, key=len)
        places = [(box.column, box.row) for box in flow.boxes.values()]
        assert len(places) == len(set(places))


def test_the_reference_has_every_public_name():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. auto(\w+):: ([\w.]+)$", page, re.MULTILINE)
    members = {f"{name}.{one}" for kind, name in shown if kind == "module" for one in vars(import_module(name))}
    known = {name.rpartition(".")[2] for name in members | {name for _, name in shown}}
    for name in charlm.__all__:
        assert name == "__version__" or name in known
        assert f"`charlm.{name}`" in page


def test_every_name_of_the_reference_exists():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    for kind, name in re.findall(r"^\.\. auto(\w+):: ([\w.]+)$", page, re.MULTILINE):
        if kind == "module":
            import_module(name)
        else:
            module, _, thing = name.rpartition(".")
            assert hasattr(import_module(module), thing), name
