"""Tests CharBERT's losses: sums equal those of a loop over labels, and any accumulation gives the same step."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from charlm.core.state import new_state
from charlm.core.step import make_train_step, mean_loss
from charlm.families.charbert.batch import CharBertBatch, NoisyBatch
from charlm.families.charbert.loss import NoisySums, label_weights, noisy_sums, summarize

V, T, D = 7, 5, 4


class Linear:
    """Stands in for a model: logits are linear in what stands at the positions."""

    def apply(self, variables, inputs, mlm_position_SM, nlm_position_SP=None, *, deterministic, rngs):
        assert deterministic == (rngs is None)
        params = variables["params"]
        states_SND = params["table"][inputs.ids_BL].reshape(len(mlm_position_SM), -1, D)
        at = lambda position: jnp.take_along_axis(states_SND, position[:, :, None], axis=1)
        nlm = None if nlm_position_SP is None else at(nlm_position_SP) @ params["nlm"]
        return SimpleNamespace(mlm_logits_SMV=at(mlm_position_SM) @ params["mlm"], nlm_logits_SPT=nlm)


def params_of(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"table": (9, D), "mlm": (D, V), "nlm": (D, T)}
    return {name: jnp.array(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


def batch_of(seed, accumulation, S, B=2, L=6, labelled=(0.7, 0.4)):
    """Returns a batch whose shards have very different numbers of labels."""
    rng = np.random.default_rng(seed)
    lead = (accumulation, S)
    ids = rng.integers(0, 9, (*lead, B, L)).astype(np.int32)
    none = np.zeros((*lead, B, L), np.int32)
    arrays = []
    for most, size, share in ((5, V, labelled[0]), (8, T, labelled[1])):
        labels = rng.integers(0, size, (*lead, most))
        share = share * rng.random((*lead, 1))
        arrays += [rng.integers(0, B * L, (*lead, most)), np.where(rng.random((*lead, most)) < share, labels, -1)]
    inputs = CharBertBatch(ids, None, np.ones((*lead, B, L), bool), none, none, none)
    return NoisyBatch(inputs, *(np.asarray(array, np.int32) for array in arrays))


def one(batch):
    return jax.tree.map(lambda x: x[0], batch)


def naive(params, batch):
    """The same in float64, label by label, of a micro-batch [S, ...]."""
    sums = dict.fromkeys(NoisySums._fields, 0.0)
    table = np.asarray(params["table"], np.float64)
    for s in range(len(batch.mlm_position_SM)):
        states = table[batch.inputs.ids_BL[s].reshape(-1)]
        for part, positions, labels in (
            ("mlm", batch.mlm_position_SM[s], batch.mlm_labels_SM[s]),
            ("nlm", batch.nlm_position_SP[s], batch.nlm_labels_SP[s]),
        ):
            for position, label in zip(positions, labels, strict=True):
                if label >= 0:
                    logits = states[position] @ np.asarray(params[part], np.float64)
                    sums[f"{part}_nats"] += math.log(np.exp(logits).sum()) - logits[label]
                    sums[f"{part}_labels"] += 1
                    sums[f"{part}_right"] += logits.argmax() == label
    return sums


@functools.partial(jax.jit, static_argnames="nlm")
def sums_of(params, batch, nlm=True):
    return noisy_sums(Linear(), params, batch, None, nlm=nlm)


def test_sums_equal_a_loop_over_labels():
    params, batch = params_of(), one(batch_of(3, 1, 12))
    got, want = sums_of(params, batch), naive(params, batch)
    assert 0 < want["nlm_right"] < want["nlm_labels"]
    assert 0 < want["mlm_right"] < want["mlm_labels"] != want["nlm_labels"]
    for name, value in want.items():
        np.testing.assert_allclose(getattr(got, name), value, rtol=1e-5, err_msg=name)
        assert getattr(got, name).dtype == np.float32
    assert [float(x) for x in label_weights(batch)] == [want["mlm_labels"], want["nlm_labels"]]


def test_without_noisy_language_modelling_there_is_one_part():
    params, batch = params_of(), one(batch_of(3, 1, 12))
    both, alone = (sums_of(params, batch, nlm) for nlm in (True, False))
    assert float(alone.mlm_nats) == float(both.mlm_nats)
    assert float(alone.nlm_labels) == float(alone.nlm_nats) == 0


SGD = optax.sgd(1.0)  # so that the update is the gradient


LOSS_SUMS = lambda params, batch, key: noisy_sums(Linear(), params, batch, key)
STEP = jax.jit(make_train_step(LOSS_SUMS, SGD, 0, weights=label_weights))


def step_of(batch, params):
    state, sums, norm = STEP(new_state(params, SGD), batch)
    return jax.tree.map(jnp.subtract, params, state.params), sums, norm


@jax.jit
@jax.value_and_grad
def both_means(params, batch):
    sums = noisy_sums(Linear(), params, batch, None)
    return sums.mlm_nats / jnp.maximum(sums.mlm_labels, 1) + sums.nlm_nats / jnp.maximum(sums.nlm_labels, 1)


@pytest.mark.parametrize("labelled", [(0.7, 0.4), (0.7, 0.0), (0.0, 0.4), (0.0, 0.0)])
def test_the_gradient_is_that_of_both_means_over_all_labels(labelled):
    params, batch = params_of(), batch_of(1, 1, 6, labelled=labelled)
    grads, sums, norm = step_of(batch, params)
    value, want = both_means(params, one(batch))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), grads, want)
    assert mean_loss(jax.device_get(sums), 2) == pytest.approx(float(value))
    assert math.isfinite(float(norm))  # without any label, too
    assert (float(norm) > 0) == any(labelled)


def test_micro_batches_sum_to_the_whole_batch():
    """However it is cut: a mean of means would show, since parts have very different numbers of labels."""
    params, batch = params_of(), batch_of(2, 1, 12)
    whole, sums, norm = step_of(batch, params)
    for pieces in (2, 4, 12):
        cut = jax.tree.map(lambda x, n=pieces: x.reshape(n, 12 // n, *x.shape[2:]), batch)
        counts = [label_weights(jax.tree.map(lambda x, i=i: x[i], cut)) for i in range(pieces)]
        assert len({(int(a), int(b)) for a, b in counts}) > 1
        grads, cut_sums, cut_norm = step_of(cut, params)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), grads, whole)
        np.testing.assert_allclose(cut_sums, sums, rtol=1e-5)
        assert float(cut_norm) == pytest.approx(float(norm), rel=1e-4)


def test_summary_adds_both_means():
    metrics = summarize(NoisySums(6.0, 4.0, 3.0, 2.0, 1.0, 2.0))
    want = {"loss": 3.0, "mlm_loss": 1.5, "mlm_accuracy": 0.25, "nlm_loss": 1.5, "nlm_accuracy": 1.0}
    assert metrics == pytest.approx(want)
    assert summarize(NoisySums(6.0, 4.0, 0.0, 0.0, 1.0, 0.0)) == {"loss": 1.5, "mlm_loss": 1.5, "mlm_accuracy": 0.25}
    with pytest.raises(ValueError, match="no subword was masked"):
        summarize(NoisySums(*[0.0] * 6))
