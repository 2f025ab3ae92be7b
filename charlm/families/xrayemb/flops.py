"""Counts the floating-point operations of an XRayEmb, by the rules of `charlm.core.flops`.

The objective and the units call it for MFU; open it when the layers change, so that MFU stays right.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from charlm.core.flops import TRAINING, TotalLengths, layer, lengths_of
from charlm.families.subword.flops import bert_forward
from charlm.families.subword.gpt2 import GPT2Config
from charlm.families.xrayemb.batch import XRayBatch
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import WIDTHS, XREncoderConfig
from charlm.families.xrayemb.model import XRayEmbConfig


def xr_encoder_forward(config: XREncoderConfig, words: TotalLengths) -> float:
    """Returns the operations of a forward pass of XR-Enc.

    A convolution multiplies characters once for each place of its window; it multiplies the rows of the character table
    instead if these are fewer.
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
    return flops + 2 * words.rows * sum(a * b for a, b in itertools.pairwise(widths))


def xr_decoder_forward(config: XRDecoderConfig, words: float, characters: float) -> float:
    """Returns the operations of a forward pass of XR-Dec that reads and predicts `characters` of `words` words."""
    K, E, classes = config.hidden, config.char_embedding, config.char_vocab_size - 1
    layers = sum(2 * 4 * K * ((K if layer else E) + K) for layer in range(config.layers))
    return words * 2 * config.vector * config.layers * K + characters * (layers + 2 * classes * (K + classes))


def xray_training(config: XRayEmbConfig, batch: XRayBatch, weights: Mapping[str, float]) -> float:
    """Returns the useful operations of a step of XRayEmb's second pre-training.

    For text it counts encoder, backbone, prediction head and generator. In steps with cycles it adds encoder and
    generator for the words, and for as many points of the sphere the encoder and the forward pass of the generator. The
    words written from the points are assumed to be as long as the words of the cycle.

    Args:
      weights: weights of the losses, see `charlm.families.xrayemb.loss`; a loss without weight is not computed.
    """
    D, encoder, generator = config.hidden, config.encoder, config.generator
    flops = xr_encoder_forward(encoder, sum((lengths_of(chars) for chars in batch.inputs.chars), TotalLengths()))
    if weights["language"] or weights["generation"]:
        flops += bert_forward(config, lengths_of(batch.inputs.mask_SBL))
    if weights["language"]:
        transform = 0 if isinstance(config, GPT2Config) else D
        labels = float(np.count_nonzero(batch.labels_SM >= 0))
        flops += 2 * labels * D * (transform + config.vocab_size)
    assert generator is not None  # second pre-training is of a model with one
    if weights["generation"]:
        written = sum((lengths_of(bucket.chars_SGC) for bucket in batch.written), TotalLengths())
        flops += xr_decoder_forward(generator, written.rows, written.total - written.rows)
    cycle = sum((lengths_of(chars) for chars in batch.cycle), TotalLengths())
    encoded = xr_encoder_forward(encoder, cycle)
    written = xr_decoder_forward(generator, cycle.rows, cycle.total - cycle.rows)
    flops += (encoded + written) * bool(weights["cycle_words"]) + encoded * bool(weights["cycle_sphere"])
    return TRAINING * flops + written * bool(weights["cycle_sphere"])
