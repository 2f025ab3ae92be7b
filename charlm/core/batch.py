"""Batches of text: the arrays that pass from the data layer to the models. First, tables of distinct words.

A word's intra-word vector depends on its characters alone, so a batch holds every distinct word once and a map from
positions to words. Axes: S table shards, B sequences of a shard, W words of a sequence, U and P distinct words,
C character slots (slot 0 is [WORD_CLS]), M masked words. Plain NamedTuples, so that they are JAX pytrees without JAX
being imported here. `CharBertBatch` is the exception: its characters are one stream with subwords marked in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any  # numpy.ndarray on the host, jax.Array on the device


class MaskedWords(NamedTuple):
    """The masked words of one length bucket.

    Attributes:
      chars_SPC: uint16 or int32, the distinct words met at masked positions (all their slots are read); 0 pads.
      position_SM: int32, position of each masked word in the shard's flattened [B * W] words; 0 where there is none.
      row_SM: int32, row of `chars_SPC` that the model reads at that position; 0 where there is none.
      labels_SMC: the original character ids; 0 where nothing is to be predicted (slot 0, padding).
    """

    chars_SPC: Array
    position_SM: Array
    row_SM: Array
    labels_SMC: Array


class WordBatch(NamedTuple):
    """A batch as tables of distinct words, one table per length bucket.

    Attributes:
      chars: per bucket [S, U, C], distinct words of which only the word vector is read; 0 pads.
      masked: per bucket, the distinct words at masked positions, and what is to be predicted there.
      index_SBW: int32, row of each position's word in the word vectors of all tables laid end to end, first those of
        `masked`, then those of `chars`, bucket by bucket; 0 at padding positions.
      mask_SBW: bool, True where there is a word.
    """

    chars: tuple[Array, ...]
    masked: tuple[MaskedWords, ...]
    index_SBW: Array
    mask_SBW: Array


def reshape_batch(chars_BWC: np.ndarray, labels_BWC: np.ndarray | None = None) -> WordBatch:
    """Returns the paper's plain reshape: one table with a row per position (appendix A.3, Algorithm 1).

    Args:
      chars_BWC: character ids, 0 pads; slot 0 is non-zero where there is a word.
      labels_BWC: ids to predict, 0 elsewhere; None: nothing is masked and only word vectors are read.
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


class CharBertBatch(NamedTuple):
    """Subwords and the characters under them (CharBERT, section 3.3); `charlm.families.charbert.char_inputs` makes the
    last three.

    Axes: B sequences, L subwords, N slots of characters.

    Attributes:
      ids_BL: int32, subword ids; the vocabulary's own padding id where there is none.
      types_BL: int32, segments; None: all 0.
      mask_BL: bool, True where there is a subword; None: everywhere.
      chars_BN: int32, character ids; 0 between subwords, at subwords without characters, and after the last.
      starts_BL: int32, the slot of each subword's first character; any slot, such as 0, at padding.
      ends_BL: int32, the slot of its last character.
    """

    ids_BL: Array
    types_BL: Array | None
    mask_BL: Array | None
    chars_BN: Array
    starts_BL: Array
    ends_BL: Array


class SpelledBatch(NamedTuple):
    """Words and subwords for a BERT whose input vectors Char2Subword makes from characters (its section 3.3).

    Axes: S table shards, B sequences of a shard, L positions, U distinct spellings, C character slots.

    Attributes:
      chars: per length bucket uint16 [S, U, C], distinct spellings as `charlm.families.char2subword.spelling` has
      them; 0 pads.
      index_SBL: int32, row of each position's spelling in the tables laid end to end; 0 where nothing is spelled.
      ids_SBL: int32, row of the table of subwords that stands at a position; -1 where a spelling does.
      types_SBL: int32, segments.
      mask_SBL: bool, True where there is a word or subword.
    """

    chars: tuple[Array, ...]
    index_SBL: Array
    ids_SBL: Array
    types_SBL: Array
    mask_SBL: Array


class CharacterMaskedBatch(NamedTuple):
    """A batch for learning subwords whose characters are hidden (Char2Subword, section 3.2).

    Attributes:
      inputs: the sequences, with every subword spelled that has a spelling.
      position_SM: int32 in [0, B * L), the subwords to predict, counted from the shard's first; 0 where there is none.
      labels_SM: int32, their ids; -1 where there is none.
    """

    inputs: SpelledBatch
    position_SM: Array
    labels_SM: Array


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


class ImitationBatch(NamedTuple):
    """Entries of a vocabulary whose rows Char2Subword learns to make from their characters (its section 3.1).

    Every attribute has an array for each length bucket; the axes are S shards, U spellings, K neighbours.

    Attributes:
      chars: uint16 [S, U, C], spellings; 0 pads.
      ids: int32 [S, U], rows of the table; -1 where there is none.
      near: int32 [S, U, K], the rows nearest to each, nearest first.
      unseen: bool [S, U], entries that are never trained on.
    """

    chars: tuple[Array, ...]
    ids: tuple[Array, ...]
    near: tuple[Array, ...]
    unseen: tuple[Array, ...]


class NoisyBatch(NamedTuple):
    """A batch for pre-training on masked subwords and on noised words (CharBERT, section 3.5).

    The B sequences are S groups of B / S in their order, and positions count from the first subword of a group, so
    that a budget of labelled positions is for a group, and the softmax over a vocabulary runs on no others. S = B has
    positions of its own for every sequence; S = 1 one list for all.

    Attributes:
      inputs: the sequences, masked and noised.
      mlm_position_SM: int32 in [0, B / S * L), the masked subwords; 0 where there is none.
      mlm_labels_SM: int32, the original subword ids; -1 where there is none.
      nlm_position_SP: int32, the subwords of noised words; 0 where there is none.
      nlm_labels_SP: int32, the original words in the vocabulary of words; -1 where there is none.
    """

    inputs: CharBertBatch
    mlm_position_SM: Array
    mlm_labels_SM: Array
    nlm_position_SP: Array
    nlm_labels_SP: Array
