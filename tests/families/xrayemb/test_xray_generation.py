"""Tests the loss of XR-Dec: its sums over characters add up over batches, with both ways to weigh them."""

import jax
import numpy as np
import pytest

from charlm.families.xrayemb.decoder import Predicted
from charlm.families.xrayemb.generation_loss import generation_sums

CHARS = np.array([[6, 1, 2, 6, 0], [6, 3, 6, 0, 0], [0, 0, 0, 0, 0], [6, 5, 4, 3, 6]], np.int32)
LOGITS = np.random.default_rng(0).normal(size=(4, 4, 6)).astype(np.float32)


def predicted(logits, chars):
    return Predicted(logits.swapaxes(0, 1), chars[:, 1:].T)


sums_of = jax.jit(generation_sums)
gradient = jax.jit(jax.grad(lambda logits: generation_sums([predicted(logits, CHARS)]).nats))


def test_sums_are_those_of_every_character():
    sums = sums_of([predicted(LOGITS, CHARS)])
    log_probs = LOGITS - np.log(np.exp(LOGITS).sum(axis=-1, keepdims=True))
    places = [(u, t) for u in range(4) for t in range(4) if CHARS[u, t + 1]]
    assert len(places) == 9
    nats = -sum(log_probs[u, t, CHARS[u, t + 1] - 1] for u, t in places)
    right = sum(log_probs[u, t].argmax() == CHARS[u, t + 1] - 1 for u, t in places)
    np.testing.assert_allclose(sums, (nats, 9, right, 3), rtol=1e-6)
    assert [float(x) for x in sums.loss("mean")] == [float(sums.nats), 9]
    assert [float(x) for x in sums.loss("sum_per_word")] == [float(sums.nats), 3]
    with pytest.raises(ValueError, match="reduction='sum' is not one of mean, sum_per_word"):
        sums.loss("sum")


def test_sums_add_up_and_padding_has_no_gradient():
    whole = sums_of([predicted(LOGITS, CHARS)])
    parts = [sums_of([predicted(LOGITS[rows], CHARS[rows])]) for rows in (slice(0, 1), slice(1, 4))]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-6)
    stretches = [predicted(LOGITS[:, :2], CHARS[:, :3]), predicted(LOGITS[3:, 2:], CHARS[3:, 2:])]
    left_out = sums_of([predicted(LOGITS[:3, 2:], CHARS[:3, 2:])])
    np.testing.assert_allclose((sums := sums_of(stretches))[:3], np.subtract(whole, left_out)[:3], rtol=1e-6)
    assert sums.words == 3
    grad = np.abs(gradient(LOGITS)).max(axis=-1)
    np.testing.assert_array_equal(grad > 0, CHARS[:, 1:] > 0)
