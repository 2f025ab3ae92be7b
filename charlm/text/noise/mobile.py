"""Noise of phone keyboards: the space bar hit or missed, letters typed twice, capitals that nobody typed.

Open it to change what such a slip is. Additional, missing and bounced keys are among the errors that Yesilada et al.
(2010, "Small-device users situationally impaired by input") count on small devices; the capital is that of the
auto-capitalisation of phones.
"""

from __future__ import annotations

import numpy as np

from charlm.text.noise.characters import Characters, other_case
from charlm.text.noise.edits import Edit
from charlm.text.noise.operations import Hit, How, between_spaces

# The letters above the space bar of the phone layouts QWERTY, QWERTZ and AZERTY.
ABOVE_SPACE = "cvbnm"


def mobile(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Makes one of four slips in a word, with equal chances for those that the word allows.

    The space bar is missed behind the word, or hit instead of a letter above it; a character is typed twice; the
    keyboard capitalises the first letter.
    """
    edits = []
    for word in between_spaces(characters, how, rng, draws=2):
        slips = [slip for slip in (_missed(word), _hit(characters, word), _twice(characters, word)) if slip]
        if capital := _capital(characters, word):
            slips.append(capital)
        edits += slips[int(word.draws[0] * len(slips))]
    return edits


def _missed(word: Hit) -> list[Edit]:
    return [] if word.join is None else [word.join]


def _hit(characters: Characters, word: Hit) -> list[Edit]:
    """Returns edits that put a space in the place of a letter inside; two, so that the word counts as cut there."""
    codes = characters.codes_U[word.first + 1 : word.end - 1].tolist()
    places = [n for n, code in enumerate(codes, word.first + 1) if chr(code).lower() in ABOVE_SPACE]
    if not places:
        return []
    place = places[int(word.draws[1] * len(places))]
    start, end = int(characters.starts[place]), int(characters.starts[place + 1])
    return [Edit(start, end, ""), Edit(end, end, " ")]


def _twice(characters: Characters, word: Hit) -> list[Edit]:
    place = word.first + int(word.draws[1] * word.length)
    start, end = int(characters.starts[place]), int(characters.starts[place + 1])
    return [Edit(end, end, characters.text[start:end])]


def _capital(characters: Characters, word: Hit) -> list[Edit]:
    start = int(characters.starts[word.first])
    letter = characters.text[start]
    capital = other_case(letter)
    return [Edit(start, start + 1, capital)] if letter.islower() and capital != letter else []
