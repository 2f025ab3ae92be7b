"""The loss of an HLM that writes: every letter of every word counts, and whether a space follows.

Open it to change what a run reports of the words it predicts.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.core.types import Params
from charlm.data.word_batch import MaskedWords, WordBatch
from charlm.families.hlm.loss import summed, whole_characters
from charlm.families.hlm.writer import log_probs_of
from charlm.text.chars import JOINED


class WritingSums(NamedTuple):
    """Sums over the words of a batch, float32 scalars; the sums of several batches may be added up."""

    nats: jax.Array  # negative log-likelihood of the letters and ends
    letters: jax.Array  # letters and ends
    letters_right: jax.Array  # of these: the prediction's likeliest
    chars: jax.Array  # characters of the text: letters, and a space for each word that has one behind it
    words: jax.Array  # words
    words_right: jax.Array  # of these: all letters and the end are right


def writing_sums(
    model: nn.Module, params: Params, batch: WordBatch, dropout_key: jax.Array | None, by_bytes: bool = False
) -> WritingSums:
    """Applies an `HLMForNextWord` to a micro-batch [S, ...] and sums its loss and correct predictions.

    Args:
      dropout_key: random key of dropout; None: evaluation, without dropout.
      by_bytes: whether the model's vocabulary spells unknown characters by bytes.
    """
    return summed(model, params, batch, dropout_key, functools.partial(_bucket_sums, by_bytes=by_bytes))


def _bucket_sums(logits_SMCV: jax.Array, bucket: MaskedWords, by_bytes: bool = False) -> WritingSums:
    labels_SMC = bucket.labels_SMC[..., 1:].astype(jnp.int32)
    real_SMC = labels_SMC != 0
    right_SMC = logits_SMCV.argmax(axis=-1) == labels_SMC
    word_SM = real_SMC.any(axis=-1)

    def count(x: jax.Array) -> jax.Array:
        return x.sum(dtype=jnp.float32)

    return WritingSums(
        nats=-log_probs_of(logits_SMCV, labels_SMC).sum(),
        letters=count(real_SMC),
        letters_right=count(real_SMC & right_SMC),
        chars=count(real_SMC & (labels_SMC != JOINED) & whole_characters(labels_SMC, by_bytes)),
        words=count(word_SM),
        words_right=count(word_SM & (right_SMC | ~real_SMC).all(axis=-1)),
    )


def summarize(sums: WritingSums) -> dict[str, float]:
    """Returns the reported metrics: nats a letter, bits per character of the text, accuracy of letters and whole words.

    Where characters are spelled by bytes, the letters are bytes, and the characters are characters.

    Raises:
      ValueError: no word was predicted.
    """
    nats, letters, letters_right, chars, words, words_right = (float(x) for x in sums)
    if chars == 0:
        raise ValueError("no word was predicted: too little text")
    return {
        "loss": nats / letters,
        "bits_per_char": nats / chars / math.log(2),
        "letter_accuracy": letters_right / letters,
        "word_accuracy": words_right / words,
    }
