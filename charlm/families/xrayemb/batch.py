"""The batch of XRayEmb's second pre-training: sequences with joined words, words to write, and words to learn.

Read it before `batches`, which makes these arrays, and `loss`, which uses them.
"""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.types import Array
from charlm.families.spelled.batch import SpelledBatch


class WrittenWords(NamedTuple):
    """Words of one length bucket that the generator learns to write, each from the state of a position.

    Attributes:
      position_SG: int32 in [0, B * L), the positions, counted from the shard's first; 0 at padding.
      chars_SGC: uint16, the words as `charlm.families.xrayemb.chars` encodes them; zeros at padding.
    """

    position_SG: Array
    chars_SGC: Array


class LearnedWords(NamedTuple):
    """Words whose encoder vectors are to match the rows of their subwords (XRayEmb, section 2.1).

    Attributes:
      row_SW: int32, the words' rows in the concatenated tables of `XRayBatch.inputs`; 0 at padding.
      pieces_SWP: int32, ids of the words' subwords; -1 pads.
    """

    row_SW: Array
    pieces_SWP: Array


class XRayBatch(NamedTuple):
    """A batch for XRayEmb's second pre-training (Pinter et al., 2021, section 2).

    Attributes:
      inputs: the sequences; every spelled word is one position, and some subwords are hidden. The tables also hold the
        words of `learned`.
      position_SM: int32 in [0, B * L), the positions at which to predict a subword; 0 at padding.
      labels_SM: int32, the ids of these subwords; -1 at padding.
      learned: words for the embedding loss.
      written: per length bucket, words for the generation loss.
      cycle: per length bucket, words for the cycle through encoder and generator, uint16 [S, K, C]; the last bucket
        fits the longest word. Rows of zeros are padding; in steps without cycles all rows are zeros.
      points_SK: bool, True for each point of the unit sphere that passes through generator and encoder; there are as
        many points as words were drawn.
    """

    inputs: SpelledBatch
    position_SM: Array
    labels_SM: Array
    learned: LearnedWords
    written: tuple[WrittenWords, ...]
    cycle: tuple[Array, ...]
    points_SK: Array
