"""Lists every section, table, figure, equation, appendix and footnote of a paper that code and documents cite.

    python tests/citations.py              # all, with file, line and paper
    python tests/citations.py --missing    # those that the paper does not have

The papers themselves are not needed: `PAPERS` says what each of the four has. Whether the cited part says what the text
claims is for a reader to judge; this list says where to look.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KINDS = {  # the beginning of a word, in lower case -> what it cites
    "sec": "section",
    "§": "section",
    "tab": "table",
    "fig": "figure",
    "eq": "equation",
    "app": "appendix",
    "alg": "algorithm",
    "foot": "footnote",
}
_NUMBER = r"(?:[A-D]\.\d+|[A-D]|\d+(?:\.\d+)*)"
_CITED = re.compile(
    rf"(?<![\w-])(§|sections?|sec\.|tables?|figures?|fig\.|eq\.|equations?|appendix|algorithm|footnotes?)\s+({_NUMBER})"
    rf"(?![\w])((?:(?:,| and|,? or| to)\s+{_NUMBER}(?![\w]))*)",
    re.IGNORECASE,
)


class Paper(NamedTuple):
    """What a paper has.

    Attributes:
      named: regular expression of how texts name it.
      parts: for each kind of part, its numbers.
    """

    named: str
    parts: dict[str, frozenset[str]]


def _parts(sections: str, **most: int | str) -> dict[str, frozenset[str]]:
    """Returns the numbers of sections, in one string, and of other kinds, by the last number or in one string."""
    listed = lambda x: x.split() if isinstance(x, str) else [str(n) for n in range(1, x + 1)]
    return {"section": frozenset(sections.split())} | {kind: frozenset(listed(x)) for kind, x in most.items()}


PAPERS = {
    "hlm": Paper(
        r"HLM|Sun et al",
        _parts(
            "1 2 2.1 2.2 2.3 3 3.1 3.2 3.3 3.4 3.5 4 4.1 4.2 4.3 4.4 4.5 5",
            table=9, figure=3, equation=2, appendix="A A.1 A.2 A.3 A.4", algorithm=1,
        ),
    ),
    "charbert": Paper(
        r"CharBERT|AdvBERT|Ma et al",
        _parts(
            "1 2 3 3.1 3.2 3.3 3.4 3.5 3.6 4 4.1 4.2 4.3 4.4 4.5 4.6 5 5.1 5.2 5.3 6", table=4, figure=6, equation=8
        ),
    ),
    "char2subword": Paper(
        r"Char2Subword|Aguilar",
        _parts("1 2 3 3.1 3.2 3.3 4 5 6", table=6, figure=5, appendix="A B", footnote=13),
    ),
    "xrayemb": Paper(
        r"XRayEmb|Pinter et al|NYTWIT",
        _parts("1 2 2.1 3 3.1 4 4.1 4.2 4.3 5 6", table=6, figure=2, equation=1, footnote=12),
    ),
}  # fmt: skip
# Papers that are cited, too, and not listed above.
OTHERS = r"(?<![A-Za-z])BERT,|Devlin|Vaswani|Radford|Chowdhery|Holtzman|Reimers|CharacterBERT|El Boukkouri"
_FOLDERS = {"charbert": ("charbert", "text/symbols"), "hlm": ("hlm", "data/word_batch"), "other": ("characterbert",)}


class Citation(NamedTuple):
    """A part of a paper that a file cites; `paper` is a name of `PAPERS`, or "other"."""

    file: str
    line: int
    paper: str
    kind: str
    number: str

    @property
    def exists(self) -> bool:
        """Whether the paper has this part; citations of other papers are not checked."""
        return self.paper == "other" or self.number in PAPERS[self.paper].parts.get(self.kind, ())


def citations(root: Path = ROOT) -> Iterator[Citation]:
    """Yields the citations in all Python and Markdown files that git knows, in the order of files and lines."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in sorted(listed):
        if not name.startswith("tests/") or "families" in name:
            yield from citations_in((root / name).read_text(encoding="utf-8"), name)


def citations_in(text: str, name: str) -> Iterator[Citation]:
    """Yields the citations of one text.

    The paper is the one named after it in the same brackets, else the one named last before it in the paragraph, else
    that of the folder or heading.

    Args:
      name: the file's path, from the root.
    """
    for match in _CITED.finditer(text):
        paper = _paper_of(text, match.start(), match.end(), name)
        kind = next(kind for begin, kind in KINDS.items() if match[1].lower().startswith(begin))
        for number in re.findall(_NUMBER, f"{match[2]} {match[3]}"):
            yield Citation(name, text.count("\n", 0, match.start()) + 1, paper, kind, number)


def _paper_of(text: str, start: int, end: int, name: str) -> str:
    before, after = (
        text[max(0, start - (400 if name.endswith(".md") else 100)) : start],
        re.split(r"[).;]", text[end : end + 60])[0],
    )
    before = re.split(r"\n\n|\n[-#|]", before)[-1]
    known = {key: paper.named for key, paper in PAPERS.items()} | {"other": OTHERS}
    for key, named in known.items():
        if re.search(named, after):
            return key
    last = {key: max((m.end() for m in re.finditer(named, before)), default=-1) for key, named in known.items()}
    if max(last.values()) >= 0:
        return max(last, key=lambda key: last[key])
    folders = {key: (key,) for key in PAPERS} | _FOLDERS
    for key, parts in folders.items():
        if any(part in name for part in parts):
            return key
    headings = re.findall(r"^#+ (.*)$", text[:start], re.MULTILINE) if name.endswith(".md") else []
    for heading in reversed(headings):
        for key, named in known.items():
            if re.search(named, heading):
                return key
    return "other" if not name.endswith(".md") else "hlm"


if __name__ == "__main__":
    for cited in citations():
        if "--missing" not in sys.argv or not cited.exists:
            print(f"{cited.file}:{cited.line}: {cited.paper} {cited.kind} {cited.number}")
