"""The batch of a model that reads words by their characters: arrays from the data layer, as tables of distinct words.

Read it before the model or the packing, since both rely on it. A word's intra-word vector depends only on its
characters, so a batch stores every distinct word once, with a map from positions to words. Axes: S table shards, B
sequences of a shard, W words of a sequence, U and P distinct words, C character slots (slot 0 is [WORD_CLS]), M masked
words. The classes are plain NamedTuples: JAX treats them as pytrees, and this module need not import JAX.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from charlm.core.types import Array


class MaskedWords(NamedTuple):
    """The masked words of one length bucket.

    Attributes:
      chars_SPC: uint16 or int32, the distinct words at masked positions (the model reads all their slots); 0 pads.
      position_SM: int32, position of each masked word in the shard's flattened [B * W] words; 0 pads.
      row_SM: int32, row of `chars_SPC` that the model reads at that position; 0 pads.
      labels_SMC: the original character ids; 0 where nothing is to be predicted (slot 0, padding).
    """

    chars_SPC: Array
    position_SM: Array
    row_SM: Array
    labels_SMC: Array


class WordBatch(NamedTuple):
    """A batch as tables of distinct words, one table per length bucket.

    Attributes:
      chars: per bucket [S, U, C], the distinct words of which only the word vector is used; 0 pads. In inference a
        bucket may hold these vectors instead, float [S, U, D].
      masked: per bucket, the distinct words at masked positions and their labels.
      index_SBW: int32, row of each position's word in the concatenated word vectors of all tables: first the tables of
        `masked`, then those of `chars`, bucket by bucket; 0 at padding positions.
      mask_SBW: bool, True where there is a word; in inference also the numbers of texts that share a row.
    """

    chars: tuple[Array, ...]
    masked: tuple[MaskedWords, ...]
    index_SBW: Array
    mask_SBW: Array


def reshape_batch(chars_BWC: np.ndarray, labels_BWC: np.ndarray | None = None) -> WordBatch:
    """Returns the paper's plain reshape: one table with a row per position (appendix A.3, Algorithm 1).

    Args:
      chars_BWC: character ids, 0 pads; slot 0 is non-zero where there is a word.
      labels_BWC: ids to predict, 0 elsewhere; None: nothing is masked and only word vectors are used.
    """
    B, W, C = chars_BWC.shape
    chars_SUC = chars_BWC.reshape(1, B * W, C)
    index_SBW = np.arange(B * W, dtype=np.int32).reshape(1, B, W)
    mask_SBW = chars_BWC[None, :, :, 0] != 0
    if labels_BWC is None:
        return WordBatch((chars_SUC,), (), index_SBW, mask_SBW)
    labels_UC = labels_BWC.reshape(B * W, C)
    (position_M,) = np.nonzero(labels_UC.any(axis=-1))
    position_SM = position_M.astype(np.int32)[None]
    masked = MaskedWords(chars_SUC, position_SM, position_SM, labels_UC[position_M][None])
    return WordBatch((), (masked,), index_SBW, mask_SBW)
