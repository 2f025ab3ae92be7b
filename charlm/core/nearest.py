"""Ends an error message about an unknown name with the known name that was most likely meant.

Use it wherever users type one of several names, so that all messages suggest names in the same way.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

ALIKE = 0.6  # likeness from which two names count as similar, from 0 to 1; difflib's own default
OF_OURS = 0.5  # the same where one of a few names of ours must be meant
_PLAIN = re.compile(r"[\w.:@+/-]+")  # names that need no quotes


def did_you_mean(name: object, choices: Iterable[str], alike: float = OF_OURS) -> str:
    """Returns "; did you mean X?" for the choice X that is most similar to a name.

    Args:
      name: what was typed.
      choices: the known names; names with spaces and the like are quoted.
      alike: least likeness of X, from 0 to 1: `OF_OURS` for a few names of ours, `ALIKE` for names in somebody's files.

    Returns:
      "" if no choice is similar enough.
    """
    typed, listed = str(name), list(choices)
    if (
        typed.isidentifier() and listed and all("." in one for one in listed)
    ):  # keys, of whose names only the last part was
        by_leaf = {one.rpartition(".")[2]: one for one in listed}
        found = difflib.get_close_matches(typed, list(by_leaf), n=1, cutoff=max(alike, ALIKE))
        return f"; did you mean {by_leaf[found[0]]}?" if found else ""
    close = difflib.get_close_matches(typed, listed, n=1, cutoff=alike)
    return f"; did you mean {close[0] if _PLAIN.fullmatch(close[0]) else repr(close[0])}?" if close else ""
