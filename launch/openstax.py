"""Writes the text of OpenStax textbooks that were published under CC BY 4.0, one file a book, as a corpus for charlm.

    git clone https://github.com/openstax/osbooks-astronomy && git clone https://github.com/openstax/osbooks-us-history
    python launch/openstax.py osbooks-astronomy osbooks-us-history --out=corpus

Each folder is a clone with its whole history: many books were relicensed for non-commercial use later, so the text is
that of the newest commit whose LICENSE file and whose collections all say CC BY 4.0. Books without one are left out and
named. A paragraph is a line, and a blank line stands between modules. Equations, tables, figures and exercises are left
out, and so is a paragraph that has mathematics within.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

NAMESPACE = "{http://cnx.rice.edu/cnxml}"
LEFT_OUT = {"metadata", "equation", "table", "exercise", "media", "link-group", "image", "iframe"}
OF_THEIR_OWN = {  # not part of the sentence around
    "para", "title", "list", "figure", "note", "equation", "media", "table", "footnote",
}  # fmt: skip
PARAGRAPHS = {"para", "item", "title", "caption", "meaning"}
FEWEST_WORDS = 8  # of a paragraph that is no title: shorter ones are labels
FEWEST_WORDS_OF_A_MODULE = 100
LICENCE = "Attribution 4.0 International"  # how the file of CC BY 4.0 begins


def paragraphs(element: ElementTree.Element) -> Iterator[str]:
    """Yields the paragraphs and titles below an element of CNXML, each on one line."""
    for child in element:
        name = _name(child)
        if not name or name in LEFT_OUT:
            continue
        line = " ".join((_text(child) or "").split()) if name in PARAGRAPHS else ""
        if line and (name == "title" or len(line.split()) >= FEWEST_WORDS):
            yield line
        yield from paragraphs(child)


def _text(element: ElementTree.Element) -> str | None:
    """Returns the text of a paragraph; None if there is mathematics in it."""
    parts = [element.text or ""]
    for child in element:
        if "MathML" in str(child.tag):
            return None
        name = _name(child)
        if name == "newline":
            parts.append(" ")
        elif name and name not in OF_THEIR_OWN:
            inside = _text(child)
            if inside is None:
                return None
            parts.append(inside)
        parts.append(child.tail or "")
    return "".join(parts)


def _name(element: ElementTree.Element) -> str:
    """Returns the name of an element of CNXML; "" for comments and for other vocabularies."""
    tag = element.tag if isinstance(element.tag, str) else ""
    return tag.removeprefix(NAMESPACE) if tag.startswith(NAMESPACE) else ""


def free_commit(clone: Path) -> str:
    """Returns the newest commit of a book under CC BY 4.0; "" if there is none."""
    for commit in _git(clone, "log", "--format=%H", "--all").split():
        if not _git(clone, "show", f"{commit}:LICENSE").startswith(LICENCE):
            continue
        named = _git(clone, "grep", "-h", "creativecommons.org/licenses", commit, "--", "collections")
        if set(re.findall(r"creativecommons\.org/licenses/([a-z-]+)/", named)) == {"by"}:
            return commit
    return ""


def modules(clone: Path, commit: str) -> Iterator[str]:
    """Yields the text of each module of a book that has any, a paragraph a line."""
    for path in _git(clone, "ls-tree", "-r", "--name-only", commit).split("\n"):
        if not path.endswith("index.cnxml"):
            continue
        try:
            root = ElementTree.fromstring(_git(clone, "show", f"{commit}:{path}"))
        except ElementTree.ParseError as error:
            print(f"{clone.name}: {path} is left out: {error}", file=sys.stderr)
            continue
        lines = list(dict.fromkeys(paragraphs(root)))  # a title may stand twice
        if sum(len(line.split()) for line in lines) >= FEWEST_WORDS_OF_A_MODULE:
            yield "\n".join(lines)


def _git(clone: Path, *command: str) -> str:
    """Returns what git prints; "" if it fails, as it does for a file that a commit has not."""
    done = subprocess.run(["git", "-C", str(clone), *command], capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status: 1 if no book could be written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", type=Path, metavar="CLONE", help="folder of a book's repository")
    parser.add_argument("--out", required=True, type=Path, help="folder of the texts, NAME.txt.gz")
    args = parser.parse_args(argv)
    if missing := [str(clone) for clone in args.clones if not _git(clone, "rev-parse", "HEAD")]:
        parser.error(f"no git repository: {', '.join(missing)}")
    args.out.mkdir(parents=True, exist_ok=True)
    written = 0
    for clone in args.clones:
        name, commit = clone.resolve().name, free_commit(clone)
        if not commit:
            print(f"{name}: no commit under CC BY 4.0, left out", file=sys.stderr)
            continue
        texts = list(modules(clone, commit))
        part = args.out / f"{name}.txt.gz.part"
        with gzip.open(part, "wt", encoding="utf-8") as file:
            file.write("\n\n".join(texts) + "\n")
        part.rename(args.out / f"{name}.txt.gz")
        words = sum(len(text.split()) for text in texts)
        print(f"{name}: {len(texts)} modules, {words:,} words, commit {commit[:10]}")
        written += 1
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
