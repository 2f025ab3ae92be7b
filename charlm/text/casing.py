"""Text whose capitals say nothing: lines that are written in capitals throughout.

Open it to change what counts as such a line.
"""

from __future__ import annotations

import re

LEAST_WORDS = 3  # fewer words in capitals may be a heading, an acronym or a name
_WORD = re.compile(r"[^\W\d_]+")


def quieted(text: str) -> str:
    """Returns a text with the lines that are all capitals in lower case; every character keeps its place.

    A line with a letter that is no capital, also of a script without case, stays as it is. So does, within a line, a
    character whose lower case is two characters (the Turkish capital I with a dot).
    """
    return "".join(map(_quiet, text.splitlines(keepends=True)))


def _quiet(line: str) -> str:
    if not line.isupper() or len(_WORD.findall(line)) < LEAST_WORDS:
        return line
    if not all(char.isupper() for char in line if char.isalpha()):
        return line
    low = line.lower()  # knows the form of a Greek sigma at the end of a word
    if len(low) == len(line):
        return low
    return "".join(low if len(low := char.lower()) == 1 else char for char in line)
