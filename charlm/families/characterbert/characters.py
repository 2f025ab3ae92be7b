"""Spells words in ELMo's characters: ids of UTF-8 bytes between two marks (Peters et al., NAACL 2018, as released).

The ids are those of the released code: a byte's id is its value + 1, and the special characters follow, including
padding. In charlm's tables of words padding is 0 instead, as everywhere; `charlm.families.characterbert.cnn` replaces 0
by ELMo's padding id. Open this module when a word gets other ids than in the authors' code.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

import numpy as np

from charlm.text.words import KEPT_WORDS

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD, MASK = range(257, 263)  # after the bytes, 1 to 256
CHARACTER_ROWS = 263  # of the character table; row 0 means "no word" in the released code, and is never read here
ELMO_SLOTS = 50  # characters of a word, including its two marks; longer words are cut
MARKS = 2  # marks around the bytes

# Special words begin with a NUL, which no word of a text can have, since `normalized` removes it.
CLS_WORD, SEP_WORD, MASK_WORD = "\0[CLS]", "\0[SEP]", "\0[MASK]"
SPECIAL_WORDS = {CLS_WORD: BEGIN_SENTENCE, SEP_WORD: END_SENTENCE, MASK_WORD: MASK}


@functools.lru_cache(maxsize=KEPT_WORDS)
def normalized(word: str, lowercase: bool) -> str:
    """Returns a word as BERT's basic tokenizer normalises it; the result may be empty.

    Control characters are removed. With `lowercase` (uncased models) the word is lower-cased and loses its accents.
    """
    if not word.isprintable():
        word = "".join(char for char in word if unicodedata.category(char)[0] != "C")
    if not lowercase:
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(char) != "Mn")


def spell_rows(words: Sequence[str], slots: int) -> np.ndarray:
    """Returns the character ids of normalised or special words, uint16 [W, slots], padded with 0.

    A word is spelled as `BEGIN_WORD`, its bytes, `END_WORD`; a word that is too long keeps its first `slots - EDGES`
    bytes.
    """
    rows_WC = np.zeros((len(words), slots), np.uint16)
    for row, word in zip(rows_WC, words, strict=True):
        special = SPECIAL_WORDS.get(word)
        if special is None:
            inner = np.frombuffer(word.encode("utf-8", "ignore")[: slots - MARKS], np.uint8).astype(np.uint16) + 1
        else:
            inner = np.array([special], np.uint16)
        row[0], row[1 : 1 + len(inner)], row[1 + len(inner)] = BEGIN_WORD, inner, END_WORD
    return rows_WC


def shown(chars: Sequence[int]) -> str:
    """Returns the readable word of a row of character ids without padding; special words look like "[MASK]"."""
    names = {char: word[1:] for word, char in SPECIAL_WORDS.items()}
    inner = list(chars)[1:-1]
    if len(inner) == 1 and inner[0] in names:
        return names[inner[0]]
    return bytes(char - 1 for char in inner).decode("utf-8", "replace")
