"""Keyboard neighbours for typing errors: which letters are next to each other, in the languages of multilingual BERT.

Open it when the noise `keyboard` types a letter that is not next to the right one, or to add a language.

The layouts are in `keyboards.json` and come from two sources. The layouts of eleven languages come from nlpaug
(Copyright (c) 2019 Edward Ma, MIT licence; nlpaug/res/char/keyboard at commit 63ca3ec8c2). They were converted by the
following rules, which a test applies to the source again:

- Only letters count. A slip from a letter may also hit a digit or a comma, but that changes a number or cuts the word
  in two, which is a different kind of noise. Symbols that need Shift are never typed by a slip. Combining marks (Thai)
  do not replace a letter.
- The file holds one case: a letter listed in upper case is the same key. This module adds the other case.
- ç (Italian), ć, ń and ś (Polish) need Shift on the layouts of the source and are left out too. The shifted layer of
  the Thai keyboard has letters of its own, which are neighbours of each other.
- Neighbours are mutual. The source lacks one direction of some pairs (y is missing beside u everywhere), so the missing
  directions were added. This also gives an entry to the keys at the edge, which the source lists as neighbours only.
- Errors of the source were dropped: a key beside itself, and " t" as a key.

Polish is the typist's layout (QWERTZ), as in the source. Letters of a language that are missing in its source have no
neighbours.

The layouts of the other languages come from xkeyboard-config 2.35.1 (many authors, MIT/X11 and similar licences, see
the file) and follow the same rules. tests/text/noise/xkb_layouts.py says which language has which layout, and can write
that part of the file again:

- The neighbours of a key are the adjacent keys in its row, and the keys in the rows above and below that are at most
  one column off. nlpaug measures in the same way: on the American layout the rule gives exactly nlpaug's English.
- Letters on the shifted level that are not capitals (Devanagari, Persian, Georgian) are neighbours of each other, never
  of a letter of the other level. Letters that need AltGr or a dead key (Spanish á) are left out, and so are letters of
  another script, signs, ligatures, and letters that Unicode's normal form C decomposes (Bengali য়).
- A vowel sign does not replace a letter: it stays with its letter, as every mark does in
  `charlm.text.noise.characters`, and no letter becomes a vowel sign. In the scripts of India and Burma, a letter that
  takes signs has only such letters as neighbours, and vowels have only vowels. So a slip never leaves a sign without a
  letter that can carry it, at the start of a word or elsewhere.
- Katakana are those of the Japanese kana keyboard; hiragana are on the same keys.

Chinese and Korean have no keyboard: their keys type a spelling, which an input method turns into characters, so a slip
does not replace one character by another.
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
SCRIPTS = MappingProxyType(
    {"Latin": "en", "Cyrillic": "uk", "Hebrew": "he", "Thai": "th", "Arabic": "ar", "Armenian": "hy", "Bengali": "bn"}
    | {"Burmese": "my", "Devanagari": "hi", "Georgian": "ka", "Greek": "el", "Gujarati": "gu", "Gurmukhi": "pa"}
    | {"Kana": "ja", "Kannada": "kn", "Malayalam": "ml", "Tamil": "ta", "Telugu": "te"}
)
_TURKISH_UPPER = {"i": "İ", "ı": "I"}


@dataclass(frozen=True, eq=False)
class Keyboard:
    """A keyboard layout. Both tables have an entry for each letter in either case, and the value has the same case.

    Attributes:
      language: the language code, or "auto" for the keyboards of all scripts at once.
      neighbours: the letters beside each letter, in order of code point.
      alphabets: for each letter, all letters of its layout; for a Japanese letter, those of its syllabary.
    """

    language: str
    neighbours: Mapping[str, str]
    alphabets: Mapping[str, str]

    def near(self, char: str) -> str:
        """Returns the letters beside `char` in the case of `char`; "" if this keyboard does not have `char`."""
        return self.neighbours.get(char, "")

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return keyboard_for, (self.language,)


@functools.cache
def languages() -> tuple[str, ...]:
    """Returns the codes of the languages that have a keyboard."""
    return tuple(_layouts())


def keyboard_for(language: str = AUTO) -> Keyboard:
    """Returns the keyboard of a language; the region in a code such as "de-AT" is ignored.

    "auto" chooses by script: a letter has the neighbours of the only keyboard of `SCRIPTS` that has this letter.
    Letters of scripts that are not in `SCRIPTS` have no neighbours.

    Raises:
      ValueError: the language has no keyboard; the message lists the languages that have one.
    """
    code = re.split("[-_]", language.lower())[0]
    if code == AUTO or code in _layouts():
        return _keyboard(code)
    raise ValueError(f"no keyboard for language {language!r}: expected one of {', '.join([AUTO, *_layouts()])}")


@functools.cache
def _layouts() -> dict[str, dict[str, str]]:
    """Reads the layouts from the package: {language: {lower-case letter: its neighbours}}."""
    file = json.loads(resources.files("charlm.text.noise").joinpath("keyboards.json").read_text(encoding="utf-8"))
    shared = file["xkeyboard-config"]
    return file["nlpaug"]["layouts"] | {code: shared["layouts"][name] for code, name in shared["languages"].items()}


@functools.cache
def _keyboard(code: str) -> Keyboard:
    """Builds the keyboard of a language, once per process."""
    neighbours: dict[str, str] = {}
    alphabets: dict[str, str] = {}
    for source in SCRIPTS.values() if code == AUTO else [code]:
        layout = _layouts()[source]
        for letters in _alphabets(layout):
            alphabets.update(dict.fromkeys(letters, letters))
            alphabets.update(dict.fromkeys(_upper(letters, source), _upper(letters, source)))
        neighbours.update(layout)
        neighbours.update({_upper(a, source): _upper(near, source) for a, near in layout.items() if _upper(a, source)})
    return Keyboard(code, MappingProxyType(neighbours), MappingProxyType(alphabets))


def _alphabets(layout: Mapping[str, str]) -> list[str]:
    """Returns the letters of a layout; those of the Japanese layout as two alphabets, hiragana and katakana."""
    hiragana = "".join(letter for letter in layout if "ぁ" <= letter <= "ゖ")
    return [
        letters for letters in (hiragana, "".join(letter for letter in layout if letter not in hiragana)) if letters
    ]


def _upper(letters: str, language: str) -> str:
    """Returns letters in upper case; letters without case stay as they are (Hebrew).

    Letters that do not come back when their capital is lower-cased (ß, ς) are left out.
    """
    special = _TURKISH_UPPER if language in ("tr", "az") else {}
    capitals = (special.get(letter) or letter.upper() for letter in letters)
    return "".join(
        capital
        for letter, capital in zip(letters, capitals, strict=True)
        if letter in special or capital.lower() == letter
    )
