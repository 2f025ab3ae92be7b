"""Lists every section, table, figure, equation, appendix and footnote of a paper that code and documents cite.

    python tests/citations.py              # all, with file, line and paper
    python tests/citations.py --missing    # those that the paper does not have, or whose paper is not named

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
_MORE = rf"(?:(?:,| and|,? or| to)\s+{_NUMBER}(?![\w]))*"
_CITED = re.compile(
    rf"(?<![\w-])(§|sections?|sec\.|tables?|figures?|fig\.|eq\.|equations?|appendix|algorithms?|footnotes?)\s+({_NUMBER}"
    rf"(?![\w]){_MORE})",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"[A-D]")  # the number of a part that begins so is one of an appendix
PAGES = ("docs/papers.md",)  # whose tables cite sections by bare numbers in brackets
_ALONE = r"(?:[A-D](?:\.\d)?|[1-6](?:\.\d)?)(?=[;)]|, )"
# "(3.5, A.3)", "(4, Figure 4)", "(2.1, 4)", "of 4.1": bare numbers, in the pages above
_BARE = re.compile(rf"\(({_ALONE}(?:, {_ALONE})*)|\bof ([1-6]\.\d)\b")
# "(CharBERT, 3.5)", "(Aguilar et al., 2021, 3.3)": in all files
_NAMED = re.compile(r"(?:HLM|CharBERT|Char2Subword|XRayEmb|et al\.,? \d{4}), ((?:[A-D]|[1-6])\.\d)()(?=[;).]|, )")


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
            "1 2 3 3.1 3.2 3.3 3.4 3.5 3.6 4 4.1 4.2 4.3 4.4 4.5 4.6 5 5.1 5.2 5.3 6",
            table=4, figure=6, equation=8, footnote=2,
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
OTHERS = "|".join(
    (
        *(
            r"(?<![A-Za-z])BERT,\s*$",
            "Devlin",
            "Vaswani",
            "Radford",
            "Chowdhery",
            "Holtzman",
            "Reimers",
            "CharacterBERT",
        ),
        *("El Boukkouri", "Dao et al", "Pruthi"),
        *("Su et al", "Sennrich", "Shazeer", "Xiong", "Pagnoni", "Bojanowski", "Warner"),
    )
)
NAMES = {key: paper.named for key, paper in PAPERS.items()} | {"other": OTHERS}
UNKNOWN = "unknown"  # the text does not say which paper it cites
_FOLDERS = {
    "charbert": ("charbert", "text/symbols"), "hlm": ("hlm", "data/word_batch"), "other": ("characterbert",),
    "char2subword": ("char2subword", "configs/align", "statistics/test_statistics"),
}  # fmt: skip
_OWN = ("tests/citations.py", "tests/test_citations.py")  # whose citations are examples


class Citation(NamedTuple):
    """A part of a paper that a file cites; `paper` is a name of `PAPERS`, "other", or "unknown"."""

    file: str
    line: int
    paper: str
    kind: str
    number: str

    @property
    def exists(self) -> bool:
        """Whether the paper has this part; citations of other papers are not checked."""
        return self.paper == "other" or (
            self.paper in PAPERS and self.number in PAPERS[self.paper].parts.get(self.kind, ())
        )


def citations(root: Path = ROOT) -> Iterator[Citation]:
    """Yields the citations in all Python, Markdown and notebook files that git knows, in the order of files."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.ipynb"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in sorted(set(listed) - set(_OWN)):
        if (root / name).exists():
            yield from citations_in((root / name).read_text(encoding="utf-8"), name)


def citations_in(text: str, name: str) -> Iterator[Citation]:
    """Yields the citations of one text.

    The paper is the one named just before it in the same brackets, else the one named after it in them, else the one
    named last before it in the paragraph, else that of the folder or heading.

    Args:
      name: the file's path, from the root.
    """
    found = [(match.start(), match.end(), match[1].lower(), match[2]) for match in _CITED.finditer(text)]
    for pattern in (_BARE, _NAMED) if name in PAGES else (_NAMED,):
        found += [(match.end(), match.end(), "section", match[1] or match[2]) for match in pattern.finditer(text)]
    for start, end, word, listed in sorted(found):
        paper = _paper_of(text, start, end, name)
        kind = next(kind for begin, kind in KINDS.items() if word.startswith(begin))
        for number in _numbers(listed):
            of = "appendix" if kind == "section" and _LETTERS.match(number) else kind
            yield Citation(name, text.count("\n", 0, start) + 1, paper, of, number)


def _numbers(listed: str) -> list[str]:
    """Returns the numbers of "3, 4.1 and 5"; "3 to 6" and "3.1 to 3.3" name all numbers between, too."""
    parts = re.findall(rf"(\bto\s+)?({_NUMBER})", listed)
    numbers: list[str] = []
    for to, number in parts:
        if to and numbers:
            chapter, _, last = number.rpartition(".")
            dot = "." if chapter else ""
            first = int(numbers[-1].rpartition(".")[2])
            numbers += [f"{chapter}{dot}{n}" for n in range(first + 1, int(last))]
        numbers.append(number)
    return numbers


def _paper_of(text: str, start: int, end: int, name: str) -> str:
    before = re.split(r"\n\n|\n[-#|]", text[max(0, start - (400 if name.endswith(".md") else 160)) : start])[-1]
    after = re.split(r"[).;\"|]|\n\s*[\"'#|]", text[end : end + 60])[0]
    for key, named in NAMES.items():
        if re.search(rf"(?:{named})[^.;()|]{{0,24}},?\s+$", before[-60:]):
            return key
    for key, named in NAMES.items():
        if re.search(named, after):
            return key
    own = [key for key, parts in _FOLDERS.items() if any(part in name for part in parts)]
    own = own[-1:] if "other" in own else own  # the folder of CharacterBERT is none of CharBERT's
    own += [key for key in PAPERS if key in name and key not in own]
    last = {key: max((m.end() for m in re.finditer(named, before)), default=-1) for key, named in NAMES.items()}
    if max(last.values()) >= 0:
        return max(last, key=lambda key: last[key])
    return own[0] if own else _of_heading(text[:start], name)


def _of_heading(before: str, name: str) -> str:
    if not name.endswith(".md"):
        return UNKNOWN
    for heading in reversed(re.findall(r"^#+ (.*)$", before, re.MULTILINE)):
        for key, named in NAMES.items():
            if re.search(named, heading):
                return key
    return UNKNOWN


if __name__ == "__main__":
    for cited in citations():
        if "--missing" not in sys.argv or not cited.exists:
            print(f"{cited.file}:{cited.line}: {cited.paper} {cited.kind} {cited.number}")
