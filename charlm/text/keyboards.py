"""Which letters lie beside which on the keyboards of eleven languages, for typing errors.

The layouts come from nlpaug (Copyright (c) 2019 Edward Ma, MIT licence; nlpaug/res/char/keyboard at commit
63ca3ec8c2), made into `keyboards.json` by these rules, which a test repeats on the source:

- Letters only. A hand that slips from a letter may also hit a digit or a comma, but that changes a number or cuts the
  word in two, and is another noise. Symbols that need Shift are no accident at all. Combining marks (Thai) do not stand
  for a letter.
- One case: a letter listed in upper case is the same key; case is carried over here instead.
- ç (Italian), ć, ń and ś (Polish) need Shift on the layouts of the source, and go too. The shifted layer of the Thai
  keyboard has letters of its own, which lie beside each other.
- To lie beside is mutual. The source forgets one direction of some pairs (y is missing beside u everywhere), which also
  gives the keys at the edge, listed as neighbours only, an entry.
- Slips of the source are dropped: a key beside itself, " t" for a key.

Polish is the typist's layout (QWERTZ), as in the source. Letters of a language that its source lacks have no
neighbours.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

AUTO = "auto"
# The keyboard of a script, for texts of unknown language. No two of them share a letter.
SCRIPTS = MappingProxyType({"Latin": "en", "Cyrillic": "uk", "Hebrew": "he", "Thai": "th"})
_TURKISH_UPPER = {"i": "İ", "ı": "I"}


@dataclass(frozen=True, eq=False)
class Keyboard:
    """A layout; in both tables a key is a letter in either case, and its value has the same case.

    Attributes:
      language: its code, or "auto" for the keyboards of all scripts at once.
      neighbours: the letters beside each letter, in order of code point.
      alphabets: all letters of the layout that a letter is from.
    """

    language: str
    neighbours: Mapping[str, str]
    alphabets: Mapping[str, str]

    def near(self, char: str) -> str:
        """Returns the letters beside `char` in its case; none for what is no letter of this keyboard."""
        return self.neighbours.get(char, "")

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return keyboard_for, (self.language,)


@functools.cache
def languages() -> tuple[str, ...]:
    """Returns the codes of the languages that have a keyboard."""
    return tuple(_layouts())


def keyboard_for(language: str = AUTO) -> Keyboard:
    """Returns the keyboard of a language; a region behind it ("de-AT") is ignored.

    "auto" chooses by script: a letter has the neighbours of the one keyboard of `SCRIPTS` that it is on, so that a
    word's script decides; letters of other scripts have none.

    Raises:
      ValueError: there is none; the message names the languages there are.
    """
    code = re.split("[-_]", language.lower())[0]
    if code == AUTO or code in _layouts():
        return _keyboard(code)
    raise ValueError(f"no keyboard for language {language!r}: expected one of {', '.join([AUTO, *_layouts()])}")


@functools.cache
def _layouts() -> dict[str, dict[str, str]]:
    """Reads the file of the package: language, letter in lower case, its neighbours."""
    return json.loads(resources.files("charlm.text").joinpath("keyboards.json").read_text(encoding="utf-8"))["layouts"]


@functools.cache
def _keyboard(code: str) -> Keyboard:
    """Returns one keyboard per process and language."""
    neighbours: dict[str, str] = {}
    alphabets: dict[str, str] = {}
    for source in SCRIPTS.values() if code == AUTO else [code]:
        layout = _layouts()[source]
        letters = "".join(layout)
        neighbours.update(layout)
        alphabets.update(dict.fromkeys(letters, letters))
        for letter, near in layout.items():
            upper = _upper(letter, source)
            if upper != letter:
                neighbours[upper] = _upper(near, source)
                alphabets[upper] = _upper(letters, source)
    return Keyboard(code, MappingProxyType(neighbours), MappingProxyType(alphabets))


def _upper(letters: str, language: str) -> str:
    """Returns letters in upper case, as many as before."""
    special = _TURKISH_UPPER if language == "tr" else {}
    return "".join(special.get(letter, letter.upper()) for letter in letters)
