"""The loss of masked language modelling over words or subwords that are read from characters.

`masked_lm` calls it at every step and at every evaluation. Open it to change this loss or to report another sum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from charlm.core.types import Params
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.spelled.model import SpelledLM
from charlm.nn.apply import applied
from charlm.nn.label_sums import label_sums


class MaskedSums(NamedTuple):
    """Sums over the labelled positions of a batch, float32 scalars; they add up exactly over batches of any size."""

    nats: jax.Array  # negative log-likelihood of the labels
    labels: jax.Array  # number of labels
    right: jax.Array  # number of labels that are the most likely prediction


def masked_sums(model: SpelledLM, params: Params, batch: MaskedBatch, dropout_key: jax.Array | None) -> MaskedSums:
    """Applies a model to a micro-batch [S, ...] and sums its loss and hits.

    Args:
      dropout_key: randomness of dropout; None: evaluation, no dropout.
    """
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    apply = applied(model, {"params": params}, rngs)
    output = apply(batch.inputs, batch.position_SM, deterministic=dropout_key is None)
    return MaskedSums(*label_sums(output.logits, batch.labels_SM))


def summarize(sums: MaskedSums) -> dict[str, float]:
    """Returns the loss, in nats per label, and the accuracy.

    Raises:
      ValueError: nothing was masked.
    """
    nats, labels, right = (float(x) for x in sums)
    if not labels:
        raise ValueError("nothing was masked: too little text, or data.mask_rate too small for it")
    return {"loss": nats / labels, "mlm_accuracy": right / labels}
