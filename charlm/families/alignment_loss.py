"""The loss of alignment: a student that reads noisy text is to have the vectors of a teacher of clean text.

Open it to change a part of the loss, or to report another sum. The parts are the cosines of whole texts and of words,
and self-teaching: each text is to be as similar to the other texts as the teacher finds it (Zhuang and Zuccon, SIGIR
2022, arXiv 2204.00716, there for queries with typos and passages).
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.families.alignment_keys import PARTS

SAME = 1e-5  # texts whose vectors of the teacher have a cosine this near to 1 are the same text


@dataclasses.dataclass(frozen=True)
class AlignmentWeights:
    """How the parts of the loss are weighed.

    Attributes:
      sentence: weight of 1 - cos of the vectors of texts.
      words: weight of 1 - cos of the vectors of groups of words, a mean over those of a text.
      teaching: weight of the divergence of the distributions of similarities.
      temperature: by which similarities are divided before the softmax.
      pooling: the vector of a text: the "mean" of its positions, or its first position, "cls".
    """

    sentence: float
    words: float
    teaching: float
    temperature: float
    pooling: Literal["mean", "cls"]


class AlignmentSums(NamedTuple):
    """Sums over the texts of a batch, float32 scalars; they add up exactly over batches of any size."""

    loss: jax.Array
    texts: jax.Array
    sentence: jax.Array  # 1 - cos
    words: jax.Array  # 1 - cos, a mean over the groups of each text
    teaching: jax.Array  # divergences in nats
    clean_texts: jax.Array  # texts without noise
    clean_cosine: jax.Array  # their cosines
    noisy_texts: jax.Array  # texts with noise
    noisy_cosine: jax.Array
    clean_words: jax.Array  # mean cosines of the words of texts without noise
    noisy_words: jax.Array


def pooled(states_NLD: jax.Array, mask_NL: jax.Array, pooling: str) -> jax.Array:
    """Returns the vectors of texts, float32 [N, D], of length 1; those of padding are 0."""
    states_NLD = states_NLD.astype(jnp.float32)
    if pooling == "cls":  # the first position that counts
        first_N11 = jnp.argmax(mask_NL, axis=1)[:, None, None]
        first_ND = jnp.take_along_axis(states_NLD, first_N11, axis=1)[:, 0]
        return unit(jnp.where(mask_NL.any(axis=1)[:, None], first_ND, 0))
    return unit(jnp.where(mask_NL[..., None], states_NLD, 0).sum(axis=1))


def unit(x: jax.Array) -> jax.Array:
    """Returns vectors of length 1, or of 0 for those that are 0."""
    squares = (x * x).sum(axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, np.float32(1e-24)))


def group_vectors(states_NLD: jax.Array, group_NL: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the means of the states of each group, of length 1, float32 [N, L, D], and whether it has any, [N, L]."""
    member_NLG = group_NL[..., None] == jnp.arange(group_NL.shape[1])[None, None]
    sums_NGD = jnp.einsum("nlg,nld->ngd", member_NLG.astype(jnp.float32), states_NLD.astype(jnp.float32))
    return unit(sums_NGD), member_NLG.any(axis=1)


def divergences(student_SBD: jax.Array, teacher_SBD: jax.Array, real_SB: jax.Array, temperature: float) -> jax.Array:
    """Returns for each text KL(teacher || student) of its similarities to the shard's other texts, float32 [S, B].

    The others are the teacher's vectors on both sides, because the student's are compared with those in use. The same
    text with other noise, as held-out text comes, is none of them.
    """
    alike_SBB = jnp.einsum("sbd,scd->sbc", teacher_SBD, teacher_SBD, precision=jax.lax.Precision.HIGHEST)
    same_SBB = jnp.eye(real_SB.shape[1], dtype=bool)[None] | (alike_SBB > np.float32(1 - SAME))
    others_SBB = real_SB[:, None, :] & ~same_SBB
    some_SB = real_SB & others_SBB.any(axis=-1)

    def logs(vectors_SBD: jax.Array) -> jax.Array:
        similar_SBB = jnp.einsum("sbd,scd->sbc", vectors_SBD, teacher_SBD) / temperature
        return jax.nn.log_softmax(jnp.where(others_SBB, similar_SBB, np.float32(-1e9)), axis=-1)

    wanted_SBB = logs(teacher_SBD)
    parts_SBB = jnp.exp(wanted_SBB) * (wanted_SBB - logs(student_SBD))
    return jnp.where(some_SB, jnp.where(others_SBB, parts_SBB, 0).sum(axis=-1), 0)


def alignment_sums(
    student_NLD: jax.Array,
    teacher_NLD: jax.Array,
    mask_SBL: jax.Array,
    group_SBL: jax.Array,
    clean_mask_SBL: jax.Array,
    clean_group_SBL: jax.Array,
    noisy_SB: jax.Array,
    weights: AlignmentWeights,
) -> AlignmentSums:
    """Returns the sums of a micro-batch.

    Args:
      student_NLD, teacher_NLD: last states of the S * B texts.
      mask_SBL, clean_mask_SBL: bool, True at the positions that make the vector of a text, of the student and of the
        teacher.
      group_SBL, clean_group_SBL, noisy_SB: see `AlignedBatch`.
    """
    flat = lambda x: x.reshape(-1, x.shape[-1])
    real_SB = mask_SBL.any(axis=-1)
    student_ND = pooled(student_NLD, flat(mask_SBL), weights.pooling)
    teacher_ND = pooled(teacher_NLD, flat(clean_mask_SBL), weights.pooling)
    cosine_SB = (student_ND * teacher_ND).sum(axis=-1).reshape(real_SB.shape)
    own_NGD, own_NG = group_vectors(student_NLD, flat(group_SBL))
    theirs_NGD, theirs_NG = group_vectors(teacher_NLD, flat(clean_group_SBL))
    both_NG = own_NG & theirs_NG
    words_N = jnp.where(both_NG, 1 - (own_NGD * theirs_NGD).sum(axis=-1), 0).sum(axis=-1)
    words_SB = (words_N / jnp.maximum(both_NG.sum(axis=-1), 1)).reshape(real_SB.shape)
    shape = (*real_SB.shape, -1)
    teaching_SB = divergences(student_ND.reshape(shape), teacher_ND.reshape(shape), real_SB, weights.temperature)
    total = lambda values_SB, where_SB: jnp.where(where_SB, values_SB, 0).sum(dtype=jnp.float32)
    sentence, words, teaching = (total(x, real_SB) for x in (1 - cosine_SB, words_SB, teaching_SB))
    loss = weights.sentence * sentence + weights.words * words + weights.teaching * teaching
    clean_SB, noisy_SB = real_SB & ~noisy_SB, real_SB & noisy_SB
    count = lambda where_SB: where_SB.sum(dtype=jnp.float32)
    return AlignmentSums(
        loss,
        count(real_SB),
        sentence,
        words,
        teaching,
        count(clean_SB),
        total(cosine_SB, clean_SB),
        count(noisy_SB),
        total(cosine_SB, noisy_SB),
        total(1 - words_SB, clean_SB),
        total(1 - words_SB, noisy_SB),
    )


def summarize(sums: AlignmentSums) -> dict[str, float]:
    """Returns the loss, its parts, and the mean cosines of clean and noisy texts and of their words, as far as known.

    Raises:
      ValueError: there was no text.
    """
    values = {name: float(value) for name, value in sums._asdict().items()}
    if not values["texts"]:
        raise ValueError("there was no text to align")
    metrics = {name: values[name] / values["texts"] for name in ("loss", *PARTS)}
    for kind in ("clean", "noisy"):
        if count := values[f"{kind}_texts"]:
            metrics[f"{kind}_cosine"] = values[f"{kind}_cosine"] / count
            metrics[f"{kind}_word_cosine"] = values[f"{kind}_words"] / count
    return metrics
