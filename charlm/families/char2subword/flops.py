"""Counts the floating-point operations of a Char2Subword, by the rules of `charlm.core.flops`.

The objectives and the units call it for MFU; open it when the module's layers change, so that MFU stays right.
"""

from __future__ import annotations

import numpy as np

from charlm.core.flops import TRAINING, TotalLengths, layer, lengths_of, text_lengths
from charlm.families.char2subword.batch import ImitationBatch
from charlm.families.char2subword.model import GATED, Char2SubwordBertConfig
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.spelled.batch import MaskedBatch, SpelledBatch
from charlm.families.subword.flops import bert_forward


def char2subword_forward(config: Char2SubwordConfig, spellings: TotalLengths) -> float:
    """Returns the operations of a forward pass of the module over spellings."""
    D, chars = config.hidden, spellings.total
    return config.layers * layer(chars, chars, spellings.squares, D, 4 * D) + 2 * chars * D * config.output


def batch_flops(config: Char2SubwordBertConfig, inputs: SpelledBatch) -> float:
    """Returns the operations of a forward pass: of the module over the distinct spellings, and of the transformer."""
    spellings = sum((lengths_of(chars) for chars in inputs.chars), TotalLengths())
    own = char2subword_forward(config.characters, spellings) + mixing(config, spellings)
    return own + bert_forward(config, text_lengths(inputs.mask_SBL))


def mixing(config: Char2SubwordBertConfig, spellings: TotalLengths) -> float:
    """Returns the operations of weighing the rows of the table for each spelling, and of their mean: in gated mode."""
    return 2 * 2 * spellings.rows * config.hidden * config.vocab_size if config.mode == GATED else 0.0


def imitation_training(config: Char2SubwordConfig, batch: ImitationBatch, rows: int) -> float:
    """Returns the useful operations of a training step of the approximation stage.

    The table is fixed, so products with it need no gradient with respect to the table: the softmax costs two passes
    instead of three.

    Args:
      rows: rows of the table that the softmax runs over; 0: there is no softmax.
    """
    spellings = sum((lengths_of(chars) for chars in batch.chars), TotalLengths())
    near = batch.near[0].shape[-1]
    products = 2 * spellings.rows * config.output * (rows + near)
    return TRAINING * char2subword_forward(config, spellings) + 2 * products


def character_masked_training(config: Char2SubwordBertConfig, batch: MaskedBatch) -> float:
    """Returns the useful operations of a training step of the contextual stage.

    The transformer and its head are frozen, so their matrices need no gradient: a product with such a matrix costs two
    passes. A product of two states, as in attention, costs three passes, and so does the module.
    """
    D = config.hidden
    spellings = sum((lengths_of(chars) for chars in batch.inputs.chars), TotalLengths())
    words, masked = lengths_of(batch.inputs.mask_SBL), float(np.count_nonzero(batch.labels_SM >= 0))
    pairs = config.layers * 2 * 2 * words.squares * D
    frozen = 2 * (bert_forward(config, words) + 2 * masked * D * (D + config.vocab_size)) + pairs
    return TRAINING * char2subword_forward(config.characters, spellings) + frozen


def alignment_training(
    config: Char2SubwordBertConfig, inputs: SpelledBatch, clean_SBL: np.ndarray, free_layers: int
) -> float:
    """Returns the useful operations of a training step of the alignment stage.

    The teacher costs a forward pass. The student's frozen matrices cost two passes, see `character_masked_training`; so
    do products with the table.

    Args:
      clean_SBL: bool, True at the teacher's positions.
      free_layers: number of layers of the student that are trained.
    """
    spellings = sum((lengths_of(chars) for chars in inputs.chars), TotalLengths())
    words, clean = text_lengths(inputs.mask_SBL), lengths_of(clean_SBL)
    pairs = config.layers * 2 * 2 * words.squares * config.hidden
    passes = 2 + free_layers / config.layers
    own = TRAINING * char2subword_forward(config.characters, spellings) + 2 * mixing(config, spellings)
    return own + passes * bert_forward(config, words) + pairs + bert_forward(config, clean)
