"""Tests the optimizer of fine-tuning against plain NumPy: schedule, decay, clipping, and the rate of new parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util

from charlm.config.finetuning import get_config
from charlm.families.family import family
from charlm.finetune.learning import optimizer_of, rate_of

SHAPES = {
    "bert/dense/kernel": (3, 2), "bert/dense/bias": (2,), "bert/norm/scale": (2,), "bert/norm/bias": (2,),
    "bert/embed/embedding": (4, 3), "bert/pooler/kernel": (2, 2), "label/kernel": (2, 3), "label/bias": (3,),
}  # fmt: skip
NEW = {"bert/pooler/kernel", "label/kernel", "label/bias"}
DECAYS = {"bert/dense/kernel", "bert/embed/embedding", "bert/pooler/kernel", "label/kernel"}
STEPS = 5


def optim_config(**changes):
    config = get_config("classification")
    config.optim.learning_rate = 0.1
    config.optim.update(changes)
    return config


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {0: 0.0, 5: 0.05, 10: 0.1, 55: 0.05, 91: 0.01, 100: 0.0, 200: 0.0}),  # a tenth of the steps warms up
        ({"warmup_share": 0.0}, {0: 0.1, 50: 0.05, 100: 0.0}),
        ({"warmup_share": 0.25}, {0: 0.0, 5: 0.02, 25: 0.1, 70: 0.04, 100: 0.0}),
        ({"schedule": "cosine", "warmup_share": 0.0}, {0: 0.1, 25: 0.05 * (1 + 2**-0.5), 50: 0.05, 100: 0.0}),
        ({"schedule": "constant"}, {0: 0.0, 5: 0.05, 10: 0.1, 99: 0.1, 100: 0.1}),
        ({"schedule": "constant", "warmup_share": 0.0}, {0: 0.1, 99: 0.1}),
        ({"schedule": "wsd"}, {0: 0.0, 5: 0.05, 10: 0.1, 80: 0.1, 90: 0.05, 95: 0.025, 100: 0.0, 200: 0.0}),
        ({"schedule": "wsd", "cooldown_share": 0.5, "warmup_share": 0.0}, {0: 0.1, 50: 0.1, 75: 0.05, 100: 0.0}),
        ({"schedule": "wsd", "cooldown_share": 0.95, "warmup_share": 0.2}, {20: 0.1, 60: 0.05, 100: 0.0}),
        ({"schedule": "wsd", "cooldown_share": 0.0}, {99: 0.1, 100: 0.0}),
    ],
)
def test_learning_rate(changes, expected):
    schedule = rate_of(optim_config(**changes), 100)
    np.testing.assert_allclose([schedule(step) for step in expected], list(expected.values()), atol=1e-8)


def test_the_rate_is_the_peak_s_that_was_asked_for_and_of_a_single_step_there_is_one():
    assert rate_of(optim_config(), 100, 7.0)(10) == pytest.approx(7.0)
    assert rate_of(optim_config(), 1)(0) == pytest.approx(0.1)  # a tenth of a step does not warm up
    assert rate_of(optim_config(warmup_share=0.9), 1)(0) == 0.0


def rate_at(optim, step, peak):
    """The schedule by its definition."""
    warmup = round(optim.warmup_share * STEPS)
    if step < warmup:
        return peak * step / warmup
    return peak if optim.schedule == "constant" else peak * (STEPS - step) / (STEPS - warmup)


def adamw(optim, params, grads_by_step, new, stays=()):
    """AdamW with clipping, decoupled decay of matrices, two peaks of the rate, in float64."""
    params = dict(params)
    m, v = ({name: np.zeros_like(value) for name, value in params.items()} for _ in range(2))
    for t, grads in enumerate(grads_by_step, start=1):
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        scale = min(1.0, optim.clip_norm / norm) if optim.clip_norm else 1.0
        for name, g in grads.items():
            if name in stays:
                continue
            peak = optim.head_learning_rate if optim.head_learning_rate and name in new else optim.learning_rate
            m[name] = optim.b1 * m[name] + (1 - optim.b1) * g * scale
            v[name] = optim.b2 * v[name] + (1 - optim.b2) * (g * scale) ** 2
            update = (m[name] / (1 - optim.b1**t)) / (np.sqrt(v[name] / (1 - optim.b2**t)) + optim.eps)
            decay = optim.weight_decay * params[name] if name in DECAYS else 0.0
            params[name] = params[name] - rate_at(optim, t - 1, peak) * (update + decay)
    return params


def trained(config, start, grads_by_step):
    """Returns the parameters after the steps, and all changes of each parameter by step."""
    tree = lambda flat: traverse_util.unflatten_dict(jax.tree.map(jnp.float32, flat), sep="/")
    optimizer = optimizer_of(config, STEPS, family("bert"), NEW)
    params = tree(start)
    state = optimizer.init(params)
    for grads in grads_by_step:
        updates, state = optimizer.update(tree(grads), state, params)
        params = optax.apply_updates(params, updates)
    return traverse_util.flatten_dict(params, sep="/")


def drawn(stays=()):
    rng = np.random.default_rng(0)
    draw = lambda: {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    start, grads = draw(), [draw() for _ in range(STEPS)]
    return start, [{n: np.zeros_like(g) if n in stays else g for n, g in of.items()} for of in grads]


# A large eps, so that the size of a gradient shows in the update: plain Adam hides what clipping does.
@pytest.mark.parametrize(
    "changes",
    [
        {"eps": 0.5},
        {"eps": 0.5, "clip_norm": 0.0},
        {"clip_norm": 1e6},
        {"eps": 0.5, "head_learning_rate": 0.3},
        {"eps": 0.5, "head_learning_rate": 0.3, "schedule": "constant", "warmup_share": 0.0},
        {"weight_decay": 0.0},
    ],
    ids=lambda changes: "-".join(f"{name}={value}" for name, value in changes.items()),
)
def test_updates_are_those_of_plain_numpy(changes):
    config = optim_config(**{"weight_decay": 0.3, "b1": 0.8, "b2": 0.95, "warmup_share": 0.4} | changes)
    start, grads_by_step = drawn()
    found, expected = trained(config, start, grads_by_step), adamw(config.optim, start, grads_by_step, NEW)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
        assert np.abs(value - start[name]).max() > 0.01


@pytest.mark.parametrize("head_learning_rate", [0.0, 0.3])
def test_what_is_frozen_stays_to_the_bit_and_the_rest_is_trained_as_ever(head_learning_rate):
    changes = {"freeze": ("^bert/(embed|dense)", "label/bias"), "head_learning_rate": head_learning_rate, "eps": 0.5}
    config = optim_config(weight_decay=0.3, **changes)
    stays = {"bert/embed/embedding", "bert/dense/kernel", "bert/dense/bias", "label/bias"}
    start, grads_by_step = drawn(stays)  # no gradient of theirs is computed
    found, expected = trained(config, start, grads_by_step), adamw(config.optim, start, grads_by_step, NEW, stays)
    for name, value in expected.items():
        if name in stays:
            np.testing.assert_array_equal(found[name], np.float32(start[name]))
        else:
            np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
            assert np.abs(value - start[name]).max() > 0.01
