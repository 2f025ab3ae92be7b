"""Noise of scanned text: the confusions of characters that programs for optical character recognition know of.

Open it to add a confusion, or to change how often words are joined or split.

The confusions come from two published tables, of which the letters without accents and the digits were taken: the
ambiguities that Tesseract's English data list (eng.unicharambigs of tesseract-ocr/langdata at commit 05ec588fc0,
Apache-2.0), each as what is printed and what may be read for it; and nlpaug's table (nlpaug/res/char/ocr/en.json at
commit 11a217e7e1, MIT, Copyright (c) 2019 Edward Ma), which counts in both directions. That l and I look alike, too, is
from Unicode's confusables (UTS 39).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from charlm.text.noise.characters import Characters
from charlm.text.noise.edits import Edit
from charlm.text.noise.operations import Hit, How, between_spaces

# What is printed, and the readings of it that Tesseract takes for possible.
_TESSERACT = """
    rn: m, m: rn in ni iii xn, in: m ux ur, cl: d, d: cl, rm: nn, nn: rm, ri: n, n: ri ii rr, h: li lr lx, u: ii, H: ll,
    w: vv, W: VV, f: t, t: f r, o: a 0, a: o u, c: e, e: c, fi: E, ki: ld, tl: d, th: di, im: un, tr: d n, ti: u d,
    ij: n g
"""
# Characters that nlpaug's table takes for alike.
_NLPAUG = "0: 8 9 o O D, 1: 4 7 l I, 2: z Z, 5: 8, 6: b, 8: s S, 9: g q, o: u, r: k, C: G, O: D U, E: B"
_UNICODE = "l: I"
# How often a hit word is joined with the next one or split, where both this and a confusion are possible. The share
# depends on the print and on the program; this one is charlm's choice.
BOUNDARY = 0.2


def ocr(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Misreads one or two characters of a word, joins it with the next one, or splits it."""
    edits = []
    for word in between_spaces(characters, how, rng, draws=3):
        misread = None if word.draws[0] < BOUNDARY else _misread(characters, word)
        edit = misread or _boundary(characters, word) or _misread(characters, word)
        if edit is not None:
            edits.append(edit)
    return edits


def _misread(characters: Characters, word: Hit) -> Edit | None:
    """Returns one of the confusions in a word, all places and readings alike; None if there are none."""
    start, end = int(characters.starts[word.first]), int(characters.starts[word.end])
    if end - start != word.length:
        return None  # marks stay with their letters, which the table does not have
    pattern, table = _confusions()
    matches = [(match.start(1), match[1]) for match in pattern.finditer(characters.text, start, end)]
    found = [(place, printed, reading) for place, printed in matches for reading in table[printed]]
    # The pattern finds the longest that begins at a place; its first character may be misread alone, too.
    found += [
        (place, printed[0], reading)
        for place, printed in matches
        if len(printed) > 1
        for reading in table.get(printed[0], ())
    ]
    if not found:
        return None
    place, printed, reading = found[int(word.draws[1] * len(found))]
    return Edit(place, place + len(printed), reading)


def _boundary(characters: Characters, word: Hit) -> Edit | None:
    """Returns the edit that joins the word with the next one or splits it; None if neither is possible."""
    if word.join is not None and (word.length < 2 or word.draws[1] < 0.5):
        return word.join
    return word.cut(characters, word.draws[2]) if word.length > 1 else None


@functools.cache
def _confusions() -> tuple[re.Pattern[str], Mapping[str, tuple[str, ...]]]:
    """Returns a pattern that finds what may be misread, also where two overlap, and the readings of each."""
    found: dict[str, dict[str, None]] = {}
    for table, both in ((_TESSERACT, False), (_NLPAUG, True), (_UNICODE, True)):
        for entry in table.split(","):
            printed, readings = (part.strip() for part in entry.split(":"))
            for reading in readings.split():
                found.setdefault(printed, {})[reading] = None
                if both:
                    found.setdefault(reading, {})[printed] = None
    longest_first = sorted(found, key=lambda printed: (-len(printed), printed))
    pattern = re.compile(f"(?=({'|'.join(longest_first)}))")
    return pattern, MappingProxyType({printed: tuple(readings) for printed, readings in found.items()})
