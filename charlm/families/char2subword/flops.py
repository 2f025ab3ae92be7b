"""Floating-point operations of a Char2Subword, as `charlm.core.flops` counts them."""

from __future__ import annotations

import numpy as np

from charlm.core.flops import TRAINING, Lengths, layer, lengths_of
from charlm.families.char2subword.batch import ImitationBatch
from charlm.families.char2subword.model import Char2SubwordBertConfig
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.subword.flops import bert_forward


def char2subword_forward(config: Char2SubwordConfig, spellings: Lengths) -> float:
    """Returns the operations of a Char2Subword, forward."""
    D, chars = config.hidden, spellings.total
    return config.layers * layer(chars, chars, spellings.squares, D, 4 * D) + 2 * chars * D * config.output


def imitation_training(config: Char2SubwordConfig, batch: ImitationBatch, rows: int) -> float:
    """Returns the useful operations of a step of approximation.

    The table is fixed, so its products have no gradient of their own: the softmax costs two passes, not three.

    Args:
      rows: of the table that the softmax runs over; 0: there is none.
    """
    spellings = sum((lengths_of(chars) for chars in batch.chars), Lengths())
    near = batch.near[0].shape[-1]
    products = 2 * spellings.rows * config.output * (rows + near)
    return TRAINING * char2subword_forward(config, spellings) + 2 * products


def character_masked_training(config: Char2SubwordBertConfig, batch: MaskedBatch) -> float:
    """Returns the useful operations of a step of contextual pre-training.

    Transformer and head are frozen, so their matrices have no gradient: a product with one costs two passes. One of two
    states, as in attention, costs three, and so does the module.
    """
    D = config.hidden
    spellings = sum((lengths_of(chars) for chars in batch.inputs.chars), Lengths())
    words, masked = lengths_of(batch.inputs.mask_SBL), float(np.count_nonzero(batch.labels_SM >= 0))
    pairs = config.layers * 2 * 2 * words.squares * D
    frozen = 2 * (bert_forward(config, words) + 2 * masked * D * (D + config.vocab_size)) + pairs
    return TRAINING * char2subword_forward(config.characters, spellings) + frozen
