"""Tests that every part of the four papers that code and documents cite exists, and that the check finds others."""

from __future__ import annotations

import pytest
from citations import PAPERS, citations, citations_in


def test_what_is_cited_exists():
    found = list(citations())
    assert {cited.paper for cited in found} == {*PAPERS, "other"}
    assert [cited for cited in found if not cited.exists] == []


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Values of XRayEmb, section 5.1.", "configs/tag.py", [("xrayemb", "section", "5.1", False)]),
        ("a pass (section 4.2)", "charlm/families/char2subword/x.py", [("char2subword", "section", "4.2", False)]),
        ("Eq. 3 to 6 (CharBERT)", "charlm/nn/x.py", [("charbert", "equation", n, True) for n in "36"]),
        ("HLM, appendix\nA.5", "x.py", [("hlm", "appendix", "A.5", False)]),
        ("as BERT, section 9.9", "charlm/families/hlm/x.py", [("other", "section", "9.9", True)]),
        ("## Pre-train CharBERT\n\nas in Table 7", "README.md", [("charbert", "table", "7", False)]),
        ("a table of 4 rows, section by section", "x.py", []),
    ],
)
def test_citations_are_found_with_their_paper(text, name, expected):
    assert [(c.paper, c.kind, c.number, c.exists) for c in citations_in(text, name)] == expected
