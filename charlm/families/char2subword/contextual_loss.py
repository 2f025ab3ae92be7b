"""Masked language modelling with hidden characters: subwords are predicted (Char2Subword, section 3.2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from charlm.families.char2subword.batch import CharacterMaskedBatch
from charlm.families.char2subword.model import Char2SubwordForMaskedLM
from charlm.nn.apply import applied
from charlm.nn.label_sums import label_sums


class CharacterMaskedSums(NamedTuple):
    """Sums over the labelled positions of a batch, float32 scalars; they add up exactly over batches of any size."""

    nats: jax.Array  # negative log-likelihood of the subwords whose characters are hidden
    labels: jax.Array  # these subwords
    right: jax.Array  # of those, predicted as the most likely one


def character_masked_sums(
    model: Char2SubwordForMaskedLM, params: Any, batch: CharacterMaskedBatch, dropout_key: jax.Array | None
) -> CharacterMaskedSums:
    """Applies a model to a micro-batch [S, ...] and sums its loss and hits.

    Args:
      dropout_key: randomness of dropout; None: evaluation, no dropout.
    """
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    apply = applied(model, {"params": params}, rngs)
    output = apply(batch.inputs, batch.position_SM, deterministic=dropout_key is None)
    return CharacterMaskedSums(*label_sums(output.logits, batch.labels_SM))


def summarize(sums: CharacterMaskedSums) -> dict[str, float]:
    """Returns what a person reads: the loss (nats a label) and the share of hits.

    Raises:
      ValueError: when nothing was masked.
    """
    nats, labels, right = (float(x) for x in sums)
    if not labels:
        raise ValueError("no subword was masked: too little text, or data.mask_rate too small for it")
    return {"loss": nats / labels, "mlm_accuracy": right / labels}
