"""The arrays that XRayEmb learns from."""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.batch import Array
from charlm.families.spelled.batch import SpelledBatch


class WrittenWords(NamedTuple):
    """Words of one length bucket that XRayEmb's generator is to write, each from the state of a position.

    Attributes:
      position_SG: int32 in [0, B * L), counted from the shard's first; 0 where there is none.
      chars_SGC: uint16, the words as `charlm.families.xrayemb.chars` has them; a row of zeros where there is none.
    """

    position_SG: Array
    chars_SGC: Array


class LearnedWords(NamedTuple):
    """Words whose vectors are to be those of their subwords (XRayEmb, section 2.1).

    Attributes:
      row_SW: int32, rows of the tables of `XRayBatch.inputs` laid end to end; 0 where there is none.
      pieces_SWP: int32, ids of their subwords; -1 behind the last, so all of them where there is none.
    """

    row_SW: Array
    pieces_SWP: Array


class XRayBatch(NamedTuple):
    """A batch for XRayEmb's second pre-training (Pinter et al., 2021, section 2).

    Attributes:
      inputs: the sequences, words that are spelled one position each, some subwords hidden; the tables hold the words
        that are learned, too.
      position_SM: int32 in [0, B * L), where a subword is to be predicted; 0 where there is none.
      labels_SM: int32, its id; -1 where there is none.
      learned: words for the embedding loss.
      written: per length bucket, words for the generation loss.
      cycle: per length bucket, words that pass through encoder and generator, uint16 [S, K, C]; the last bucket's C is
        that of the longest word. A row of zeros is no word, and in steps without cycles there are no others.
      points_SK: bool, where a point of the unit sphere passes through generator and encoder: one for each word drawn.
    """

    inputs: SpelledBatch
    position_SM: Array
    labels_SM: Array
    learned: LearnedWords
    written: tuple[WrittenWords, ...]
    cycle: tuple[Array, ...]
    points_SK: Array
