"""The loss of the approximation stage: sums of the four losses over a batch of spellings, and the means they give.

The objective of that stage calls it; open it to report another metric. `imitation` defines the losses themselves.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from charlm.core.types import Params
from charlm.families.char2subword.batch import ImitationBatch
from charlm.families.char2subword.imitation import LOSSES, NEIGHBOURS, imitate, precision_of
from charlm.families.char2subword.module import Char2Subword
from charlm.nn.apply import applied


class ImitationSums(NamedTuple):
    """Sums over the spellings of a batch, float32 scalars.

    The losses are summed over entries that are trained on; a term whose weight is 0 stays 0. The fields from `measured`
    on are counted in evaluation only; those whose names begin with "unseen" are of entries that are not trained on. See
    `charlm.families.char2subword.imitation.Precision`.
    """

    loss: jax.Array  # weighted sum of the terms
    count: jax.Array  # entries trained on  # pyright: ignore[reportIncompatibleMethodOverride]  # no method of tuples
    cosine: jax.Array
    distance: jax.Array
    neighbours: jax.Array
    cross_entropy: jax.Array
    norm: jax.Array  # length of the vectors
    measured: jax.Array  # entries whose precision was measured
    right: jax.Array  # entries whose own row has the largest product
    at_1: jax.Array  # entries whose nearest row is their own
    at_k: jax.Array  # shares of the k nearest rows that are right, k = `NEIGHBOURS`
    average: jax.Array  # the same, averaged over 1 ... k
    unseen: jax.Array  # entries that are not trained on
    unseen_right: jax.Array
    unseen_at_k: jax.Array
    unseen_average: jax.Array


def imitation_sums(
    model: Char2Subword,
    params: Params,
    table_VD: jax.Array,
    batch: ImitationBatch,
    dropout_key: jax.Array | None,
    weights: dict[str, float],
    distance: Literal["norm", "mean_square"],
    neighbour_count: int | None = None,
) -> ImitationSums:
    """Applies the module to a micro-batch and sums the losses; without a dropout key it measures precision as well.

    Args:
      params: parameters of the module.
      table_VD: the fixed table, float32.
      batch: arrays [S, U, ...].
      dropout_key: key of the dropout in training; None: evaluation.
      weights: weight of each term in `LOSSES`.
      distance: see `imitate`.
      neighbour_count: how many of the neighbours in the batch the loss uses; None: all. Precision is measured on
        `NEIGHBOURS` of them, or on all if there are fewer.
    """
    join = lambda arrays: jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in arrays])
    quiet, spelled = dropout_key is None, []
    for number, chars in enumerate(batch.chars):  # each has masks of its own
        rngs = None if dropout_key is None else {"dropout": jax.random.fold_in(dropout_key, number)}
        spell = applied(model, {"params": params}, rngs)
        spelled.append(spell(chars.reshape(-1, chars.shape[-1]), deterministic=quiet))
    vectors_BD = jnp.concatenate(spelled)
    ids_B, near_BK, unseen_B = join(batch.ids), join(batch.near), join(batch.unseen)
    seen_B = (ids_B >= 0) & ~unseen_B
    rows_B = jnp.maximum(ids_B, 0)
    dtype = model.config.dtype if dropout_key is not None else jnp.float32
    terms = imitate(vectors_BD, table_VD, rows_B, near_BK[:, :neighbour_count], distance, dtype)
    none = jnp.zeros((), jnp.float32)
    total = lambda x_B, where_B: jnp.where(where_B, x_B, 0).sum(dtype=jnp.float32)
    # A term without weight costs nothing: the compiler drops computations whose result is not used.
    parts = {name: total(getattr(terms, name), seen_B) if weights[name] else none for name in LOSSES}
    loss = sum(weights[name] * parts[name] for name in LOSSES)
    measured = {}
    if dropout_key is None:
        right_B, shared_BK = precision_of(vectors_BD, table_VD, rows_B, near_BK[:, :NEIGHBOURS])
        unseen_B = unseen_B & (ids_B >= 0)
        one_B = jnp.ones_like(right_B, jnp.float32)
        for prefix, where_B in (("", seen_B), ("unseen_", unseen_B)):
            measured[f"{prefix}right"] = total(right_B, where_B)
            measured[f"{prefix}at_k"] = total(shared_BK[:, -1], where_B)
            measured[f"{prefix}average"] = total(shared_BK.mean(axis=1), where_B)
        measured["at_1"] = total(shared_BK[:, 0], seen_B)
        measured["measured"] = total(one_B, seen_B)
        measured["unseen"] = total(one_B, unseen_B)
    norm_B = jnp.sqrt((vectors_BD * vectors_BD).sum(axis=-1))
    known = {"loss": loss, "count": seen_B.sum(dtype=jnp.float32), "norm": total(norm_B, seen_B)} | parts | measured
    return ImitationSums(**{name: known.get(name, none) for name in ImitationSums._fields})


def summarize(sums: ImitationSums) -> dict[str, float]:
    """Returns the means of the loss, its terms and the length of the vectors, and in evaluation accuracy and precision.

    Raises:
      ValueError: no entry was counted.
    """
    values = {name: float(value) for name, value in sums._asdict().items()}
    count, unseen = values["count"], values["unseen"]
    if not count:
        raise ValueError("no entry of the vocabulary was read: data.unseen leaves none")
    metrics = {name: values[name] / count for name in ("loss", *LOSSES, "norm")}
    if measured := values["measured"]:
        metrics |= {
            "accuracy": values["right"] / measured,
            "precision_at_1": values["at_1"] / measured,
            "precision_at_k": values["at_k"] / measured,
            "average_precision": values["average"] / measured,
        }
    if unseen:
        metrics |= {
            "unseen_accuracy": values["unseen_right"] / unseen,
            "unseen_precision_at_k": values["unseen_at_k"] / unseen,
            "unseen_average_precision": values["unseen_average"] / unseen,
        }
    return metrics
