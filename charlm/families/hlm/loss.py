"""The loss and accuracies of masked character modelling: every character of masked words counts (HLM, section 3.4).

Open it to change what counts as a right word, or which metrics pre-training reports.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.core.types import Params
from charlm.data.word_batch import MaskedWords, WordBatch
from charlm.nn.apply import applied
from charlm.text.chars import FIRST_CHAR

Sums = TypeVar("Sums")  # a NamedTuple of float32 scalars


class MaskedCharSums(NamedTuple):
    """Sums over the masked words of a batch, float32 scalars; the sums of several batches may be added up."""

    nats: jax.Array  # negative log-likelihood of the masked characters
    chars: jax.Array  # masked characters
    chars_right: jax.Array  # masked characters that are the most likely one of the prediction
    words: jax.Array  # masked words
    words_right: jax.Array  # masked words whose characters are all right
    whole: jax.Array  # masked characters, of one that is spelled by bytes only the first


def masked_char_sums(
    model: nn.Module, params: Params, batch: WordBatch, dropout_key: jax.Array | None, by_bytes: bool = False
) -> MaskedCharSums:
    """Applies an `HLMForMaskedLM` to a micro-batch [S, ...] and sums its loss and correct predictions.

    Args:
      dropout_key: random key of dropout; None: evaluation, without dropout.
      by_bytes: whether the model's vocabulary spells unknown characters by bytes.
    """
    return summed(model, params, batch, dropout_key, functools.partial(_bucket_sums, by_bytes=by_bytes))


def whole_characters(ids: jax.Array, by_bytes: bool) -> jax.Array:
    """Returns where ids begin a character, bool: everywhere but where a byte of UTF-8 continues one."""
    if not by_bytes:
        return jnp.ones(ids.shape, bool)
    return (ids < FIRST_CHAR + 0x80) | (ids >= FIRST_CHAR + 0xC0)


def summed(
    model: nn.Module,
    params: Params,
    batch: WordBatch,
    dropout_key: jax.Array | None,
    bucket_sums: Callable[[jax.Array, MaskedWords], Sums],
) -> Sums:
    """Applies a model that returns logits for each bucket of a micro-batch [S, ...], and adds up sums over buckets.

    Args:
      dropout_key: random key of dropout; None: evaluation, without dropout.
      bucket_sums: takes the logits [S, M, C - 1, V] of a bucket, and the bucket.
    """
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    logits = applied(model, {"params": params}, rngs)(batch, deterministic=dropout_key is None)
    buckets = [bucket_sums(x, bucket) for x, bucket in zip(logits, batch.masked, strict=True)]
    return jax.tree.map(lambda *sums: sum(sums), *buckets)


def _bucket_sums(logits_SMCV: jax.Array, bucket: MaskedWords, by_bytes: bool) -> MaskedCharSums:
    labels = bucket.labels_SMC[..., 1:].astype(jnp.int32)
    real = labels != 0
    label_logits = jnp.take_along_axis(logits_SMCV, labels[..., None], axis=-1)[..., 0]
    nats = jax.nn.logsumexp(logits_SMCV, axis=-1) - label_logits
    right = logits_SMCV.argmax(axis=-1) == labels
    words = real.any(axis=-1)

    def count(x: jax.Array) -> jax.Array:
        return x.sum(dtype=jnp.float32)

    return MaskedCharSums(
        nats=jnp.where(real, nats, 0).sum(),
        chars=count(real),
        chars_right=count(right & real),
        words=count(words),
        words_right=count(words & (right | ~real).all(axis=-1)),
        whole=count(real & whole_characters(labels, by_bytes)),
    )


def summarize(sums: MaskedCharSums) -> dict[str, float]:
    """Returns the reported metrics: loss (nats) and bits per masked character, accuracy of characters and whole words.

    Where characters are spelled by bytes, loss and accuracy of characters are those of bytes, and bits of characters.

    Raises:
      ValueError: when nothing was masked.
    """
    nats, chars, chars_right, words, words_right, whole = (float(x) for x in sums)
    if chars == 0:
        raise ValueError("no word was masked: too little text, or data.mask_rate too small for it")
    return {
        "loss": nats / chars,
        "bits_per_char": nats / whole / math.log(2),
        "char_accuracy": chars_right / chars,
        "word_accuracy": words_right / words,
    }
