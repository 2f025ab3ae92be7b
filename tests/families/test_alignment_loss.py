"""Tests the loss of alignment against loops in NumPy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from charlm.families.alignment_loss import (
    AlignmentSums,
    AlignmentWeights,
    alignment_sums,
    divergences,
    summarize,
)

S, B, L, D = 2, 3, 5, 4


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(2, S * B, L, D)).astype(np.float32)
    mask = np.arange(L) < np.array([[5, 3, 4], [2, 5, 0]])[..., None]
    clean_mask = np.arange(L) < np.array([[4, 3, 5], [2, 4, 0]])[..., None]
    group = np.where(mask, [-1, 0, 0, 1, 2], -1).astype(np.int32)
    clean_group = np.where(clean_mask, [-1, 0, 1, 2, 3], -1).astype(np.int32)
    noisy = np.array([[True, False, True], [False, True, False]])
    return student, teacher, mask, group, clean_mask, clean_group, noisy


def weights(pooling="mean"):
    return AlignmentWeights(sentence=0.5, words=2.0, teaching=0.25, temperature=0.1, pooling=pooling)


def unit(x):
    return x / np.linalg.norm(x)


def by_loops(student, teacher, mask, group, clean_mask, clean_group, noisy, chosen):
    """Returns for each text that is there: its noise, 1 - cos of text and of words, and the divergence."""
    student, teacher = (x.astype(np.float64).reshape(S, B, L, D) for x in (student, teacher))
    pool = lambda x, m: unit(x[m].mean(axis=0) if chosen.pooling == "mean" else x[0])
    found = []
    for s in range(S):
        there = [b for b in range(B) if mask[s, b].any()]
        one = {b: pool(student[s, b], mask[s, b]) for b in there}
        other = {b: pool(teacher[s, b], clean_mask[s, b]) for b in there}
        for b in there:
            words = []
            for g in range(L):
                mine, theirs = student[s, b][group[s, b] == g], teacher[s, b][clean_group[s, b] == g]
                if len(mine) and len(theirs):
                    words.append(1 - unit(mine.mean(axis=0)) @ unit(theirs.mean(axis=0)))
            others = [c for c in there if c != b]
            softmax = lambda x: np.exp(x) / np.exp(x).sum()
            p, q = (softmax(np.array([v[b] @ other[c] for c in others]) / chosen.temperature) for v in (other, one))
            found.append((noisy[s, b], 1 - one[b] @ other[b], np.mean(words), (p * np.log(p / q)).sum()))
    return found


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sums_are_those_of_loops(made, pooling):
    chosen = weights(pooling)
    found = by_loops(*made, chosen)
    assert len(found) == 5
    sums = jax.jit(lambda *arrays: alignment_sums(*arrays, chosen))(*made)
    sentence, words, teaching = (sum(row[n] for row in found) for n in (1, 2, 3))
    want = [0.5 * sentence + 2 * words + 0.25 * teaching, 5, sentence, words, teaching]
    for noisy in (False, True):
        rows = [row for row in found if row[0] == noisy]
        want += [len(rows), sum(1 - row[1] for row in rows)]
    want += [sum(1 - row[2] for row in found if row[0] == noisy) for noisy in (False, True)]
    np.testing.assert_allclose(sums, want, rtol=2e-4, atol=1e-5)
    metrics = summarize(sums)
    assert metrics["loss"] == pytest.approx(want[0] / 5, rel=1e-4)
    assert metrics["noisy_cosine"] == pytest.approx(want[8] / want[7], rel=1e-4)


def test_texts_of_padding_and_a_text_alone_give_finite_gradients(made):
    student, teacher, mask, group, clean_mask, clean_group, noisy = made
    alone = mask.copy()
    alone[:, 1:] = False
    loss = lambda x: alignment_sums(x, teacher, alone, group, clean_mask, clean_group, noisy, weights()).loss
    assert np.isfinite(jax.jit(jax.grad(loss))(student)).all()
    sums = alignment_sums(student, teacher, alone, group, clean_mask, clean_group, noisy, weights())
    assert (float(sums.texts), float(sums.teaching)) == (2, 0)


def test_equal_vectors_cost_nothing(made):
    student, _, mask, group, *_, noisy = made
    sums = alignment_sums(student, student, mask, group, mask, group, noisy, weights())
    np.testing.assert_allclose([sums.sentence, sums.words, sums.teaching], 0, atol=1e-5)


def test_no_text_is_said():
    with pytest.raises(ValueError, match="there was no text to align"):
        summarize(AlignmentSums(*np.zeros(11)))


def test_the_same_text_with_other_noise_is_none_of_the_others():
    rng = np.random.default_rng(1)
    student, teacher = (unit_rows(rng.normal(size=(1, 4, D))).astype(np.float32) for _ in range(2))
    without = divergences(student[:, [0, 1, 3]], teacher[:, [0, 1, 3]], np.ones((1, 3), bool), 0.1)
    teacher[:, 2] = teacher[:, 0]
    twins = divergences(student, teacher, np.ones((1, 4), bool), 0.1)
    np.testing.assert_allclose(twins[0, 0], without[0, 0], rtol=1e-5)
    assert float(twins[0, 0]) > 0.01


def unit_rows(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
