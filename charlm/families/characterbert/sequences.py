"""Makes CharacterBERT's pre-training sequences: whole words, all spelled in characters, some masked (section 3).

Open it to change which words are masked. Only words that the prediction head knows are chosen for prediction, as in the
released code. They are `rate` of all words, if there are enough known ones. By default 80 % of the chosen words become
[MASK], 10 % a random known word, and 10 % stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.data.masking import Hiding
from charlm.data.streams import generator
from charlm.families.characterbert.characters import CLS_WORD, MASK_WORD, SEP_WORD, normalized, spell_rows
from charlm.families.characterbert.vocab import WordVocab
from charlm.families.spelled.sequences import PieceMaker


class WholeWordSequence(NamedTuple):
    """A sequence of T words, including the special words [CLS] and [SEP].

    Attributes:
      rows_TC: uint16, the characters that the model reads.
      labels_T: int32, the ids of the words to predict, -1 elsewhere.
      pieces: the original words, without special ones.
      number: the numbers that seeded the random choices.
    """

    rows_TC: np.ndarray
    labels_T: np.ndarray
    pieces: list[str]
    number: tuple[int, ...]

    @property
    def ids_T(self) -> np.ndarray:
        """int32 zeros in place of rows of a subword table, which is not read."""
        return np.zeros_like(self.labels_T)


@dataclasses.dataclass(frozen=True)
class WholeWords:
    """Keeps words whole and normalises them; see `charlm.families.spelled.sequences.Cutter`."""

    lowercase: bool

    def of(self, words: Sequence[str], spaces: Sequence[bool]) -> list[tuple[str, ...]]:
        """Returns each word as one piece, in its normal form."""
        return [(normalized(word, self.lowercase),) for word in words]


def hiding_of(vocab: WordVocab, rate: float, mask_share: float, random_share: float) -> Hiding:
    """Returns how words of a vocabulary are masked; the id after the last word stands for [MASK]."""
    return Hiding(rate, mask_share, random_share, vocab.size, np.arange(vocab.size, dtype=np.int32))


@dataclasses.dataclass(frozen=True)
class WordMaker(PieceMaker[str, WholeWordSequence]):
    """Makes sequences from given words.

    Attributes:
      slots: character slots of a word.
    """

    vocab: WordVocab
    hiding: Hiding
    slots: int
    pad: int = 0

    @property
    def most(self) -> int:
        """The most words of a sequence that are to be predicted."""
        return self.hiding.most(self.room)

    def sequence(self, pieces: list[str], number: tuple[int, ...]) -> WholeWordSequence:
        """Returns the sequence of some words, with [CLS] and [SEP] around them; `number` seeds the masking."""
        known = [self.vocab.id(word) for word in pieces]
        ids_W = np.array([-1 if index is None else index for index in known], np.int32)
        (candidates,) = np.nonzero(ids_W >= 0)
        read_W, labels_W = self.hiding.hide(ids_W, candidates, generator(self.seed, *number), of=len(pieces))
        words = list(pieces)
        for place in np.flatnonzero(read_W != ids_W).tolist():
            index = int(read_W[place])
            words[place] = MASK_WORD if index == self.hiding.mask_id else self.vocab.words[index]
        rows_TC = spell_rows([CLS_WORD, *words, SEP_WORD], self.slots)
        return WholeWordSequence(rows_TC, np.pad(labels_W, 1, constant_values=-1), pieces, number)
