"""Floating-point operations of a step, by one formula, and the share of a chip's peak that they make (MFU).

Matrix products alone count, a multiplication and an addition as two. For a Transformer layer over sequences of lengths
l, with `queries` positions that ask, width D and feed-forward F:

    2 (2 sum(l) D^2  +  2 queries D^2  +  2 queries D F)    keys, values; queries, output; feed-forward
    2 2 pairs D                                             scores, mixing
    2 r min(pairs, 2 P sum(l)) D                            scores against positions, r = 2, else 0

where pairs = sum(l^2) when every position asks, and P is the number of position buckets of each direction: beyond 2 P
words, several distances share a score. Backward costs twice the forward pass, so a training step is three
forward passes; what rematerialisation computes again is not useful and does not count (Chowdhery et al., 2022,
appendix B). Useful operations count real characters and words, each distinct word once; padded ones all that the arrays
hold. The compiler counts up to a third more: relative scores are taken for every distance before they are put in place,
and positions are projected.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from charlm.core.batch import Array, CharacterMaskedBatch, ImitationBatch, NoisyBatch, WordBatch, XRayBatch
from charlm.families.char2subword.model import Char2SubwordBertConfig
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.charbert.model import CharBertConfig
from charlm.families.hlm.model import HLMConfig
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.gpt2 import GPT2Config
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import WIDTHS, XREncoderConfig
from charlm.families.xrayemb.model import XRayEmbConfig

TRAINING = 3  # forward passes that a training step costs

# Peak of dense bfloat16 matrix products, FLOP/s, from the makers' data sheets; by how JAX names the device, whole words
# of it, the longest name first. A chip of TPU v2 or v3 is two devices.
PEAKS = {
    "H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12,
    "L4": 121e12, "A10": 125e12, "TPU v2": 22.5e12, "TPU v3": 61.5e12, "TPU v4": 275e12, "TPU v5 lite": 197e12,
    "TPU v5e": 197e12, "TPU v5p": 459e12, "TPU v5": 459e12, "TPU v6 lite": 918e12, "TPU v6e": 918e12,
}  # fmt: skip


def peak(device_kind: str, dtype: str) -> float | None:
    """Returns the FLOP/s a device can do at most in bfloat16; None where that is not known, or for another dtype."""
    if dtype != "bfloat16":
        return None
    named = (flops for name, flops in PEAKS.items() if re.search(rf"(?<!\w){name}(?!\w)", device_kind))
    return next(named, None)


class Lengths(NamedTuple):
    """Of some sequences: how many, the sum of their lengths, and that of the squares."""

    count: float = 0
    total: float = 0
    squares: float = 0

    def __add__(self, other: Lengths) -> Lengths:  # type: ignore[override]
        return Lengths(*(a + b for a, b in zip(self, other, strict=True)))


def lengths_of(real: Array) -> Lengths:
    """Returns the lengths of sequences [..., L] whose non-zero positions are real; a row without one is none."""
    lengths = np.count_nonzero(real, axis=-1).astype(np.float64)
    return Lengths(np.count_nonzero(lengths), lengths.sum(), np.square(lengths).sum())


def full_lengths(array: Array) -> Lengths:
    """Returns the lengths of sequences [..., L] whose every position is computed."""
    *batch, length = np.shape(array)
    rows = float(np.prod(batch))
    return Lengths(rows, rows * length, rows * length**2)


class BatchLengths(NamedTuple):
    """What a batch holds: characters of the words read through slot 0 and of those at masked positions, words of the
    sequences, characters of masked positions (slot 0 included)."""

    table: Lengths
    masked: Lengths
    words: Lengths
    labels: Lengths


def lengths_of_batch(batch: WordBatch, padded: bool = False) -> BatchLengths:
    """Returns the lengths in a host batch with any leading axes; `padded`: those of its arrays."""
    measure = full_lengths if padded else lengths_of
    table = sum((measure(chars) for chars in batch.chars), Lengths())
    masked = sum((measure(bucket.chars_SPC) for bucket in batch.masked), Lengths())
    labels = Lengths()
    for bucket in batch.masked:
        chars = measure(bucket.labels_SMC)
        if not padded:  # slot 0 has no label, but the layers read it
            chars = Lengths(chars.count, chars.total + chars.count, chars.squares + 2 * chars.total + chars.count)
        labels += chars
    return BatchLengths(table, masked, measure(batch.mask_SBW), labels)


def layer(tokens: float, queries: float, pairs: float, hidden: int, ffn: int, buckets: int = 0) -> float:
    """Returns the operations of a layer, forward; see the module's formula. buckets: P; 0: no relative positions."""
    dense = 2 * (2 * tokens * hidden**2 + 2 * queries * hidden**2 + 2 * queries * hidden * ffn)
    return dense + 2 * (2 * pairs + 2 * min(pairs, 2 * buckets * tokens)) * hidden


def hlm_forward(config: HLMConfig, lengths: BatchLengths) -> float:
    """Returns the operations of `HLMForMaskedLM`, forward; without masked words, those of the encoder alone."""
    D, table, masked, words, labels = config.hidden, *lengths
    P = config.position_buckets
    stack = lambda layers, x, ffn: layers * layer(x.total, x.total, x.squares, D, ffn, P)
    flops = stack(config.intra_layers - 1, table + masked, config.intra_ffn) + stack(1, masked, config.intra_ffn)
    if config.aggregation == "word_cls":  # the last layer asks for slot 0 alone
        flops += layer(table.total, table.count, table.total, D, config.intra_ffn, P)
    else:
        flops += stack(1, table, config.intra_ffn)
    flops += stack(config.inter_layers, words, config.inter_ffn) + stack(config.head_layers, labels, config.intra_ffn)
    chars = labels.total - labels.count
    if config.wiring == "reference":
        flops += 2 * chars * 2 * D * D
    return flops + 2 * chars * D * (D * config.head_transform + config.vocab_size)


def hlm_training(config: HLMConfig, batch: WordBatch) -> float:
    """Returns the useful operations of a training step on a host batch."""
    return TRAINING * hlm_forward(config, lengths_of_batch(batch))


def bert_forward(config: BertConfig | GPT2Config, words: Lengths) -> float:
    """Returns the operations of BERT's or GPT-2's layers, forward, without pooler and head."""
    return config.layers * layer(words.total, words.total, words.squares, config.hidden, config.ffn)


def charbert_forward(
    config: CharBertConfig, words: Lengths, characters: float, masked: float = 0, noised: float = 0
) -> float:
    """Returns the operations of a CharBERT, forward, without pooler: 2.7 times BERT's (CharBERT, section 3.4).

    Args:
      words: lengths of the sequences in subwords. characters: that the GRU reads. masked, noised: subwords that are
        predicted, and those whose words are.
    """
    D, E = config.hidden, config.char_hidden
    flops = 2 * bert_forward(config, words)
    if config.char_encoder == "gru":
        flops += 2 * characters * 2 * 3 * (D // 4) * (E + D // 4)
    if config.fusion != "none":
        filters = D / len(config.windows)
        linear = (4 if config.fusion == "paper" else 2) * D * D
        flops += config.layers * 2 * words.total * (linear + sum(config.windows) * 2 * D * filters)
    read = D if config.nlm else 2 * D
    return flops + 2 * masked * (read * D + D * config.vocab_size) + 2 * noised * D * (D + config.word_vocab_size)


def charbert_training(config: BertConfig, batch: NoisyBatch) -> float:
    """Returns the useful operations of a training step of a CharBERT, or of its control without characters."""
    words = lengths_of(batch.inputs.mask_BL)
    masked, noised = (float(np.count_nonzero(labels >= 0)) for labels in (batch.mlm_labels_SM, batch.nlm_labels_SP))
    if not isinstance(config, CharBertConfig):
        D = config.hidden
        return TRAINING * (bert_forward(config, words) + 2 * masked * D * (D + config.vocab_size))
    used = np.where(batch.inputs.mask_BL, batch.inputs.ends_BL + 1, 0).max(axis=-1)  # of each row's slots
    return TRAINING * charbert_forward(config, words, float(used.sum()), masked, noised)


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
    products = 2 * spellings.count * config.output * (rows + near)
    return TRAINING * char2subword_forward(config, spellings) + 2 * products


def character_masked_training(config: Char2SubwordBertConfig, batch: CharacterMaskedBatch) -> float:
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


def xr_encoder_forward(config: XREncoderConfig, words: Lengths) -> float:
    """Returns the operations of an XR-Enc, forward.

    A convolution is products of characters with the places of its windows, done for the rows of the character table
    where these are fewer.
    """
    D, H, E, chars = config.output, config.hidden, config.char_embedding, words.total
    if config.kind == "conv":
        inner = len(WIDTHS) * H
        flops = 2 * min(chars, config.char_vocab_size) * sum(WIDTHS) * E * H
    elif config.kind == "lstm":
        inner = 2 * H
        flops = sum(2 * chars * 2 * 4 * H * ((2 * H if layer else E) + H) for layer in range(config.layers))
    else:
        inner = H
        flops = config.layers * layer(chars, chars, words.squares, H, config.ffn)
    between = 2 * H if config.kind == "lstm" else D
    widths = [inner] + [between] * (config.projections - 1) + [D]
    return flops + 2 * words.count * sum(a * b for a, b in itertools.pairwise(widths))


def xr_decoder_forward(config: XRDecoderConfig, words: float, characters: float) -> float:
    """Returns the operations of an XR-Dec, forward, that reads and predicts so many characters of so many words."""
    K, E, classes = config.hidden, config.char_embedding, config.char_vocab_size - 1
    layers = sum(2 * 4 * K * ((K if layer else E) + K) for layer in range(config.layers))
    return words * 2 * config.vector * config.layers * K + characters * (layers + 2 * classes * (K + classes))


def xray_training(config: XRayEmbConfig, batch: XRayBatch, weights: Mapping[str, float]) -> float:
    """Returns the useful operations of a step of XRayEmb's second pre-training.

    Text: encoder, backbone, prediction and generator; in steps with cycles, encoder and generator for their words, and
    for as many points of the sphere the generator forward and the encoder; of these points' words, the lengths are
    taken to be those of the given words.

    Args:
      weights: of the losses, see `charlm.families.xrayemb.loss`; what has none is not computed.
    """
    D, encoder, generator = config.hidden, config.encoder, config.generator
    flops = xr_encoder_forward(encoder, sum((lengths_of(chars) for chars in batch.inputs.chars), Lengths()))
    if weights["language"] or weights["generation"]:
        flops += bert_forward(config, lengths_of(batch.inputs.mask_SBL))
    if weights["language"]:
        transform = 0 if isinstance(config, GPT2Config) else D
        labels = float(np.count_nonzero(batch.labels_SM >= 0))
        flops += 2 * labels * D * (transform + config.vocab_size)
    if weights["generation"]:
        written = sum((lengths_of(bucket.chars_SGC) for bucket in batch.written), Lengths())
        flops += xr_decoder_forward(generator, written.count, written.total - written.count)
    cycle = sum((lengths_of(chars) for chars in batch.cycle), Lengths())
    encoded = xr_encoder_forward(encoder, cycle)
    written = xr_decoder_forward(generator, cycle.count, cycle.total - cycle.count)
    flops += (encoded + written) * bool(weights["cycle_words"]) + encoded * bool(weights["cycle_sphere"])
    return TRAINING * flops + written * bool(weights["cycle_sphere"])
