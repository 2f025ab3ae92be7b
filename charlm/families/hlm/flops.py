"""Counts the floating-point operations of an HLM in the manner of `charlm.core.flops`.

The objective, the units and the benchmark call it for MFU; open it when the model's layers change, so that MFU stays
right.
"""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.flops import TRAINING, TotalLengths, full_lengths, layer, lengths_of
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import HLMConfig


class BatchLengths(NamedTuple):
    """The lengths in a batch.

    Attributes:
      table: characters of the words that are read through slot 0.
      masked: characters of the words at masked positions.
      words: words of the sequences.
      labels: characters of masked positions, slot 0 included.
    """

    table: TotalLengths
    masked: TotalLengths
    words: TotalLengths
    labels: TotalLengths


def lengths_of_batch(batch: WordBatch, padded: bool = False) -> BatchLengths:
    """Returns the lengths in a host batch with any leading axes; `padded`: count padding as well."""
    measure = full_lengths if padded else lengths_of
    table = sum((measure(chars) for chars in batch.chars), TotalLengths())
    masked = sum((measure(bucket.chars_SPC) for bucket in batch.masked), TotalLengths())
    labels = TotalLengths()
    for bucket in batch.masked:
        chars = measure(bucket.labels_SMC)
        if not padded:  # slot 0 has no label, but the layers read it
            chars = TotalLengths(chars.rows, chars.total + chars.rows, chars.squares + 2 * chars.total + chars.rows)
        labels += chars
    return BatchLengths(table, masked, measure(batch.mask_SBW), labels)


def hlm_states(config: HLMConfig, lengths: BatchLengths) -> float:
    """Returns the forward operations of all layers: within words, between words, and the head's over characters."""
    D, table, masked, words, labels = config.hidden, *lengths
    P = config.position_buckets
    stack = lambda layers, x, ffn: layers * layer(x.total, x.total, x.squares, D, ffn, P)
    flops = stack(config.intra_layers - 1, table + masked, config.intra_ffn) + stack(1, masked, config.intra_ffn)
    if config.aggregation == "word_cls":  # the last layer asks for slot 0 alone
        flops += layer(table.total, table.rows, table.total, D, config.intra_ffn, P)
    else:
        flops += stack(1, table, config.intra_ffn)
    flops += stack(config.inter_layers, words, config.inter_ffn) + stack(config.head_layers, labels, config.intra_ffn)
    return flops


def hlm_forward(config: HLMConfig, lengths: BatchLengths) -> float:
    """Returns the forward operations of `HLMForMaskedLM`; without masked words, those of the encoder alone."""
    D, flops = config.hidden, hlm_states(config, lengths)
    chars = lengths.labels.total - lengths.labels.rows
    if config.wiring == "reference":
        flops += 2 * chars * 2 * D * D
    return flops + 2 * chars * D * (D * config.head_transform + config.vocab_size)


def hlm_training(config: HLMConfig, batch: WordBatch) -> float:
    """Returns the useful operations of a training step on a host batch."""
    return TRAINING * hlm_forward(config, lengths_of_batch(batch))
