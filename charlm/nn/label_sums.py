"""Sums cross entropy and hits over labelled positions, for all predictions of subwords and words.

The families' modules of losses call it; open it to change what counts as a hit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def label_sums(logits_SMV: jax.Array, labels_SM: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the negative log-likelihood (nats) of the labels, the number of labels and the hits, float32 scalars.

    Args:
      logits_SMV: float32.
      labels_SM: int; negative at places without a label.
    """
    real_SM = labels_SM >= 0
    label_SM1 = jnp.maximum(labels_SM, 0)[..., None]
    label_logits_SM = jnp.take_along_axis(logits_SMV, label_SM1, axis=-1)[..., 0]
    nats_SM = jax.nn.logsumexp(logits_SMV, axis=-1) - label_logits_SM
    right_SM = real_SM & (logits_SMV.argmax(axis=-1) == labels_SM)
    count = lambda x: x.sum(dtype=jnp.float32)
    return jnp.where(real_SM, nats_SM, 0).sum(), count(real_SM), count(right_SM)
