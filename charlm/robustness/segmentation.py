"""Measures how the words of a text are cut into units: over-segmentation, and text that a model cannot read.

Open it to change what counts as over-segmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.families.units import Units
from charlm.text.subwords import SubwordTokenizer


class Segmentation(NamedTuple):
    """How words are cut into units.

    Attributes:
      units_per_word: mean number of units of a word.
      split: share of words with more than one unit.
      unknown, cut: shares that the model cannot read, see `charlm.families.units.Lost`.
    """

    units_per_word: float
    split: float
    unknown: float
    cut: float


def segmentation(units: Units, sentences: Sequence[Sequence[str]]) -> Segmentation:
    """Returns how the units of a model cut the words of sentences; zeros if there are no words."""
    sentences = [words for words in sentences if words]
    if not sentences:
        return Segmentation(0.0, 0.0, 0.0, 0.0)
    encoded = units.encode_words(sentences)
    counts_W = np.concatenate(
        [np.bincount(item.given_words, minlength=len(words)) for item, words in zip(encoded, sentences, strict=True)]
    )
    return Segmentation(float(counts_W.mean()), float((counts_W > 1).mean()), *units.lost(sentences, encoded))


def pieces_of(tokenizer: SubwordTokenizer, words: Sequence[str]) -> dict[str, int]:
    """Returns the number of pieces of each distinct word; 0 if one of the pieces is the unknown token."""
    distinct = list(dict.fromkeys(words))
    found = {}
    for word, item in zip(distinct, tokenizer.encode_words_batch([[word] for word in distinct]), strict=True):
        ids = [index for index, special in zip(item.ids, item.special, strict=True) if not special]
        found[word] = 0 if tokenizer.special.unk in ids else len(ids)
    return found
