"""ELMo's characters: words as ids of their UTF-8 bytes between two marks (Peters et al., NAACL 2018, as released).

Ids are those of the released code: a byte is its value + 1, the special characters follow, padding among them. In
tables of words padding is 0, as everywhere in charlm; `charlm.families.characterbert.cnn` reads it as ELMo's.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD, MASK = range(257, 263)  # behind the bytes, 1 to 256
ROWS = 263  # of the table of characters; row 0 stands for no word in the released code, and is never read here
SLOTS = 50  # characters of a word, its two marks included; longer words are cut
EDGES = 2  # marks around the bytes

# Words that text cannot hold, since no word has a NUL: what `normalized` removes.
CLS_WORD, SEP_WORD, MASK_WORD = "\0[CLS]", "\0[SEP]", "\0[MASK]"
SPECIAL = {CLS_WORD: BEGIN_SENTENCE, SEP_WORD: END_SENTENCE, MASK_WORD: MASK}
KEPT_WORDS = 2**18  # words that are remembered at most


@functools.lru_cache(maxsize=KEPT_WORDS)
def normalized(word: str, lowercase: bool) -> str:
    """Returns a word as BERT's basic tokenizer has it: without control characters, and in an uncased model lower-cased
    and without accents. It may be empty."""
    if not word.isprintable():
        word = "".join(char for char in word if unicodedata.category(char)[0] != "C")
    if not lowercase:
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(char) != "Mn")


def spell_rows(words: Sequence[str], slots: int) -> np.ndarray:
    """Returns the characters of normalised or special words, uint16 [W, slots]; 0 pads.

    A word is `BEGIN_WORD`, its bytes, `END_WORD`; of one that is too long the first `slots - EDGES` bytes stay.
    """
    rows_WC = np.zeros((len(words), slots), np.uint16)
    for row, word in zip(rows_WC, words, strict=True):
        special = SPECIAL.get(word)
        if special is None:
            inner = np.frombuffer(word.encode("utf-8", "ignore")[: slots - EDGES], np.uint8).astype(np.uint16) + 1
        else:
            inner = np.array([special], np.uint16)
        row[0], row[1 : 1 + len(inner)], row[1 + len(inner)] = BEGIN_WORD, inner, END_WORD
    return rows_WC


def shown(chars: Sequence[int]) -> str:
    """Returns the word of a row of characters, for people; special words as "[MASK]"."""
    names = {char: word[1:] for word, char in SPECIAL.items()}
    inner = list(chars)[1:-1]
    if len(inner) == 1 and inner[0] in names:
        return names[inner[0]]
    return bytes(char - 1 for char in inner).decode("utf-8", "replace")
