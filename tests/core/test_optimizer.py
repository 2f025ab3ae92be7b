"""Tests the optimizer against plain NumPy: schedule, weight decay, clipping and AdamW's update."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from subword_cases import case, ours

from charlm.config import get_config
from charlm.core.optimizer import decayed, frozen, with_frozen, without_frozen
from charlm.core.sharding import path_name
from charlm.core.state import new_state
from charlm.core.step import make_train_step
from charlm.data.word_batch import reshape_batch
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.heads import CharBertForMaskedLM
from charlm.families.charbert.model import CharBertConfig
from charlm.families.family import family
from charlm.families.hlm.config import model_config
from charlm.families.hlm.model import HLMForMaskedLM
from charlm.families.lookup import objective_of
from charlm.training.run import optimizer_of, rate_of


def optim_config(steps=100, **changes):
    config = get_config()
    config.train.steps = steps
    config.optim.learning_rate, config.optim.warmup_steps = 0.1, 10
    config.optim.update(changes)
    return config


def spared(of):
    """What decay spares in pre-training of a family beside biases and LayerNorms."""
    config = get_config(of)
    return (*family(of).undecayed, *objective_of(config).idle)


def flat(tree):
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {0: 0.0, 5: 0.05, 10: 0.1, 55: 0.05, 91: 0.01, 100: 0.0, 200: 0.0}),
        ({"warmup_steps": 0}, {0: 0.1, 50: 0.05, 100: 0.0}),
        ({"schedule": "constant"}, {0: 0.0, 5: 0.05, 10: 0.1, 99: 0.1}),
        ({"schedule": "constant", "warmup_steps": 0}, {0: 0.1, 99: 0.1}),
        ({"warmup_steps": 200}, {0: 0.0, 100: 0.05}),  # a trial run shorter than its warm-up
    ],
)
def test_learning_rate(changes, expected):
    schedule = rate_of(optim_config(**changes))
    np.testing.assert_allclose([schedule(step) for step in expected], list(expected.values()), atol=1e-8)


@pytest.mark.parametrize("wiring", ["paper", "reference"])
def test_matrices_and_tables_decay_and_nothing_else(wiring):
    config = get_config()
    config.model.update({"wiring": wiring, "hidden": 16, "heads": 2, "intra_layers": 1, "inter_layers": 1})
    model, batch = HLMForMaskedLM(model_config(config)), reshape_batch(*[np.ones((1, 3, 4), np.uint16)] * 2)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), batch))["params"]
    decays = flat(decayed(params, spared("hlm")))
    stays = {name for name, yes in decays.items() if not yes}
    assert all(name.endswith(("bias", "scale")) or name.startswith("pooler/") for name in stays)
    assert {"pooler/dense/kernel", "pooler/dense/bias", "head/output_bias", "hlm/embed/norm/scale"} <= stays
    assert not any(name.endswith(("bias", "scale")) for name in decays.keys() - stays)
    assert {"hlm/embed/table/embedding", "head/output_kernel", "head/transform/kernel"} <= decays.keys() - stays
    assert any("ffn_in/kernel" in name for name in decays.keys() - stays)


def test_neither_a_pooler_nor_the_table_of_characters_decays():
    """Row 0 of CharBERT's table has no gradient and stays as it began."""
    shape = CharBertConfig(vocab_size=9, char_vocab_size=5, word_vocab_size=4, hidden=8, heads=2, layers=1, ffn=8,
                           max_positions=8, char_hidden=4, windows=(3,))  # fmt: skip
    ids = np.ones((1, 2), np.int32)
    init = lambda: CharBertForMaskedLM(shape).init(jax.random.key(0), CharBertBatch(ids, None, None, ids, ids, ids))
    params = jax.eval_shape(init)["params"]
    decays = flat(decayed(params, spared("charbert")))
    stays = {name for name, yes in decays.items() if not yes and not name.endswith(("bias", "scale"))}
    assert stays == {"charbert/pooler/dense/kernel", "charbert/char/table/embedding"}
    assert decays["charbert/embed/token/embedding"]
    # Fine-tuning has a gradient for the pooler, so that decays there.
    fine_tuned = flat(decayed(params, family("charbert").undecayed))
    assert {name for name in fine_tuned if fine_tuned[name] != decays[name]} == {"charbert/pooler/dense/kernel"}


def test_what_is_frozen_has_no_moments_no_gradient_and_stays():
    """Whatever the model: a BERT compiles in a third of the time of an HLM."""
    config = optim_config(warmup_steps=0, freeze=("^bert/embed", r"layer_\d+/ffn_in"))
    model, params = ours("bert")
    batch = case("bert").arrays["ids"]
    params = jax.tree.map(lambda x: x.at[..., :2].set(-0.0), params)  # adding 0 would change these bits

    def sums(p, ids, _):
        logits = model.apply({"params": p}, ids).logits
        return jnp.square(logits).sum(), jnp.float32(logits.size)

    optimizer = optimizer_of(config)
    start = new_state(params, optimizer)
    step = jax.jit(make_train_step(sums, optimizer, 0, config.optim.freeze))
    traced = step.trace(start, np.stack([batch, batch]))
    state, _, norm = traced.lower().compile()(start, np.stack([batch, batch]))
    after, before = flat(state.params), flat(params)
    stays = {name for name, yes in flat(frozen(params, config.optim.freeze)).items() if yes}
    assert {"bert/embed/token/embedding", "bert/encoder/layer_0/ffn_in/kernel"} <= stays
    moments = {re.sub(r"^.*/(mu|nu)/", "", name) for name in flat(state.opt_state) if re.search("/(mu|nu)/", name)}
    assert moments == before.keys() - stays
    assert any((np.signbit(before[name]) & (before[name] == 0)).any() for name in stays)
    # The compiler may leave out adding 0, but in the program as it is written what is frozen goes from in to out.
    program = traced.jaxpr.jaxpr
    given = dict(zip(flat(start), program.invars, strict=False))  # the batch comes after the state
    returned = dict(zip(flat(state), program.outvars, strict=False))
    for name, value in before.items():
        assert (returned[f"params/{name}"] is given[f"params/{name}"]) == (name in stays), name
        if name in stays:
            assert np.asarray(after[name]).tobytes() == np.asarray(value).tobytes(), name
        elif not name.startswith(("bert/pooler", "label")):  # which the loss does not read
            assert not np.array_equal(after[name], value), name
    mean = lambda p: sums(p, batch, None)[0] / sums(p, batch, None)[1]
    grads = flat(jax.jit(jax.grad(mean))(params))
    trained = [grads[name] for name in before.keys() - stays]
    np.testing.assert_allclose(norm, optax.tree.norm(trained), rtol=1e-5)  # frozen parameters do not count


@pytest.mark.parametrize(("family", "body"), [("bert", "^bert/"), ("gpt2", "^gpt2/(embed|decoder)")])
def test_subword_models_are_frozen_by_name_too(family, body):
    """The retrofit systems train beside a body that stays; a tied output layer stays with its table."""
    model, params = ours(family)
    config = optim_config(warmup_steps=0, freeze=(body,))
    z = case(family).arrays
    loss = lambda p: jnp.square(model.apply({"params": with_frozen(p, params)}, z["ids"]).logits).sum()
    optimizer = optimizer_of(config)
    grads = jax.jit(jax.grad(loss))(without_frozen(params, config.optim.freeze))
    assert flat(grads).keys() == {name for name in flat(params) if not re.search(body, name)}
    none = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(with_frozen(grads, none), optimizer.init(params), params)
    after, before = flat(optax.apply_updates(params, updates)), flat(params)
    moved = {name for name, value in before.items() if not np.array_equal(after[name], value)}
    assert moved
    assert not any(re.search(body, name) for name in moved)


@pytest.mark.parametrize(
    ("pattern", "message"), [("hlm/embedd", "is found in no name of a parameter"), ("(", "is not a regular expression")]
)
def test_what_cannot_be_frozen_is_named(pattern, message):
    with pytest.raises(ValueError, match=rf"optim\.freeze='{re.escape(pattern)}' {message}"):
        optimizer_of(optim_config(freeze=(pattern,))).init({"hlm": {"embed": jnp.zeros(2)}})


def adamw(config, params, grads_by_step):
    """AdamW with clipping, decoupled decay of matrices and the schedule, in float64."""
    c = config.optim
    params = {name: np.float64(value) for name, value in params.items()}
    m, v = ({name: np.zeros_like(value) for name, value in params.items()} for _ in range(2))
    for t, grads in enumerate(grads_by_step, start=1):
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        scale = min(1.0, c.clip_norm / norm) if c.clip_norm else 1.0
        rate = float(rate_of(config)(t - 1))
        for name, g in grads.items():
            m[name] = c.b1 * m[name] + (1 - c.b1) * g * scale
            v[name] = c.b2 * v[name] + (1 - c.b2) * (g * scale) ** 2
            step = (m[name] / (1 - c.b1**t)) / (np.sqrt(v[name] / (1 - c.b2**t)) + c.eps)
            decay = c.weight_decay * params[name] if name == "kernel" else 0.0
            params[name] = params[name] - rate * (step + decay)
    return params


# A large eps, so that the size of a gradient shows in the update: plain Adam hides what clipping does.
@pytest.mark.parametrize(("clip_norm", "eps"), [(1.0, 0.5), (0.0, 0.5), (1.0, 1e-8), (1e6, 1e-8)])
def test_updates_are_those_of_plain_numpy(clip_norm, eps):
    config = optim_config(clip_norm=clip_norm, eps=eps, weight_decay=0.3, b1=0.8, b2=0.95, warmup_steps=2)
    rng = np.random.default_rng(0)
    draw = lambda: {"kernel": rng.normal(size=(3, 2)), "bias": rng.normal(size=2)}
    start, grads_by_step = draw(), [draw() for _ in range(4)]
    optimizer = optimizer_of(config)
    params = jax.tree.map(jnp.float32, start)
    state = optimizer.init(params)
    for grads in grads_by_step:
        updates, state = optimizer.update(jax.tree.map(jnp.float32, grads), state, params)
        params = optax.apply_updates(params, updates)
    expected = adamw(config, start, grads_by_step)
    for name, value in expected.items():
        np.testing.assert_allclose(params[name], value, rtol=2e-5)
        assert np.abs(value - start[name]).max() > 0.01


def test_gradients_are_cut_together_to_the_norm():
    config = optim_config(clip_norm=0.5, b1=0.0, b2=0.0, eps=1e6, weight_decay=0.0, warmup_steps=0)
    config.optim.schedule = "constant"  # with such an eps an update is -rate * gradient / eps
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    optimizer = optimizer_of(config)
    updates, _ = optimizer.update(grads, optimizer.init(grads), grads)
    seen = jax.tree.map(lambda u: -u * 1e6 / 0.1, updates)
    np.testing.assert_allclose(seen["a"], [0.3, 0.0], rtol=1e-5)
    np.testing.assert_allclose(seen["b"], [[0.4]], rtol=1e-5)
