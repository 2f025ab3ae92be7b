"""Counts the floating-point operations of an HLM in the manner of `charlm.core.flops`.

The objective, the units and the benchmark call it for MFU; open it when the model's layers change, so that MFU stays
right.
"""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.flops import TRAINING, TotalLengths, full_lengths, layer, lengths_of, text_lengths
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import HLMConfig
from charlm.nn.transformer import gated_width


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
    words = full_lengths(batch.mask_SBW) if padded else text_lengths(batch.mask_SBW)
    return BatchLengths(table, masked, words, labels)


def hlm_states(config: HLMConfig, lengths: BatchLengths) -> float:
    """Returns the forward operations of all layers: within words, between words, and the head's over characters."""
    D, table, masked, words, labels = config.hidden, *lengths
    P, ffn = config.position_buckets, feed_forward_width(config, config.intra_ffn)
    stack = lambda layers, x: layers * layer(x.total, x.total, x.squares, D, ffn, P)
    flops = stack(config.intra_layers - 1, table + masked) + stack(1, masked)
    if config.aggregation == "word_cls":  # the last layer asks for slot 0 alone
        flops += layer(table.total, table.rows, table.total, D, ffn, P)
    else:
        flops += stack(1, table)
    return flops + between_words(config, words) + stack(config.head_layers, labels)


def between_words(config: HLMConfig, words: TotalLengths) -> float:
    """Returns the forward operations of the layers between words, of which local ones score what they see alone.

    Rotary positions are no products, so they cost nothing here. Scores within a window are counted as if every word had
    a whole window beside it.
    """
    buckets = config.position_buckets if config.position == "disentangled" else 0
    ffn, encoder = feed_forward_width(config, config.inter_ffn), config.inter
    windows = [encoder.window(n) for n in range(config.inter_layers)]
    sides = 1 if config.causal else 2
    pairs = [min(words.squares, (sides * w + 1) * words.total) if w else words.squares for w in windows]
    return sum(layer(words.total, words.total, seen, config.hidden, ffn, buckets) for seen in pairs)


def feed_forward_width(config: HLMConfig, ffn: int) -> int:
    """Returns the width of the layer of two matrices that costs as much as the config's feed-forward layer."""
    return ffn if config.feed_forward == "gelu" else 3 * gated_width(ffn) // 2


def hlm_forward(config: HLMConfig, lengths: BatchLengths) -> float:
    """Returns the forward operations of `HLMForMaskedLM`; without masked words, those of the encoder alone."""
    D, flops = config.hidden, hlm_states(config, lengths)
    chars = lengths.labels.total - lengths.labels.rows
    if config.wiring == "reference":
        flops += 2 * chars * 2 * D * D
    return flops + 2 * chars * D * (D * config.head_transform + config.vocab_size)


def writing_training(config: HLMConfig, batch: WordBatch) -> float:
    """Returns the useful operations of a training step of an HLM that writes: each word is read through slot 0 alone.

    A causal layer scores half of the pairs, and every position with itself.
    """
    lengths = lengths_of_batch(batch)
    half = lambda x: TotalLengths(x.rows, x.total, (x.squares + x.total) / 2)
    # `lengths_of_batch` counts a slot for the word itself, and there is one: the context, instead of the last id.
    rows, total, squares = lengths.labels
    inputs = TotalLengths(rows, total - rows, squares - 2 * (total - rows) - rows)
    D, labels = config.hidden, half(inputs)
    ffn = feed_forward_width(config, config.intra_ffn)
    read = lengths._replace(
        table=lengths.table + lengths.masked, masked=TotalLengths(), words=half(lengths.words), labels=TotalLengths()
    )
    writer = config.head_layers * layer(labels.total, labels.total, labels.squares, D, ffn, 0)
    head = 2 * labels.rows * D * D + 2 * labels.total * D * (D * config.head_transform + config.vocab_size)
    return TRAINING * (hlm_states(config, read) + writer + head)


def hlm_training(config: HLMConfig, batch: WordBatch) -> float:
    """Returns the useful operations of a training step on a host batch."""
    return TRAINING * hlm_forward(config, lengths_of_batch(batch))
