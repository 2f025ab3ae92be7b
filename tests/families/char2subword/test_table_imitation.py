"""Tests the approximation's sums: they add up, unseen entries are only measured, terms of weight 0 are left out."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from again import again
from programs import initial

from charlm.families.char2subword import loss
from charlm.families.char2subword.batch import ImitationBatch
from charlm.families.char2subword.imitation import LOSSES, imitate, neighbours, precision
from charlm.families.char2subword.loss import ImitationSums, imitation_sums, summarize
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig

RNG = np.random.default_rng(0)
V, D, K = 40, 12, 5
TABLE = RNG.normal(size=(V, D)).astype(np.float32)
NEAR = neighbours(TABLE, K, rows=16).ids
MODEL = Char2Subword(Char2SubwordConfig(char_vocab_size=20, hidden=8, layers=1, heads=2, output=D, char_slots=9))
ONE = dict.fromkeys(LOSSES, 1.0)


def make_batch(entries, unseen=()):
    """Two buckets, of even entries and of odd ones, with a row of padding at the end of each."""
    tables = []
    for some, slots in zip((entries[entries % 2 == 0], entries[entries % 2 == 1]), (5, 9), strict=True):
        chars = np.zeros((1, len(some) + 1, slots), np.uint16)
        chars[0, :-1] = 8 + (some[:, None] * 7 + np.arange(slots) * 3) % 12
        ids = np.append(some, -1).astype(np.int32)[None]
        tables.append((chars, ids, NEAR[np.maximum(ids, 0)], np.isin(ids, list(unseen))))
    return ImitationBatch(*(tuple(column) for column in zip(*tables, strict=True)))


@pytest.fixture(scope="module")
def params():
    return initial(MODEL, make_batch(np.arange(4)).chars[0][0])


def test_each_bucket_has_dropout_of_its_own(params, monkeypatch):
    batch = make_batch(np.arange(4))
    batch = batch._replace(**{name: (getattr(batch, name)[0],) * 2 for name in batch._fields})
    found = []

    def seen(vectors, *rest):
        found.append(np.asarray(vectors))
        return imitate(vectors, *rest)

    monkeypatch.setattr(loss, "imitate", seen)
    model = MODEL.clone(config=dataclasses.replace(MODEL.config, dropout=0.5))
    for key in (jax.random.key(0), None):
        imitation_sums(model, params, TABLE, batch, key, ONE, "norm")
    (first, second), (quiet, same) = (np.split(vectors, 2) for vectors in found)
    assert np.abs(first - second)[:-1].max() > 1e-3
    np.testing.assert_array_equal(quiet, same)


@functools.cache
def program(weights, distance):
    """Returns sums and gradient as one program each: op by op, every operation is a program of its own."""
    sums = lambda p, *batch: imitation_sums(MODEL, p, TABLE, *batch, dict(zip(LOSSES, weights, strict=True)), distance)
    loss = lambda *arguments: ((found := sums(*arguments)).loss, found)
    return jax.jit(sums), jax.jit(jax.grad(loss, has_aux=True))


def sums_of(params, batch, key=None, weights=ONE, distance="norm"):
    return jax.device_get(program(tuple(weights.values()), distance)[0](params, batch, key))


def gradient_and_sums_of(params, batch, key, weights):
    return jax.device_get(program(tuple(weights.values()), "norm")[1](params, batch, key))


spelled = jax.jit(lambda params, chars: MODEL.apply({"params": params}, chars))


def vectors_of(params, batch):
    found = [spelled(params, chars[0, :-1]) for chars in batch.chars]
    return np.concatenate(found), np.concatenate([ids[0, :-1] for ids in batch.ids])


@pytest.mark.parametrize("distance", ["norm", "mean_square"])
def test_sums_are_those_of_the_terms_and_measures(params, distance):
    batch = make_batch(np.arange(12), unseen={1, 7})
    sums = sums_of(params, batch, distance=distance)
    vectors, ids = vectors_of(params, batch)
    seen = ~np.isin(ids, [1, 7])
    terms = jax.jit(imitate, static_argnums=4)(vectors, TABLE, ids, NEAR[ids], distance)
    for name in LOSSES:
        np.testing.assert_allclose(getattr(sums, name), np.asarray(getattr(terms, name))[seen].sum(), rtol=1e-5)
    np.testing.assert_allclose(sums.loss, sum(float(getattr(sums, name)) for name in LOSSES), rtol=1e-5)
    np.testing.assert_allclose(sums.norm, np.linalg.norm(vectors, axis=1)[seen].sum(), rtol=1e-5)
    found = precision(vectors, TABLE, ids, NEAR[ids])
    assert float(sums.count) == 10
    assert float(sums.unseen) == 2
    for prefix, chosen in (("", seen), ("unseen_", ~seen)):
        np.testing.assert_allclose(getattr(sums, f"{prefix}right"), found.right_B[chosen].sum())
        np.testing.assert_allclose(getattr(sums, f"{prefix}at_k"), found.shared_BK[chosen, -1].sum(), rtol=1e-6)
        np.testing.assert_allclose(getattr(sums, f"{prefix}average"), found.shared_BK[chosen].mean(1).sum(), rtol=1e-6)
    np.testing.assert_allclose(sums.at_1, found.shared_BK[seen, 0].sum())
    nothing = summarize(sums._replace(right=0.0, at_1=0.0, at_k=0.0, average=0.0))
    assert nothing["accuracy"] == nothing["average_precision"] == 0  # a module that knows nothing is measured, too


def test_sums_add_up_over_batches(params):
    whole = sums_of(params, make_batch(np.arange(12), unseen={2, 4}))  # four count of one half, six of the other
    parts = [sums_of(params, make_batch(entries, unseen={2, 4})) for entries in (np.arange(6), np.arange(6, 12))]
    added = ImitationSums(*map(sum, zip(*parts, strict=True)))
    for name, value in whole._asdict().items():
        np.testing.assert_allclose(getattr(added, name), value, rtol=1e-5, err_msg=name)
    for name, value in summarize(whole).items():
        np.testing.assert_allclose(summarize(added)[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("left_out", [LOSSES[0], *map(again, LOSSES[1:])])
def test_a_term_without_weight_is_left_out(params, left_out):
    batch = make_batch(np.arange(8))
    weights = ONE | {left_out: 0.0}
    key = jax.random.key(0)
    (gradient, sums), (whole, every) = (gradient_and_sums_of(params, batch, key, w) for w in (weights, ONE))
    assert float(getattr(sums, left_out)) == 0
    np.testing.assert_allclose(every.loss - getattr(every, left_out), sums.loss, rtol=1e-5)
    assert not jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-6), gradient, whole))
    assert float(sums.measured) == float(sums.right) == 0  # precision is not measured while training
    assert "accuracy" not in summarize(sums)


def test_weights_weigh(params):
    batch, key = make_batch(np.arange(8)), jax.random.key(0)
    every = sums_of(params, batch, key)
    weighed = sums_of(params, batch, key, ONE | {"cosine": 3.0})
    np.testing.assert_allclose(weighed.loss - every.loss, 2 * every.cosine, rtol=1e-5)


def test_nothing_to_learn_is_said():
    with pytest.raises(ValueError, match=r"data\.unseen leaves none"):
        summarize(ImitationSums(*[0.0] * len(ImitationSums._fields)))
