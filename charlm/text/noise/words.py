"""Noise that makes one change in a word, and the list of all single changes that an adversarial search tries.

Open it to change or write an operation for words, and add a new one to `kinds`.
"""

from __future__ import annotations

import bisect
import itertools
import string
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from charlm.text.noise.characters import Characters, is_letter, is_mark, other_case
from charlm.text.noise.edits import Edit
from charlm.text.noise.keyboards import AUTO, Keyboard, keyboard_for
from charlm.text.noise.misspellings import Misspellings
from charlm.text.noise.operations import How

# A change (first, end, text) replaces the characters [first, end) of a word by a text; None: no change is possible.
Change = tuple[int, int, str] | None
# Makes a change from the characters of a word, three draws from [0, 1) (operation, place, letter), and a keyboard.
Changer = Callable[[Sequence[str], Sequence[float], Keyboard], Change]

T = TypeVar("T")

PUNCTUATION = "-.'_"  # marks that occur inside words (Char2Subword, table 1, names dashes and periods)
# Chances of drop, add, swap and keyboard (CharBERT, section 4.5: one of the four at random). In the published sets they
# changed 25.0, 24.4, 22.8 and 21.1 % of the words of four characters or more. The other 6.7 % are swaps of equal
# letters and mistyped digits, which are drawn as often and change nothing. On text with fewer digits than CoNLL-2003's,
# of which those sets were made, quarters change more: 98.3 % of WNUT17's words, 99.1 % of NCBI-disease's.
ATTACK_MIX = (0.25, 0.25, 0.25, 0.25)
_ATTACK_STEPS = tuple(itertools.accumulate(ATTACK_MIX[:-1]))
# The characters that the released CharBERT code inserts: the beginning of its vocabulary. The space and all characters
# beyond ASCII are left out here.
NLM_INSERTED = "etainorshldcumfpgwyb,v.?WkAST10CIMBPx2H-'\"9EDNRFG)(zLU8O5j3Jq476KV;Y:%Q/][ZX$"


def per_word(changer: Changer) -> Callable[[Characters, How, np.random.Generator], list[Edit]]:
    """Returns an operation that changes words of at least `how.min_length` characters with probability `how.rate`.

    The operation has the module and name of `changer`, by which `charlm.register` knows whose it is.
    """

    def operation(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
        words, draws = _drawn(characters, how, rng)
        edits = []
        for (first, end), drawn in zip(words, draws, strict=True):
            change = changer(characters.pieces(first, end), drawn, how.keyboard)
            if change is not None:
                start, stop = (int(characters.starts[first + place]) for place in change[:2])
                edits.append(Edit(start, stop, change[2]))
        return [edit for edit in edits if characters.text[edit.start : edit.end] != edit.text]

    for name in ("__module__", "__name__", "__qualname__"):
        if hasattr(changer, name):
            setattr(operation, name, getattr(changer, name))
    return operation


def misspelling(characters: Characters, how: How, rng: np.random.Generator) -> list[Edit]:
    """Replaces words by listed misspellings; ones that contain a space are used only if the caller gave no words."""
    assert how.misspellings is not None  # Noiser checks this
    return by_list(characters, how, rng, how.misspellings)


def by_list(characters: Characters, how: How, rng: np.random.Generator, forms_of: Misspellings) -> list[Edit]:
    """Replaces words by other forms that a list has for them."""
    edits = []
    for (first, end), drawn in zip(*_drawn(characters, how, rng), strict=True):
        start, stop = int(characters.starts[first]), int(characters.starts[end])
        word = characters.text[start:stop]
        forms = forms_of.of(word, spaces=characters.given_2W is None)
        if forms:
            edits.append(_difference(start, word, forms[int(drawn[2] * len(forms))]))
    return edits


def toggle(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Puts a character into the other case."""
    cased = [place for place, char in enumerate(chars) if other_case(char[0]) != char[0]]
    place = pick(cased, draws[1])
    return None if place is None else (place, place + 1, other_case(chars[place][0]) + chars[place][1:])


def punctuation(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Inserts a mark between two characters."""
    return _insert(range(1, len(chars)), draws[1], pick(PUNCTUATION, draws[2]))


def charbert(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Drops, adds, swaps or mistypes a character inside the word (CharBERT, section 4.5), in shares of `ATTACK_MIX`.

    As in the published attack sets, an added letter is in either case and a mistyped one in lower case, and a change
    without effect (equal letters swapped, a digit mistyped) is not drawn again.
    """
    inner = range(1, len(chars) - 1)
    operation = bisect.bisect_right(_ATTACK_STEPS, draws[0])
    if operation == 0:
        return _drop(inner, draws[1])
    if operation == 1:
        return _insert(range(1, len(chars)), draws[1], pick(_letters(chars, string.ascii_letters, keyboard), draws[2]))
    if operation == 2:
        return _swap(chars, inner[:-1], draws[1])
    place = pick(inner, draws[1])
    if place is None:
        return None
    base = chars[place][0]
    letter = pick(keyboard.near(base.lower()) or keyboard.near(base), draws[2])
    return None if letter is None else (place, place + 1, letter + chars[place][1:])


def charbert_nlm(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Drops a character or swaps two; inserts a character if the word has fewer than four (released code of CharBERT).

    As in the released code, any character may be dropped, a swap never moves the first character, and an inserted
    character may come first but not last.
    """
    if len(chars) < 4:
        return _insert(range(len(chars)), draws[1], pick(_letters(chars, NLM_INSERTED, keyboard), draws[2]))
    if draws[0] < 0.5:
        return _drop(range(len(chars)), draws[1])
    return _swap(chars, range(1, len(chars) - 1), draws[1])


def charbert_inner(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Drops, adds or swaps characters inside the word (CharBERT, section 3.5), with equal chances where possible.

    The first and the last character stay. Only different characters are swapped, so every word of two characters or
    more changes.
    """
    pairs = [place for place in range(1, len(chars) - 2) if chars[place] != chars[place + 1]]
    possible = [
        _drop(range(1, len(chars) - 1), draws[1]),
        _insert(range(1, len(chars)), draws[1], pick(_letters(chars, string.ascii_letters, keyboard), draws[2])),
        _swap(chars, pairs, draws[1]),
    ]
    return pick([change for change in possible if change is not None], draws[0])


def mistype(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Replaces a letter by one beside it on the keyboard."""
    typed = [place for place, char in enumerate(chars) if keyboard.near(char[0])]
    place = pick(typed, draws[1])
    letter = None if place is None else pick(keyboard.near(chars[place][0]), draws[2])
    return None if place is None or letter is None else (place, place + 1, letter + chars[place][1:])


def repeat(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Doubles a character."""
    place = pick(range(len(chars)), draws[1])
    return None if place is None else (place, place + 1, chars[place] * 2)


def swap(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Exchanges a character with the next one, which may be equal; a leading mark without a letter is not moved."""
    return _swap(chars, range(int(is_mark(chars[0])), len(chars) - 1), draws[1])


def drop(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Deletes a character."""
    return _drop(range(len(chars)), draws[1])


# The six operations of Char2Subword, table 1.
CHAR2SUBWORD: Mapping[str, Changer] = MappingProxyType(
    {
        "mistype": mistype,
        "repeat": repeat,
        "swap": swap,
        "drop": drop,
        "toggle": toggle,
        "punctuation": punctuation,
    }
)


def char2subword(chars: Sequence[str], draws: Sequence[float], keyboard: Keyboard) -> Change:
    """Applies one operation of `CHAR2SUBWORD` (Char2Subword, table 1), with equal chances for those the word allows.

    A swap of equal letters counts as possible, although it changes nothing.
    """
    possible = [change(chars, draws, keyboard) for change in CHAR2SUBWORD.values()]
    return pick([change for change in possible if change is not None], draws[0])


def one_edit(word: str, operation: str, rng: np.random.Generator, language: str = AUTO) -> str:
    """Returns a word after one of the operations of `CHAR2SUBWORD`; unchanged if the operation does not apply to it.

    Raises:
      KeyError: the operation does not exist.
      ValueError: the language has no keyboard.
    """
    keyboard = keyboard_for(language)
    if not word:
        return word
    characters = Characters.of(word)
    change = CHAR2SUBWORD[operation](characters.pieces(0, len(characters.codes_U)), rng.random(3).tolist(), keyboard)
    if change is None:
        return word
    start, end = (int(characters.starts[place]) for place in change[:2])
    return word[:start] + change[2] + word[end:]


def single_edits(word: str, language: str = AUTO) -> list[str]:
    """Returns every word that one change can make of `word`; the adversarial search tries these on a model.

    The changes are, in this order: drop a character, swap it with the next, replace it by a keyboard neighbour, and
    insert a keyboard neighbour of the character before or after the place. The first and the last character stay.
    Within each kind the words are ordered from left to right; each is returned once, and `word` itself is left out.

    Raises:
      ValueError: the language has no keyboard.
    """
    keyboard = keyboard_for(language)
    characters = Characters.of(word)
    chars = list(characters.pieces(0, len(characters.codes_U)))
    inner = range(1, len(chars) - 1)
    changes = [(place, place + 1, "") for place in inner]
    changes += [(place, place + 2, chars[place + 1] + chars[place]) for place in inner[:-1]]
    changes += [
        (place, place + 1, letter + chars[place][1:]) for place in inner for letter in keyboard.near(chars[place][0])
    ]
    changes += [
        (place, place, letter)
        for place in range(1, len(chars))
        for char in chars[place - 1 : place + 1]
        for letter in keyboard.near(char[0])
    ]
    results = ("".join([*chars[:first], text, *chars[end:]]) for first, end, text in changes)
    return [result for result in dict.fromkeys(results) if result != word]


def _drawn(
    characters: Characters, how: How, rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[tuple[float, float, float]]]:
    """Chooses each word that is long enough with probability `how.rate`.

    Returns:
      for each chosen word, its first character and one past its last, and three further draws from [0, 1).
    """
    lengths_W = np.diff(characters.words_2W, axis=0)[0]
    draws_W4 = rng.random((len(lengths_W), 4))
    hit = np.flatnonzero((draws_W4[:, 0] < how.rate) & (lengths_W >= how.min_length))
    return characters.words_2W[:, hit].T.tolist(), draws_W4[hit, 1:].tolist()


def pick(choices: Sequence[T], share: float) -> T | None:
    """Returns the choice at the fraction `share` of the sequence; None if the sequence is empty."""
    return choices[int(share * len(choices))] if len(choices) else None


def _letters(chars: Sequence[str], latin: str, keyboard: Keyboard) -> str:
    """Returns the letters that may be added to a word.

    These are `latin` if the word has an ASCII letter, else those of its keyboard, else the letters of the word itself.
    """
    bases = [char[0] for char in chars if is_letter(char[0])]
    if any(base.isascii() for base in bases):
        return latin
    alphabets = (keyboard.alphabets[base] for base in bases if base in keyboard.alphabets)
    return next(alphabets, "".join(bases))


def _drop(places: Sequence[int], share: float) -> Change:
    place = pick(places, share)
    return None if place is None else (place, place + 1, "")


def _insert(places: Sequence[int], share: float, text: str | None) -> Change:
    place = pick(places, share)
    return None if place is None or text is None else (place, place, text)


def _swap(chars: Sequence[str], places: Sequence[int], share: float) -> Change:
    place = pick(places, share)
    return None if place is None else (place, place + 2, chars[place + 1] + chars[place])


def _difference(start: int, word: str, form: str) -> Edit:
    """Returns the smallest edit that turns `word`, which begins at offset `start`, into `form`."""
    before = _common(word, form)
    after = _common(word[before:][::-1], form[before:][::-1])
    return Edit(start + before, start + len(word) - after, form[before : len(form) - after])


def _common(one: str, other: str) -> int:
    """Returns the length of the common prefix of two texts."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
