"""Makes the keyboards of mBERT's languages from the layouts of xkeyboard-config; see charlm/text/noise/keyboards.py.

    python tests/text/noise/xkb_layouts.py    # writes charlm/text/noise/keyboards.json anew; nlpaug's part stays as it
    is

It needs Debian's packages xkb-data and x11proto-dev, of which only the latter knows the characters of key symbols.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

XKB = Path("/usr/share/X11/xkb/symbols")
KEYSYMS = Path("/usr/include/X11/keysymdef.h")
RELEASE = Path("/usr/share/pkgconfig/xkeyboard-config.pc")
COPYING = Path("/usr/share/doc/xkb-data/copyright")
VERSION = "2.35.1"
KEYBOARDS = Path(__file__).parents[3] / "charlm" / "text" / "noise" / "keyboards.json"

# The layout of every language of multilingual BERT (cased) that nlpaug has none for. Where xkeyboard-config names no
# layout for a language, it is the one that is usual where the language is spoken. Chinese and Korean have none here.
LANGUAGES = (
    {"af": "za", "an": "es", "ar": "ara", "ast": "es(ast)", "az": "az", "azb": "ir", "ba": "ru(bak)"}
    | {"bar": "de", "be": "by", "bg": "bg", "bn": "bd", "bpy": "bd", "br": "fr(bre)", "bs": "ba", "ca": "es(cat)"}
    | {"ce": "ru", "ceb": "ph", "cs": "cz", "cv": "ru(cv)", "cy": "gb", "da": "dk", "el": "gr", "et": "ee"}
    | {"eu": "es", "fa": "ir", "fi": "fi", "fy": "nl(us)", "ga": "ie", "gl": "es", "gu": "in(guj)"}
    | {"hi": "in(deva)", "hr": "hr", "ht": "fr", "hu": "hu", "hy": "am", "id": "id", "io": "us", "is": "is"}
    | {"ja": "jp(kana)", "jv": "id", "ka": "ge", "kk": "kz", "kn": "in(kan)", "ky": "kg", "la": "us"}
    | {"lb": "ch(fr)", "lmo": "it", "lt": "lt", "lv": "lv", "mg": "fr", "min": "id", "mk": "mk", "ml": "in(mal)"}
    | {"mn": "mn", "mr": "in(marathi)", "ms": "id", "my": "mm", "nb": "no", "nds": "de", "ne": "np", "new": "np"}
    | {"nn": "no", "no": "no", "oc": "fr(oci)", "pa": "in(guru)", "pms": "it", "pnb": "pk", "pt": "pt"}
    | {"ro": "ro(std)", "ru": "ru", "scn": "it(scn)", "sco": "gb", "sh": "rs(latin)", "sk": "sk", "sl": "si"}
    | {"sq": "al", "sr": "rs", "su": "id", "sv": "se", "sw": "ke", "ta": "in(tam)", "te": "in(tel)", "tg": "tj"}
    | {"tl": "ph", "tt": "ru(tt)", "ur": "pk", "uz": "uz(latin)", "vi": "vn", "vo": "us", "war": "ph"}
    | {"yo": "ng(yoruba)"}
)

_ROWS = {"AE": 0, "AD": 1, "AC": 2, "AB": 3}
_NAMED = {"TLDE": (0, 0), "BKSL": (2, 12), "LSGT": (3, 0)}  # on the keyboard of 105 keys
_SECTION = re.compile(r'([\w \t\r\n]*)\bxkb_symbols\s+"([^"]+)"\s*\{')
_STATEMENT = re.compile(r'\b(include|augment|override|replace)\s+"([^"]+)"|\bkey\s*<(\w+)>\s*\{([^}]*)\}')
# Letters of Indian scripts and Burmese that no vowel sign can follow: vowels, and consonants that end a syllable.
_TAKES_NO_SIGN = re.compile(r"LETTER (?:(?:CANDRA|SHORT|VOCALIC|CHILLU|KHANDA|DOT|[AIUEO]|[AEO][AIUEO]|II|UU)\b)")
_SIGNS = ("DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "MYANMAR")

Keys = dict[tuple[int, int], list[str]]  # row and column of a key, what it types without and with Shift


def content() -> dict[str, object]:
    """Returns what `keyboards.json` says of this source: the layouts, and which language has which."""
    if f"Version: {VERSION}\n" not in RELEASE.read_text(encoding="utf-8"):
        raise ValueError(f"{RELEASE}: expected version {VERSION} of xkeyboard-config")
    homepage = "https://www.freedesktop.org/wiki/Software/XKeyboardConfig"
    return {
        "source": f"xkeyboard-config {VERSION}, as keyboards.py says, {homepage}",
        "licence": "MIT/X11 and like it (its file COPYING)",
        "copyright": re.findall(r"^Copyright .+", COPYING.read_text(encoding="utf-8"), re.MULTILINE),
        "languages": dict(sorted(LANGUAGES.items())),
        "layouts": {name: layout(name) for name in sorted(set(LANGUAGES.values()))},
    }


def layout(name: str) -> dict[str, str]:
    """Returns the letters beside each letter of a layout such as "in(deva)", both in order of code point."""
    keys = _keys(name)
    script = _main_script(_letter(typed[0]) for typed in keys.values())
    plain, shifted = (
        {
            place: letter
            for place, typed in keys.items()
            if _script(letter := _letter(*typed[level : level + 1])) == script
        }
        for level in (0, 1)
    )
    own = {place: letter for place, letter in shifted.items() if letter not in plain.values()}
    pairs = _beside(plain) | _beside(own)
    if script == "KATAKANA":
        pairs |= {(_hiragana(one), _hiragana(other)) for one, other in pairs}
    return {
        letter: "".join(sorted(other for one, other in pairs if one == letter))
        for letter in sorted({one for one, _ in pairs})
    }


def _beside(level: dict[tuple[int, int], str]) -> set[tuple[str, str]]:
    """Returns the pairs of letters on keys side by side, or at most one column apart in neighbouring rows."""
    return {
        (one, other)
        for (row, column), one in level.items()
        for (row_2, column_2), other in level.items()
        if abs(row - row_2) <= 1 and abs(column - column_2) <= 1 and one != other and _signs(one) == _signs(other)
    }


def _letter(char: str = "") -> str:
    """Returns a letter in lower case; "" for what is none: marks, signs, ordinals, ligatures, what NFC takes apart."""
    lower = char.lower()
    if len(lower) != 1 or unicodedata.category(lower) not in ("Ll", "Lo"):
        return ""
    return lower if unicodedata.normalize("NFKC", lower) == lower and "LETTER" in unicodedata.name(lower) else ""


def _hiragana(katakana: str) -> str:
    return chr(ord(katakana) - ord("ア") + ord("あ"))


def _script(letter: str) -> str:
    return unicodedata.name(letter).partition(" ")[0] if letter else ""


def _main_script(letters: Iterable[str]) -> str:
    scripts = [_script(letter) for letter in letters if letter]
    return max(sorted(set(scripts)), key=scripts.count)


def _signs(letter: str) -> bool:
    """Whether vowel signs may follow a letter; true in scripts that have none."""
    name = unicodedata.name(letter)
    if name == "MYANMAR LETTER A" or not name.startswith(_SIGNS):
        return True
    return _TAKES_NO_SIGN.search(name) is None


@functools.cache
def _characters() -> dict[str, str]:
    """Returns what the names and numbers of key symbols type."""
    found = {}
    for line in KEYSYMS.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"#define XK_(\w+)\s+0x([0-9a-f]+)\s+/\*[ (]U\+([0-9A-F]{4,6})", line):
            found[match[1]] = found[f"{int(match[2], 16):#x}"] = chr(int(match[3], 16))
    return found


def _typed(symbol: str) -> str:
    """Returns the character of a key symbol; "" for none."""
    if match := re.fullmatch(r"U([0-9A-Fa-f]{3,6})", symbol):
        return chr(int(match[1], 16))
    if symbol.lower().startswith("0x"):
        code = int(symbol, 16)
        return chr(code - 0x1000000) if code >= 0x1000000 else _characters().get(f"{code:#x}", "")
    return _characters().get(symbol, "")


def _keys(layout: str) -> Keys:
    """Returns the keys of a layout."""
    found: Keys = {}
    for name, symbols in _symbols(layout).items():
        place = _NAMED.get(name) or (_ROWS[name[:2]], int(name[2:])) if name[:2] in _ROWS or name in _NAMED else None
        if place:
            found[place] = [_typed(symbol) for symbol in symbols]
    return found


def _symbols(layout: str) -> dict[str, list[str]]:
    """Returns key symbols of both levels by key, of a layout ("in": the default of its file) and what it includes."""
    file, _, variant = layout.rstrip(")").partition("(")
    text = re.sub(r"//.*|#.*", "", (XKB / file).read_text(encoding="utf-8"))
    sections = {(match[2] if variant else "default" in match[1]): match.end() for match in _SECTION.finditer(text)}
    start = sections[variant or True]
    body = text[start : text.index("\n};", start)]
    keys: dict[str, list[str]] = {}
    for mode, included, key, inside in _STATEMENT.findall(body):
        new = _symbols(included) if included else {key: _levels(inside)}
        for name, symbols in new.items():
            old = keys.get(name, [])
            keys[name] = _merged(old, symbols) if mode != "augment" else old or symbols
    return keys


def _merged(old: list[str], new: list[str]) -> list[str]:
    """Returns the symbols of a key that is stated again; "any" and "NoSymbol" leave a level as it was."""
    kept = [old[i] if symbol in ("any", "NoSymbol") and i < len(old) else symbol for i, symbol in enumerate(new)]
    return kept + old[len(kept) :]


def _levels(inside: str) -> list[str]:
    lists = [match[1] for match in re.finditer(r"\[([^\[\]]*)\]", inside) if "group" not in match[1].lower()]
    return [symbol.strip() for symbol in lists[0].split(",")][:2] if lists else []


def main() -> None:
    """Writes the file: a line for each layout."""
    parts = {"nlpaug": json.loads(KEYBOARDS.read_text(encoding="utf-8"))["nlpaug"], "xkeyboard-config": content()}
    KEYBOARDS.write_text(_text(parts, depth=3) + "\n", encoding="utf-8")


def _text(value: object, depth: int) -> str:
    """Returns JSON with a line for every entry of the outermost `depth` objects."""
    if depth and isinstance(value, dict):
        entries = (f"{json.dumps(key, ensure_ascii=False)}: {_text(part, depth - 1)}" for key, part in value.items())
        return "{\n" + ",\n".join(entries) + "\n}"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
