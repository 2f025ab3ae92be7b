"""How texts of users stand on the page and in the figure: nothing invisible, nothing that turns what follows around.

Open it to change how characters are shown that have no shape of their own.
"""

from __future__ import annotations

import unicodedata

_KEPT_FORMAT = "\u200c\u200d"  # joiners, which words of some scripts need
REPLACED = "\ufffd"


def harmless(text: str) -> str:
    """Returns a text whose white space is plain, without characters that are invisible or turn the direction of text.

    These, lone surrogates and what a word has of control characters become U+FFFD.
    """
    return "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char.isspace():
        return " "
    hidden = unicodedata.category(char) in ("Cc", "Cs", "Cf") and char not in _KEPT_FORMAT
    return REPLACED if hidden else char


def shortened(text: str, most: int) -> str:
    """Returns a text on one line, with its end left out if it has more than `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
