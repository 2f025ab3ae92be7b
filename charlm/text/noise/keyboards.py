"""Which letters lie beside which on the keyboards of the languages of multilingual BERT, for typing errors.

The layouts lie in `keyboards.json` and come from two sources. Eleven languages are those of nlpaug (Copyright (c) 2019
Edward Ma, MIT licence; nlpaug/res/char/keyboard at commit 63ca3ec8c2), made into the file by these rules, which a test
repeats on the source:

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

The others are layouts of xkeyboard-config 2.35.1 (many authors, MIT/X11 and like licences, see the file), by the same
rules; tests/text/xkb_layouts.py says which layout is whose and makes that part of the file anew:

- Beside a key are the next ones in its row, and of the rows above and below those at most one column off. That is
  nlpaug's measure too: on the American layout it gives exactly nlpaug's English.
- Letters on the shifted level that are no capitals (Devanagari, Persian, Georgian) lie beside each other, never beside
  a letter of the other level. What needs AltGr or a dead key (Spanish á) is left out, and so are letters of another
  script, signs, ligatures, and letters that Unicode's normal form C takes apart (Bengali য়).
- A vowel sign does not stand for a letter: it goes with its letter, as every mark does in `noise_characters`, and no
  letter becomes one. In the scripts of India and Burma a letter that takes signs has only such letters beside it, the
  vowels have vowels: so a slip never leaves a sign without a letter to sit on, at the start of a word or elsewhere.
- Katakana are those of the Japanese kana keyboard; hiragana lie on the same keys.

Chinese and Korean have no keyboard: what their keys type is spelling, which an input method turns into characters, so a
slip does not put one character in the place of another.
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
    """A layout; in both tables a key is a letter in either case, and its value has the same case.

    Attributes:
      language: its code, or "auto" for the keyboards of all scripts at once.
      neighbours: the letters beside each letter, in order of code point.
      alphabets: all letters of the layout that a letter is from; of the Japanese one, those of its syllabary.
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
    file = json.loads(resources.files("charlm.text.noise").joinpath("keyboards.json").read_text(encoding="utf-8"))
    shared = file["xkeyboard-config"]
    return file["nlpaug"]["layouts"] | {code: shared["layouts"][name] for code, name in shared["languages"].items()}


@functools.cache
def _keyboard(code: str) -> Keyboard:
    """Returns one keyboard per process and language."""
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
    """Returns the letters of a layout, hiragana and katakana apart."""
    hiragana = "".join(letter for letter in layout if "ぁ" <= letter <= "ゖ")
    return [
        letters for letters in (hiragana, "".join(letter for letter in layout if letter not in hiragana)) if letters
    ]


def _upper(letters: str, language: str) -> str:
    """Returns letters in upper case, without those that are no capital's small letter (ß, ς); others stay (Hebrew)."""
    special = _TURKISH_UPPER if language in ("tr", "az") else {}
    capitals = (special.get(letter) or letter.upper() for letter in letters)
    return "".join(
        capital
        for letter, capital in zip(letters, capitals, strict=True)
        if letter in special or capital.lower() == letter
    )
