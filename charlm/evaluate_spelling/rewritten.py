"""Reads sentences as people wrote them beside rewrites of them by others, for the misspelled words among the changes.

Made for JFLEG (Napoles et al., 2017, EACL): sentences of learners, a line each, with words and marks between spaces,
and four files of rewrites. Most of what rewrites change is grammar and style. Open it to change which of their changes
mend a misspelled word.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from charlm.core.reading import read_text
from charlm.evaluate_spelling.data import Example


def read_rewritten(path: str, rewrites: Sequence[str]) -> list[Example]:
    """Returns the sentences of a file with what most of their rewrites have in the place of each word.

    A word is misspelled if most rewrites put the same other word there and no rewrite of the whole file has the word as
    it was written, so it is none of the language; "have" for "has" is grammar. It is right if most rewrites keep it.
    Other words do not count, nor do changes of case alone.

    Args:
      path: the sentences as written, one a line, with spaces between words and marks.
      rewrites: files of as many lines, rewrites of these sentences.

    Raises:
      ValueError: a file cannot be read, or has another number of lines; names the file and both numbers.
    """
    lines_of = lambda name: read_text(name).removesuffix("\n").split("\n")  # no other sign ends a line
    written, *others = [[line.split() for line in lines_of(name)] for name in (path, *rewrites)]
    for name, lines in zip(rewrites, others, strict=True):
        if len(lines) != len(written):
            raise ValueError(
                f"{name}: {len(lines):,} lines, expected a rewrite of each of the {len(written):,} of {path}"
            )
    known = {word.lower() for lines in others for words in lines for word in words}
    return [_example(words, of, known) for words, *of in zip(written, *others, strict=True) if words]


def _example(words: Sequence[str], rewrites: Sequence[Sequence[str]], known: set[str]) -> Example:
    text = " ".join(words)
    spans = tuple(match.span() for match in re.finditer(r"\S+", text))
    places = zip(*(_in_place(words, other) for other in rewrites), strict=True)
    return Example(text, spans, tuple(_meant(word, found, known) for word, found in zip(words, places, strict=True)))


def _meant(word: str, found: Sequence[str | None], known: set[str]) -> str | None:
    """Returns what a word should be, given what the rewrites have in its place; None: it does not count."""
    new, count = Counter(found).most_common(1)[0]
    if new is None or 2 * count <= len(found):
        return None
    is_mended = new.isalpha() and word.isalpha() and new.lower() != word.lower() and word.lower() not in known
    return new if new == word or is_mended else None


def _in_place(words: Sequence[str], other: Sequence[str]) -> list[str | None]:
    """Returns for each word what a rewrite has in its place; None if that is not one word."""
    found: list[str | None] = [None] * len(words)
    for kind, a, b, c, d in difflib.SequenceMatcher(None, words, other, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and b - a == d - c):
            found[a:b] = other[c:d]
    return found
