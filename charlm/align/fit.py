"""Fits the first linear layer behind a student: the one that brings its vectors nearest to the teacher's.

A student in a space of its own would else begin with vectors that say nothing of the teacher's. Open it to change what
is fitted, or on how much text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import numpy as np

from charlm.core.types import Params
from charlm.families.aligned_batches import AlignedBatch
from charlm.families.alignment_loss import group_vectors, pooled

TEXTS = 2048  # that are read at most
RIDGE = 1e-3  # added to the mean of the squares of each number, as a share of it: few texts fit too well

# From parameters and a batch to the last states of student and teacher, [N, L, D] and [N, L, E].
States = Callable[[Params, AlignedBatch], tuple[jax.Array, jax.Array]]


def fitted_kernel(states: States, params: Params, batches: Iterator[AlignedBatch], pooling: str) -> np.ndarray:
    """Returns the linear layer [D, E], float32, whose products with the student's vectors are the teacher's, nearly.

    It is a ridge regression over the vectors of texts and of words; the words of a text count as much as the text.

    Args:
      states: the states of both, before any linear layer.
      params: the parameters of both.
      batches: batches [S, B, ...] of training.
      pooling: how texts are pooled, see `pooled`.
    """

    @jax.jit
    def products(params: Params, batch: AlignedBatch) -> tuple[jax.Array, jax.Array, jax.Array]:
        flat = lambda x: x.reshape(-1, x.shape[-1])
        masks, groups = (batch.mask_SBL, batch.clean_mask_SBL), (batch.group_SBL, batch.clean_group_SBL)
        both = states(params, batch)
        texts_ND, theirs_NE = (pooled(x, flat(mask), pooling) for x, mask in zip(both, masks, strict=True))
        (own_NGD, own_NG), (other_NGE, other_NG) = (
            group_vectors(x, flat(group)) for x, group in zip(both, groups, strict=True)
        )
        there_NG = (own_NG & other_NG).astype(own_NGD.dtype)
        weight_NG = there_NG / there_NG.sum(axis=1, keepdims=True).clip(1)
        weighted_NGD = own_NGD * weight_NG[..., None]
        squares_DD = texts_ND.T @ texts_ND + jax.numpy.einsum("ngd,nge->de", weighted_NGD, own_NGD)
        mixed_DE = texts_ND.T @ theirs_NE + jax.numpy.einsum("ngd,nge->de", weighted_NGD, other_NGE)
        return squares_DD, mixed_DE, flat(batch.mask_SBL).any(axis=-1).sum()

    found, read = [], 0
    for batch in batches:
        squares, mixed, texts = jax.device_get(products(params, batch))
        found.append((squares, mixed))
        read += int(texts)
        if read >= TEXTS:
            break
    squares_DD, mixed_DE = (np.stack(parts).sum(axis=0, dtype=np.float64) for parts in zip(*found, strict=True))
    eye_DD = np.eye(squares_DD.shape[0])
    ridge = RIDGE * np.diag(squares_DD).mean()
    return np.linalg.solve(squares_DD + ridge * eye_DD, mixed_DE).astype(np.float32)
