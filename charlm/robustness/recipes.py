"""The published attacks of the report, with the edits and budgets that TextAttack's recipes give them.

The attacks are DeepWordBug (Gao et al., 2018), TextBugger (Li et al., 2018) and that of Pruthi et al. (2019); the
budgets are those of `DeepWordBugGao2018`, `TextBuggerLi2018` and `Pruthi2019` of TextAttack (Morris et al., 2020). Open
it to add an attack or to change what it may do to a word; `recipe_search` is the search.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from charlm.text.confusables import lookalikes
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.words import Span

Draw = np.random.Generator
# Words that no attack changes: NLTK's English stop words, which TextAttack takes, too. They are written as here: a word
# with a capital may change, in TextAttack as well.
_STOP_WORDS = """
    i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he him
    his himself she she's her hers herself it it's its itself they them their theirs themselves what which who
    whom this that that'll these those am is are was were be been being have has had having do does did doing
    a an the and but if or because as until while of at by for with about against between into through during
    before after above below to from up down in out on off over under again further then once here there when
    where why how all any both each few more most other some such no nor not only own same so than too very s
    t can will just don don't should should've now d ll m o re ve y ain aren aren't couldn couldn't didn
    didn't doesn doesn't hadn hadn't hasn hasn't haven haven't isn isn't ma mightn mightn't mustn mustn't
    needn needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won won't wouldn wouldn't
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
RECIPES_VERSION = 3  # raise it when attacks find something else, so that a report measures them anew
UNKNOWN = "[UNK]"  # stands for an unknown word where words are ranked, in TextAttack as well


class Recipe(NamedTuple):
    """An attack.

    Attributes:
      line: what it does, and its source.
      variants: returns what one edit may make of a word; draws where the attack chooses at random.
      order: whether words are tried in the order of how the loss grows if they are replaced by an unknown word
        ("unknown") or deleted ("deleted"), or all at once ("all").
      shortest: words of fewer characters stay.
      most_words: how many words may change at most; 0: any number.
      most_edits: how many characters may be inserted, deleted or replaced at most; 0: any number.
    """

    line: str
    variants: Callable[[str, Draw], list[str]]
    order: Literal["unknown", "deleted", "all"]
    shortest: int = 1
    most_words: int = 0
    most_edits: int = 0


def deepwordbug(word: str, draw: Draw) -> list[str]:
    """Returns the word after one swap, one substitution, one deletion and one insertion, each at a random place."""
    found = _swaps(word, _one(range(len(word) - 1), draw))
    found += _substitutions(word, _one(range(len(word)), draw), draw)
    return (
        found + _deletions(word, _one(range(len(word)), draw)) + _insertions(word, _one(range(len(word)), draw), draw)
    )


def textbugger(word: str, draw: Draw) -> list[str]:
    """Returns the word with a space inside, a letter deleted, two swapped, and each letter as its lookalike."""
    inner = range(1, len(word) - 1)
    found = [word[:n] + " " + word[n:] for n in _one(inner, draw)]
    found += _deletions(word, _one(inner, draw)) + _swaps(word, _one(inner[:-1], draw))
    alike = lookalikes()
    return found + [word[:n] + alike[char][0] + word[n + 1 :] for n, char in enumerate(word) if char in alike]


def pruthi(word: str, draw: Draw) -> list[str]:
    """Returns the word after every swap, deletion, insertion of a random letter, and slip to a near key inside."""
    inner = range(1, len(word) - 1)
    near = keyboard_for("en").near
    slips = [word[:n] + letter + word[n + 1 :] for n in inner for letter in near(word[n])]
    return [*_swaps(word, inner[:-1]), *_deletions(word, inner), *_insertions(word, inner, draw), *slips]


RECIPES = MappingProxyType(
    {
        "deepwordbug": Recipe(
            "swaps, substitutes, deletes, inserts; at most 30 edits of a text (DeepWordBug, Gao et al., 2018)",
            deepwordbug,
            "unknown",
            most_edits=30,
        ),
        "textbugger": Recipe(
            "space inside, deletes, swaps, lookalikes (TextBugger, Li et al., 2018, without its word vectors)",
            textbugger,
            "deleted",
        ),
        "pruthi2019": Recipe(
            "one typo in one word of four letters or more (Pruthi et al., 2019)",
            pruthi,
            "all",
            shortest=4,
            most_words=1,
        ),
    }
)


class AttackedWords:
    """Finds the words of a text as TextAttack does: letters and digits, with apostrophes, hyphens and _*@ inside."""

    name = "attacked"

    def spans(self, text: str) -> list[Span]:
        """Returns the (start, end) character offsets of the words; what is between them stays as it is."""
        return [match.span() for match in _WORD.finditer(text)]


_WORD = re.compile(r"[^\W_](?:[\w'*@-]*[^\W_])?")


def distance(word: str, variant: str) -> int:
    """Returns the edit distance of a word and one of its variants, which differ in one place or in two neighbours."""
    return abs(len(word) - len(variant)) or sum(a != b for a, b in zip(word, variant, strict=True))


def _one(places: Sequence[int], draw: Draw) -> list[int]:
    """Returns one of the places, at random; nothing if there are none."""
    return [places[int(draw.integers(len(places)))]] if len(places) else []


def _swaps(word: str, places: Sequence[int]) -> list[str]:
    return [word[:n] + word[n + 1] + word[n] + word[n + 2 :] for n in places]


def _deletions(word: str, places: Sequence[int]) -> list[str]:
    return [word[:n] + word[n + 1 :] for n in places] if len(word) > 1 else []


def _substitutions(word: str, places: Sequence[int], draw: Draw) -> list[str]:
    return [word[:n] + _letter(draw) + word[n + 1 :] for n in places] if len(word) > 1 else []


def _insertions(word: str, places: Sequence[int], draw: Draw) -> list[str]:
    return [word[:n] + _letter(draw) + word[n:] for n in places] if len(word) > 1 else []


def _letter(draw: Draw) -> str:
    return string.ascii_letters[int(draw.integers(len(string.ascii_letters)))]
