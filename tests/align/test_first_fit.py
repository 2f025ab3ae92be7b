"""Tests the first linear layer behind a student against the regression by hand."""

from __future__ import annotations

import numpy as np

from charlm.align import fit
from charlm.families.aligned_batches import AlignedBatch

S, B, L, D, E = 2, 3, 5, 6, 4


def batch_of(seed):
    """A batch whose states are its inputs, and the same with the vectors that it consists of."""
    rng = np.random.default_rng(seed)
    own, theirs = rng.normal(size=(S * B, L, D)).astype(np.float32), rng.normal(size=(S * B, L, E)).astype(np.float32)
    lengths = rng.integers(0, L + 1, (S, B, 1))
    mask = np.arange(L) < lengths
    group = np.where(mask & (np.arange(L) > 0), [[[-1, 0, 0, 1, 2]]], -1).astype(np.int32)
    return AlignedBatch(own, theirs, mask, mask, group, group, np.zeros((S, B), bool))


def test_it_is_the_ridge_regression_over_texts_and_words(monkeypatch):
    monkeypatch.setattr(fit, "TEXTS", 40)
    batches = [batch_of(seed) for seed in range(30)]
    read, rows, wanted, weights = 0, [], [], []
    unit = lambda x: x / np.linalg.norm(x)
    for batch in batches:
        mask, group = batch.mask_SBL.reshape(-1, L), batch.group_SBL.reshape(-1, L)
        for n in np.flatnonzero(mask.any(axis=1)):
            chosen = [(mask[n], 1.0)]
            words = range(group[n].max() + 1)
            chosen += [(group[n] == word, 1 / len(words)) for word in words]
            for places, weight in chosen:
                rows.append(unit(batch.inputs[n][places].mean(axis=0)))
                wanted.append(unit(batch.teacher[n][places].mean(axis=0)))
                weights.append(weight)
        read += int(mask.any(axis=1).sum())
        if read >= fit.TEXTS:
            break
    X, Y, w = np.array(rows, np.float64), np.array(wanted, np.float64), np.array(weights)[:, None]
    squares = X.T @ (w * X)
    expected = np.linalg.solve(squares + fit.RIDGE * np.diag(squares).mean() * np.eye(D), X.T @ (w * Y))
    found = fit.fitted_kernel(lambda _, batch: (batch.inputs, batch.teacher), {}, iter(batches), "mean")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_student_that_only_turned_the_space_is_turned_back():
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))
    batches = [batch_of(seed)._replace(teacher=batch_of(seed).inputs @ turn.astype(np.float32)) for seed in range(30)]
    found = fit.fitted_kernel(lambda _, batch: (batch.inputs, batch.teacher), {}, iter(batches), "mean")
    np.testing.assert_allclose(found, turn, atol=5e-3)
