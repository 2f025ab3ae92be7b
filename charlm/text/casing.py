"""Text whose capitals say nothing: sentences that are written in capitals throughout.

Open it to change what counts as such a sentence.
"""

from __future__ import annotations

import re

LEAST_WORDS = 3  # fewer capital words may be a heading, an acronym or a name
_SENTENCE = re.compile(r"[^.!?\n]+")
_WORD = re.compile(r"[^\W\d_]{2,}")


def quieted(text: str) -> str:
    """Returns a text with the sentences that are all capitals in lower case; every character keeps its place.

    A character whose lower case is two characters (the Turkish capital I with a dot) stays as it is.
    """
    return text if text.islower() else _SENTENCE.sub(_quiet, text)


def _quiet(found: re.Match[str]) -> str:
    sentence = found[0]
    if any(map(str.islower, sentence)) or len(_WORD.findall(sentence)) < LEAST_WORDS:
        return sentence
    return "".join(low if len(low := char.lower()) == 1 else char for char in sentence)
