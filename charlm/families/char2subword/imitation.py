"""The four losses for imitating an embedding table, and its measures (Aguilar et al., 2021, sections 3.1 and 4).

`loss` applies them to batches; open this module to change a loss or a measure itself. The table E [V, D] is fixed: it
gets no gradient, neither as target, nor as neighbour, nor in the softmax. Neighbours are the rows with the largest
cosine, and a row is its own first neighbour (as in table 3 of the paper).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

LOSSES = ("cosine", "distance", "neighbours", "cross_entropy")
DISTANCES = ("norm", "mean_square")
NEIGHBOURS = 15  # neighbours that precision is measured on (section 4, Figure 4)
ROWS_AT_ONCE = 4096  # rows of the table that are scored at once


class Neighbours(NamedTuple):
    """The rows of a table nearest to each row: ids int32 [V, k], nearest first, and cosines float32 [V, k]."""

    ids: np.ndarray
    cosines: np.ndarray


class Imitation(NamedTuple):
    """The terms of the loss for each word, float32 [B].

    Below, e is the word's row of the table, f the module's vector, and y the id of the row.

    Attributes:
      cosine: 1 - cos(e, f).
      distance: |e - f|, or the mean of (e - f)² over the width.
      neighbours: mean squared difference of the cosine distances of e and f to the neighbours of e.
      cross_entropy: -log softmax(f E)[y].
    """

    cosine: jax.Array
    distance: jax.Array
    neighbours: jax.Array
    cross_entropy: jax.Array


def unit(x: jax.Array) -> jax.Array:
    """Returns vectors [..., D] scaled to length 1; a zero vector stays zero, and its gradient stays finite."""
    length = jnp.sqrt(jnp.maximum((x * x).sum(axis=-1, keepdims=True), 1e-24))
    return x / length


def imitate(
    vectors_BD: jax.Array,
    table_VD: jax.Array,
    ids_B: jax.Array,
    neighbours_BK: jax.Array,
    distance: Literal["norm", "mean_square"] = "norm",
    dtype: DTypeLike = jnp.float32,
) -> Imitation:
    """Returns the four terms of the loss.

    Args:
      vectors_BD: the module's vectors of spellings, float32.
      table_VD: the fixed table, float32.
      ids_B: ids of the rows that the vectors are to imitate.
      neighbours_BK: ids of the rows nearest to those rows.
      distance: "norm", as the paper writes it; or "mean_square", which keeps this term from being half of the sum.
      dtype: what the inputs of the cross entropy's products are rounded to; their sums are float32.

    Raises:
      ValueError: `distance` is neither of the two.
    """
    if distance not in DISTANCES:
        raise ValueError(f"distance={distance!r} is not one of {', '.join(DISTANCES)}")
    table_VD = jax.lax.stop_gradient(table_VD)
    target_BD = table_VD[ids_B]
    ours_BD, theirs_BD = unit(vectors_BD), unit(target_BD)
    near_BKD = unit(table_VD[neighbours_BK])
    to_near = lambda x_BD: jnp.einsum("bd,bkd->bk", x_BD, near_BKD)
    off_BD = vectors_BD - target_BD
    squares_B = (off_BD * off_BD).sum(axis=-1)
    # From the same rounded inputs as the logits of the normaliser, or the cross entropy could be negative.
    own_logit_B = (_rounded(vectors_BD, dtype) * _rounded(target_BD, dtype)).sum(axis=-1)
    return Imitation(
        cosine=1 - (ours_BD * theirs_BD).sum(axis=-1),
        # The square root has no finite gradient at 0; below the floor it is 0, and there is nothing left to learn.
        distance=jnp.sqrt(jnp.maximum(squares_B, 1e-24)) if distance == "norm" else squares_B / off_BD.shape[-1],
        neighbours=jnp.square(to_near(theirs_BD) - to_near(ours_BD)).mean(axis=-1),
        cross_entropy=log_normalizer(vectors_BD, table_VD, dtype) - own_logit_B,
    )


def _rounded(x: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Returns x rounded to a dtype, as float32; its gradient is that of x, without rounding."""
    if jnp.dtype(dtype) == x.dtype:
        return x
    kept = jnp.finfo(dtype)
    rounded = jax.lax.reduce_precision(x, exponent_bits=kept.nexp, mantissa_bits=kept.nmant)  # compilers drop two casts
    return x + jax.lax.stop_gradient(rounded - x)


def _log_normalizer(vectors_BD: jax.Array, table_VD: jax.Array, dtype: DTypeLike = jnp.float32) -> jax.Array:
    """Returns log sum_v exp(f . e_v) [B], scoring `ROWS_AT_ONCE` rows of the table at a time.

    A step thus holds logits [B, ROWS] for any size of vocabulary; logits for all 119,547 rows of mBERT would take
    0.5 MB per word. The gradient is the mean of the rows under the softmax. It is accumulated in the same pass and
    rescaled when a larger logit is found (as in Dao et al., 2022, arXiv 2205.14135), so no row is scored twice. The
    table gets no gradient.

    Args:
      dtype: dtype of the inputs of products; their sums are float32.
    """
    return _normalize(vectors_BD, table_VD, dtype, with_mean=False)[0]


log_normalizer = jax.custom_vjp(_log_normalizer, nondiff_argnums=(2,))


def _normalize(
    vectors_BD: jax.Array, table_VD: jax.Array, dtype: DTypeLike, with_mean: bool
) -> tuple[jax.Array, jax.Array]:
    """Returns the logarithm [B], and the mean row under the softmax [B, D], which is zeros without `with_mean`."""
    B, (V, D) = len(vectors_BD), table_VD.shape
    rows = min(ROWS_AT_ONCE, V)

    def add(carry: tuple[jax.Array, ...], start: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
        most_B, total_B, mean_BD = carry
        # The last slice starts earlier so that all slices have one size; its rows already scored are masked below.
        first = jnp.minimum(start, V - rows)
        rows_RD = jax.lax.dynamic_slice_in_dim(table_VD, first, rows).astype(dtype)
        logits_BR = jnp.einsum("bd,rd->br", vectors_BD.astype(dtype), rows_RD, preferred_element_type=jnp.float32)
        logits_BR = jnp.where((first + jnp.arange(rows) >= start)[None], logits_BR, -jnp.inf)
        now_B = jnp.maximum(most_B, logits_BR.max(axis=-1))
        weights_BR, before_B = jnp.exp(logits_BR - now_B[:, None]), jnp.exp(most_B - now_B)
        total_B = total_B * before_B + weights_BR.sum(axis=-1)
        if with_mean:
            more_BD = jnp.einsum("br,rd->bd", weights_BR.astype(dtype), rows_RD, preferred_element_type=jnp.float32)
            mean_BD = mean_BD * before_B[:, None] + more_BD
        return (now_B, total_B, mean_BD), None

    first = (jnp.full(B, -jnp.inf), jnp.zeros(B), jnp.zeros((B, D)))
    (most_B, total_B, mean_BD), _ = jax.lax.scan(add, first, jnp.arange(0, V, rows))
    return jnp.log(total_B) + most_B, mean_BD / total_B[:, None]


def _normalize_forward(
    vectors_BD: jax.Array, table_VD: jax.Array, dtype: DTypeLike
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    value_B, mean_BD = _normalize(vectors_BD, table_VD, dtype, with_mean=True)
    return value_B, (mean_BD, table_VD)


def _normalize_backward(
    dtype: DTypeLike, kept: tuple[jax.Array, jax.Array], cotangent_B: jax.Array
) -> tuple[jax.Array, jax.Array]:
    mean_BD, table_VD = kept
    return cotangent_B[:, None] * mean_BD, jnp.zeros_like(table_VD)


log_normalizer.defvjp(_normalize_forward, _normalize_backward)


def nearest(vectors_BD: jax.Array, table_VD: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Returns cosines and ids, [B, k] each, of the k rows of the table nearest to each vector, nearest first."""
    return jax.lax.top_k(unit(vectors_BD) @ unit(table_VD).T, k)


def neighbours(table_VD: np.ndarray, k: int = NEIGHBOURS, rows: int = 1024) -> Neighbours:
    """Returns the k nearest rows of every row, itself included; compares `rows` rows with the whole table at a time."""
    find = jax.jit(nearest, static_argnums=2)
    table = jnp.asarray(table_VD, jnp.float32)
    padded = np.concatenate([table_VD, np.zeros((-len(table_VD) % rows, table_VD.shape[1]), table_VD.dtype)])
    found = [jax.device_get(find(padded[i : i + rows], table, k)) for i in range(0, len(padded), rows)]
    cosines, ids = (np.concatenate(parts)[: len(table_VD)] for parts in zip(*found, strict=True))
    return Neighbours(ids.astype(np.int32), cosines)


class Precision(NamedTuple):
    """How well vectors imitate rows of a table, per word.

    Attributes:
      right_B: bool, whether the word's own row has the largest product with the vector.
      shared_BK: float32, for k = 1 to K: which share of the k rows nearest to the word's row is among the k rows
        nearest to the vector.
    """

    right_B: np.ndarray
    shared_BK: np.ndarray

    def summary(self) -> dict[str, float]:
        """Returns accuracy, precision at 1 and at K, and the paper's average precision: the mean over k = 1 to K."""
        at_k = self.shared_BK.mean(axis=0)
        return {
            "accuracy": float(self.right_B.mean()),
            "precision_at_1": float(at_k[0]),
            f"precision_at_{len(at_k)}": float(at_k[-1]),
            "average_precision": float(at_k.mean()),
        }


def precision(vectors_BD: jax.Array, table_VD: jax.Array, ids_B: jax.Array, near_BK: jax.Array) -> Precision:
    """Returns how well vectors imitate their rows.

    Args:
      ids_B: ids of the rows that the vectors are to imitate.
      near_BK: ids of the rows nearest to those rows, nearest first, as `neighbours` returns them.
    """
    return Precision(*jax.device_get(precision_of(vectors_BD, table_VD, ids_B, near_BK)))


def precision_of(
    vectors_BD: jax.Array, table_VD: jax.Array, ids_B: jax.Array, near_BK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the arrays of `Precision`, traceable; see `precision`."""
    K = near_BK.shape[1]
    right_B = (vectors_BD @ table_VD.T).argmax(axis=-1) == ids_B
    _, found_BK = nearest(vectors_BD, table_VD, K)
    same_BKK = near_BK[:, :, None] == found_BK[:, None, :]
    # Hits among the first k of both: a cumulative count along both axes, read on the diagonal.
    hits_BKK = same_BKK.cumsum(axis=1).cumsum(axis=2)
    return right_B, jnp.diagonal(hits_BKK, axis1=1, axis2=2) / jnp.arange(1, K + 1)[None]
