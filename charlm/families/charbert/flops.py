"""Counts the floating-point operations of a CharBERT in the manner of `charlm.core.flops`.

The objective and the units call it for MFU; open it when the model's layers change, so that MFU stays right.
"""

from __future__ import annotations

import numpy as np

from charlm.core.flops import TRAINING, TotalLengths, lengths_of
from charlm.families.charbert.batch import CharBertBatch, NoisyBatch
from charlm.families.charbert.model import CharBertConfig
from charlm.families.fusions import layer_of
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.flops import bert_forward


def charbert_forward(
    config: CharBertConfig, words: TotalLengths, characters: float, masked: float = 0, noised: float = 0
) -> float:
    """Returns the forward operations of a CharBERT without pooler; at the published shape some 2.7 times BERT's.

    The same layers read both channels (CharBERT, section 3.4), and the fusion comes after each.

    Args:
      words: lengths of the sequences in subwords.
      characters: the number of characters that the GRU reads.
      masked: the number of masked subwords to predict.
      noised: the number of subwords whose noised word is predicted.
    """
    D, E = config.hidden, config.char_hidden
    flops = 2 * bert_forward(config, words)
    if config.char_encoder == "gru":
        flops += 2 * characters * 2 * 3 * (D // 4) * (E + D // 4)
    if fusion := layer_of(config.fusion):
        flops += config.layers * 2 * words.total * fusion.products(config)
    read = D if config.nlm else 2 * D
    return flops + 2 * masked * (read * D + D * config.vocab_size) + 2 * noised * D * (D + config.word_vocab_size)


def characters_of(inputs: CharBertBatch) -> float:
    """Returns how many character slots of a host batch the GRU reads."""
    used = np.where(inputs.real_BL, inputs.ends_BL + 1, 0).max(axis=-1)  # slots in use, for each row
    return float(used.sum())


def charbert_training(config: BertConfig, batch: NoisyBatch) -> float:
    """Returns the useful operations of a training step of a CharBERT, or of the control model without characters."""
    words = lengths_of(batch.inputs.real_BL)
    masked, noised = (float(np.count_nonzero(labels >= 0)) for labels in (batch.mlm_labels_SM, batch.nlm_labels_SP))
    if not isinstance(config, CharBertConfig):
        D = config.hidden
        return TRAINING * (bert_forward(config, words) + 2 * masked * D * (D + config.vocab_size))
    return TRAINING * charbert_forward(config, words, characters_of(batch.inputs), masked, noised)
