"""CharBERT's pre-training losses: of masked subwords, and of the original words of noised ones (CharBERT, section 3.5).

Open it to change how the two losses are weighted or which accuracies are reported.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.core.types import Params
from charlm.families.charbert.batch import NoisyBatch
from charlm.nn.apply import applied
from charlm.nn.label_sums import label_sums


class NoisySums(NamedTuple):
    """Sums over the labelled positions of a batch, float32 scalars; the sums of several batches may be added up."""

    mlm_nats: jax.Array  # negative log-likelihood of the masked subwords
    mlm_labels: jax.Array  # masked subwords
    nlm_nats: jax.Array  # negative log-likelihood of the original words, at the subwords of noised words
    nlm_labels: jax.Array  # subwords of noised words
    mlm_right: jax.Array  # masked subwords that are the most likely one of the prediction
    nlm_right: jax.Array  # subwords of noised words whose original word is the most likely one of the prediction


def noisy_sums(
    model: nn.Module, params: Params, batch: NoisyBatch, dropout_key: jax.Array | None, nlm: bool = True
) -> NoisySums:
    """Applies a model to a micro-batch and sums its losses and correct predictions.

    Args:
      model: a `CharBertForMaskedLM` or `AdvBertForMaskedLM`.
      batch: inputs [S, B, ...] and positions [S, M], which count over the B sequences of a shard.
      dropout_key: random key of dropout; None: evaluation, without dropout.
      nlm: whether the model predicts words.
    """
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    inputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch.inputs)
    positions = (batch.mlm_position_SM, batch.nlm_position_SP) if nlm else (batch.mlm_position_SM,)
    output = applied(model, {"params": params}, rngs)(inputs, *positions, deterministic=dropout_key is None)
    mlm = label_sums(output.mlm_logits_SMV, batch.mlm_labels_SM)
    none = jnp.zeros((), jnp.float32)
    words = label_sums(output.nlm_logits_SPT, batch.nlm_labels_SP) if nlm else (none, none, none)
    return NoisySums(*mlm[:2], *words[:2], mlm[2], words[2])


def label_weights(batch: NoisyBatch) -> tuple[jax.Array, jax.Array]:
    """Returns the number of labels of each of the two losses, float32; the batch may have any leading axes."""
    count = lambda labels: (labels >= 0).sum(dtype=jnp.float32)
    return count(batch.mlm_labels_SM), count(batch.nlm_labels_SP)


def summarize(sums: NoisySums) -> dict[str, float]:
    """Returns the reported metrics: both losses (nats per label), their unweighted sum, and accuracies.

    Without noised words, as in an ablation without noisy language modelling, the loss is that of masked subwords.

    Raises:
      ValueError: when nothing was masked.
    """
    mlm_nats, mlm_labels, nlm_nats, nlm_labels, mlm_right, nlm_right = (float(x) for x in sums)
    if mlm_labels == 0:
        raise ValueError("no subword was masked: too little text, or data.mask_rate too small for it")
    metrics = {"loss": mlm_nats / mlm_labels, "mlm_loss": mlm_nats / mlm_labels, "mlm_accuracy": mlm_right / mlm_labels}
    if nlm_labels:
        metrics |= {"nlm_loss": nlm_nats / nlm_labels, "nlm_accuracy": nlm_right / nlm_labels}
        metrics["loss"] += metrics["nlm_loss"]
    return metrics
