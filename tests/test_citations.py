"""Tests that every part of the four papers that code and documents cite exists, and that the check finds others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from citations import PAPERS, citations, citations_in

TEXTS = Path(os.environ.get("CHARLM_PAPERS", Path(__file__).resolve().parents[2] / "shared" / "papers"))
# How the papers' texts write their parts, where these are there: the headings of sections and appendices, the captions
# of tables and figures, the numbers beside equations, and the marks of footnotes.
MARKDOWN = {
    "section": r"(?m)#+ \**(\d(?:\.\d)?)\.? ",
    "appendix": r"(?m)^#+ ([A-D](?:\.\d)?) ",
    "table": r"(?m)^Table (\d+):",
    "figure": r"Figure (\d+):",
    "equation": r"\\tag\{(\d+)\}|(?m:^ ?\((\d+)\)$)",
    "footnote": r"<sup>(?:&lt;sup>)?(\d+)<",
}
WRITTEN = {
    "charbert": MARKDOWN,
    "char2subword": MARKDOWN,
    "xrayemb": {
        "section": r"(?m)^(\d(?:\.\d)?) [A-Z]",
        "table": r"(?m)^Table (\d+):",
        "figure": r"(?m)^Figure (\d+):",
        "equation": r"(?m)\((\d+)\)$",
        "footnote": r"(?<!\d)(\d{1,2})\1\1(?=[A-Z])",  # the text has them three times in a row
    },
    # A rendering in another language, without the tables: for them and the figures, a mention has to do.
    "hlm": {
        "section": r"(?m)^(\d(?:\.\d)?) [A-ZĐ]",
        "appendix": r"(?m)^(A(?:\.\d)?) [A-ZĐ]",
        "table": r"Bảng (\d+)",
        "figure": r"Hình (\d+)",
        "equation": r"(?m)  \((\d+)\)$",
        "algorithm": r"(?m)^Thuật toán (\d+)",
    },
}
UNNUMBERED = {("charbert", "section"): {"5.1", "5.2"}}  # the text has these headings without their numbers


def test_what_is_cited_exists():
    found = list(citations())
    assert {cited.paper for cited in found} == {*PAPERS, "other"}
    assert {cited.file.rpartition(".")[2] for cited in found} == {"py", "md", "ipynb"}
    assert [cited for cited in found if not cited.exists] == []


@pytest.mark.parametrize("name", PAPERS)
def test_the_parts_are_those_of_the_papers(name):
    path = TEXTS / f"{name}.txt"
    if not path.exists():
        pytest.skip("the papers' texts are not there")
    text, parts = path.read_text(encoding="utf-8"), dict(PAPERS[name].parts)
    assert set(parts) <= set(WRITTEN[name])
    for kind, pattern in WRITTEN[name].items():
        found = {next(filter(None, match.groups())) for match in re.finditer(pattern, text)}
        assert found | UNNUMBERED.get((name, kind), set()) == parts.get(kind, frozenset()), kind


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Values of XRayEmb, section 5.1.", "configs/tag.py", [("xrayemb", "section", "5.1", False)]),
        ("a pass (section 4.2)", "charlm/families/char2subword/x.py", [("char2subword", "section", "4.2", False)]),
        ("Eq. 3 to 6 (CharBERT)", "charlm/nn/x.py", [("charbert", "equation", n, True) for n in "3456"]),
        ("HLM, sections 3.4 to 3.6", "x.py", [("hlm", "section", f"3.{n}", n < 6) for n in (4, 5, 6)]),
        ("HLM, appendix\nA.5", "x.py", [("hlm", "appendix", "A.5", False)]),
        ("as BERT, section 9.9", "charlm/families/hlm/x.py", [("other", "section", "9.9", True)]),
        ("## Pre-train CharBERT\n\nas in Table 7", "README.md", [("charbert", "table", "7", False)]),
        ('"a",  # HLM, section 5\n    "xrayemb first"', "x.py", [("hlm", "section", "5", True)]),
        ("the score of Table 5", "configs/x.py", [("unknown", "table", "5", False)]),
        ("misspelled words (CharBERT, 3.7).", "x.py", [("charbert", "section", "3.7", False)]),
        ("## XRayEmb\n\n| its sum (2.2) | the 5 M of 4.4 |", "docs/papers.md",
         [("xrayemb", "section", "2.2", False), ("xrayemb", "section", "4.4", False)]),
        ("## HLM\n\n| 20 (3.5, A.5) | `(3,)` | 125 M (Table 10) |", "docs/papers.md",
         [("hlm", "section", "3.5", True), ("hlm", "appendix", "A.5", False), ("hlm", "table", "10", False)]),
        ('"in CharBERT\'s paper (section 4.7): it\\n",', "notebooks/x.ipynb", [("charbert", "section", "4.7", False)]),
        ("a table of 4 rows, section by section", "x.py", []),
        ("(3.5 GB, 2.1 s)", "docs/benchmarks.md", []),
    ],
)  # fmt: skip
def test_citations_are_found_with_their_paper(text, name, expected):
    assert [(c.paper, c.kind, c.number, c.exists) for c in citations_in(text, name)] == expected
