"""Counts the floating-point operations of a CharacterBERT in the manner of `charlm.core.flops`.

The objective and the units call it for MFU; open it when the model's layers change, so that MFU stays right.
"""

from __future__ import annotations

import numpy as np

from charlm.core.flops import TRAINING, TotalLengths, lengths_of
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.subword.flops import bert_forward


def cnn_forward(config: CharacterBertConfig, words: TotalLengths) -> float:
    """Returns the CNN's forward operations: a window of each width at every character, highways, projection."""
    filters = sum(config.filters)
    convolutions = sum(w * n for w, n in zip(config.windows, config.filters, strict=True)) * config.char_hidden
    behind = config.highways * 2 * filters**2 + filters * config.hidden
    return 2 * (words.total * convolutions + words.rows * behind)


def characterbert_training(config: CharacterBertConfig, batch: MaskedBatch) -> float:
    """Returns the useful operations of a training step of masked language modelling."""
    words = sum((lengths_of(chars) for chars in batch.inputs.chars), TotalLengths())
    masked = float(np.count_nonzero(batch.labels_SM >= 0))
    head = 2 * masked * config.hidden * (config.hidden + config.vocab_size)
    encoder = cnn_forward(config, words) + bert_forward(config, lengths_of(batch.inputs.mask_SBL))
    return TRAINING * (encoder + head)
