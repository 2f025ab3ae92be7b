"""The loss of a speller: every character of the words meant counts, and the end behind them.

Open it to change what counts as mended, or what a run reports of misspelled and of clean words.
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
from charlm.families.hlm.misspelled import END
from charlm.text.chars import MASK


class SpellingSums(NamedTuple):
    """Sums over the predicted words of a batch, float32 scalars; the sums of several batches may be added up."""

    nats: jax.Array  # negative log-likelihood of the characters and ends
    chars: jax.Array  # characters and ends, one for all bytes of a character
    changed: jax.Array  # words that are misspelled
    mended: jax.Array  # of these: all characters are right
    kept: jax.Array  # words that are read as they are meant
    kept_right: jax.Array  # of these: all characters are right
    hidden: jax.Array  # words that are masked
    hidden_right: jax.Array  # of these: all characters are right


def spelling_sums(
    model: nn.Module, params: Params, batch: WordBatch, dropout_key: jax.Array | None, by_bytes: bool = False
) -> SpellingSums:
    """Applies an `HLMForMaskedLM` to a micro-batch [S, ...] and sums its loss and correct words.

    Args:
      dropout_key: random key of dropout; None: evaluation, without dropout.
      by_bytes: whether the model's vocabulary spells unknown characters by bytes.
    """
    return summed(model, params, batch, dropout_key, functools.partial(_bucket_sums, by_bytes=by_bytes))


def _bucket_sums(logits_SMCV: jax.Array, bucket: MaskedWords, by_bytes: bool = False) -> SpellingSums:
    labels_SMC = bucket.labels_SMC[..., 1:].astype(jnp.int32)
    read_SMC = jax.vmap(lambda table, rows: table[rows])(bucket.chars_SPC, bucket.row_SM)[..., 1:].astype(jnp.int32)
    real_SMC = labels_SMC != 0
    label_logits = jnp.take_along_axis(logits_SMCV, labels_SMC[..., None], axis=-1)[..., 0]
    nats_SMC = jax.nn.logsumexp(logits_SMCV, axis=-1) - label_logits
    right_SM = ((logits_SMCV.argmax(axis=-1) == labels_SMC) | ~real_SMC).all(axis=-1)
    hidden_SM = real_SMC.any(axis=-1) & (read_SMC[..., 0] == MASK)
    word_SM = real_SMC.any(axis=-1) & ~hidden_SM
    same_SM = ((labels_SMC == jnp.where(read_SMC == 0, END, read_SMC)) | ~real_SMC).all(axis=-1)

    def count(x: jax.Array) -> jax.Array:
        return x.sum(dtype=jnp.float32)

    return SpellingSums(
        nats=jnp.where(real_SMC, nats_SMC, 0).sum(),
        chars=count(real_SMC & whole_characters(labels_SMC, by_bytes)),
        changed=count(word_SM & ~same_SM),
        mended=count(word_SM & ~same_SM & right_SM),
        kept=count(word_SM & same_SM),
        kept_right=count(word_SM & same_SM & right_SM),
        hidden=count(hidden_SM),
        hidden_right=count(hidden_SM & right_SM),
    )


def summarize(sums: SpellingSums) -> dict[str, float]:
    """Returns the reported metrics: loss (nats) and bits per character, and the shares of words mended, kept
    and, of those that are masked, guessed.

    Raises:
      ValueError: no word was predicted.
    """
    nats, chars, changed, mended, kept, kept_right, hidden, hidden_right = (float(x) for x in sums)
    if chars == 0:
        raise ValueError(
            "no word was predicted: too little text, or spelling.misspelled and data.mask_rate too small for it"
        )
    return {
        "loss": nats / chars,
        "bits_per_char": nats / chars / math.log(2),
        "mended": mended / max(changed, 1.0),
        "kept": kept_right / max(kept, 1.0),
    } | ({"guessed": hidden_right / hidden} if hidden else {})
