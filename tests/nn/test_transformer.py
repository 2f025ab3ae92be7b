"""Tests HLM's encoder: its entry points agree, remat and kept projections change nothing, initialisers are right."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from flax import traverse_util
from programs import initial

from charlm.nn import embed
from charlm.nn.attention import PROJECTED
from charlm.nn.embed import CharEmbed, gelu
from charlm.nn.kernels import Machine
from charlm.nn.transformer import Encoder, EncoderConfig, EncoderLayer

L = 7
CONFIG = EncoderConfig(
    layers=2, hidden=16, heads=2, ffn=24, max_distance=6, position_buckets=4, dropout=0.0, attention_dropout=0.0,
    initializer="torch",
)  # fmt: skip
MASK = np.array([[True] * L, [True] * 4 + [False] * 3])


def states(seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (2, L, CONFIG.hidden))


@functools.cache
def parameters(config: EncoderConfig = CONFIG):
    return initial(Encoder(config), states(), MASK, seed=1)


@functools.partial(jax.jit, static_argnames="config")
def run(config: EncoderConfig, params, x: jax.Array, mask: np.ndarray) -> jax.Array:
    return Encoder(config).apply({"params": params}, x, mask)


@pytest.mark.parametrize("layers", [1, 2])
def test_lower_then_last_is_the_head_of_the_whole(layers):
    config = dataclasses.replace(CONFIG, layers=layers)
    model, variables = Encoder(config), {"params": parameters(config)}
    lower = jax.jit(lambda v, x: model.apply(v, x, MASK, method="lower"))(variables, states())
    assert np.array_equal(lower, states()) == (layers == 1)
    last = jax.jit(lambda v, x, n: model.apply(v, x, MASK, n, method="last"), static_argnums=2)
    whole = run(config, variables["params"], states(), MASK)
    for queries in (1, 3, L):
        np.testing.assert_allclose(last(variables, lower, queries), whole[:, :queries], atol=1e-6)


def test_every_layer_matters():
    whole = run(CONFIG, parameters(), states(), MASK)
    for index in range(CONFIG.layers):
        params = dict(parameters())
        params[f"layer_{index}"] = jax.tree.map(lambda leaf: 2 * leaf + 0.1, params[f"layer_{index}"])
        assert np.abs(run(CONFIG, params, states(), MASK) - whole).max() > 1e-2, index


def test_remat_gives_the_same_outputs_and_gradients():
    config = dataclasses.replace(CONFIG, layers=1, dropout=0.3, attention_dropout=0.3)
    weight = states(5)

    def outcome(config):
        @jax.jit
        def value_and_grad(params, x):
            def loss(params, x):
                out = Encoder(config).apply(
                    {"params": params}, x, MASK, deterministic=False, rngs={"dropout": jax.random.key(3)}
                )
                return (out * weight).sum(), out

            return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)

        return value_and_grad(parameters(config), states())

    remat = dataclasses.replace(config, remat=True)
    assert jax.tree.structure(parameters(remat)) == jax.tree.structure(parameters(config))
    jax.tree.map(np.testing.assert_array_equal, parameters(remat), parameters(config))
    (value, out), grads = outcome(config)
    (value_remat, out_remat), grads_remat = outcome(remat)
    np.testing.assert_allclose(value_remat, value, rtol=1e-5)
    np.testing.assert_allclose(out_remat, out, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), grads_remat, grads)
    assert max(np.abs(g).max() for g in jax.tree.leaves(grads)) > 1


def test_remat_keeps_less_for_the_backward_pass():
    def stored(config):
        model = Encoder(dataclasses.replace(config, layers=4))
        params = jax.eval_shape(model.init, jax.random.key(0), states(), MASK)["params"]
        backward = jax.eval_shape(lambda p: jax.vjp(lambda p: model.apply({"params": p}, states(), MASK), p)[1], params)
        return sum(leaf.size for leaf in jax.tree.leaves(backward))

    assert stored(dataclasses.replace(CONFIG, remat=True)) < 0.8 * stored(CONFIG)


# ---- Projections of positions, kept ----


def kept(config: EncoderConfig, params):
    project = lambda params: Encoder(config).apply({"params": params}, method="project_positions", mutable=PROJECTED)
    return jax.jit(project)(params)[1]


@pytest.mark.parametrize("changes", [{}, again({"remat": True}), again({"dtype": jnp.bfloat16})])
def test_kept_projections_change_nothing(changes):
    config = dataclasses.replace(CONFIG, **changes)
    found, params = kept(config, parameters()), parameters()
    shapes = {leaf.shape for leaf in jax.tree.leaves(found)}
    assert shapes == {(CONFIG.heads, 2 * CONFIG.position_buckets, CONFIG.hidden // CONFIG.heads)}
    assert len(jax.tree.leaves(found)) == 2 * CONFIG.layers
    apply = jax.jit(Encoder(config).apply, static_argnames=("method", "queries"))
    atol = 1e-6 if config.dtype == jnp.float32 else 0.04
    # Windows that use few rows, the first position alone, and one that uses the outermost rows again and again.
    for length, more in ((3, {}), (L, {"method": "last", "queries": 1}), (13, {})):
        x, mask = jax.random.normal(jax.random.key(length), (2, length, CONFIG.hidden)), np.ones((2, length), bool)
        want, got = (apply({"params": params} | extra, x, mask, **more) for extra in ({}, found))
        np.testing.assert_allclose(*(np.asarray(y, np.float32) for y in (got, want)), atol=atol)


def test_kept_projections_are_read_without_dropout_only():
    config = dataclasses.replace(CONFIG, dropout=0.3)
    found = kept(config, jax.tree.map(lambda leaf: 2 * leaf, parameters()))  # of other parameters, so that it shows
    apply = lambda extra, deterministic: Encoder(config).apply(
        {"params": parameters()} | extra, states(), MASK, deterministic, rngs={"dropout": jax.random.key(1)}
    )
    assert np.abs(apply(found, True) - apply({}, True)).max() > 1e-2
    np.testing.assert_array_equal(apply(found, False), apply({}, False))


def test_projections_are_no_part_of_a_model():
    assert set(jax.eval_shape(Encoder(CONFIG).init, jax.random.key(1), states(), MASK)) == {"params"}


# ---- GELU ----


@pytest.mark.parametrize("platform", ["cpu", "gpu"])  # which differ below float32
def test_gelu_and_its_slope_are_exact(platform, monkeypatch):
    monkeypatch.setattr(embed, "this_machine", lambda: Machine(platform))
    x = np.concatenate([np.linspace(-20, 20, 4000), [-5.5, -5.499999, -1e-30]])
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    slope = below + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(gelu(jnp.asarray(x, jnp.float32)), x * below, atol=6e-7, rtol=3e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(gelu))(jnp.asarray(x, jnp.float32)), slope, atol=1e-6)
    half = jnp.asarray(x[x > -5], jnp.bfloat16)  # right to some bits also where it is small
    rounded = np.asarray(half, np.float64)
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in rounded])
    want, slope = rounded * below, below + rounded * np.exp(-(rounded**2) / 2) / math.sqrt(2 * math.pi)
    lost = 6e-7 if platform == "cpu" else 0  # as in float32
    np.testing.assert_allclose(np.asarray(gelu(half), np.float64), want, rtol=0.06, atol=lost)
    assert gelu(half).dtype == jnp.bfloat16
    value, back = jax.vjp(gelu, half)
    np.testing.assert_allclose(np.asarray(back(jnp.ones_like(value))[0], np.float64), slope, atol=4e-3)
    assert [kept.dtype for kept in jax.tree.leaves(back) if kept.size > 1] == [jnp.bfloat16]  # the array and no other
    np.testing.assert_array_equal(gelu(jnp.asarray([np.inf, np.nan])), [np.inf, np.nan])


WIDE = dataclasses.replace(CONFIG, layers=1, hidden=64, ffn=256, heads=4, position_buckets=32)


@functools.cache
def wide(initializer: str) -> dict[str, np.ndarray]:
    config = dataclasses.replace(WIDE, initializer=initializer)
    params = initial(Encoder(config), jnp.zeros((1, L, 64)), MASK[:1], seed=2)
    return traverse_util.flatten_dict(jax.tree.map(np.asarray, params), sep="/")


def test_bert_initialiser_is_normal_with_zero_biases():
    for name, leaf in wide("bert").items():
        if name.endswith(("kernel", "embedding")):
            np.testing.assert_allclose(leaf.std(), 0.02, rtol=0.06, err_msg=name)
            np.testing.assert_allclose(leaf.mean(), 0, atol=0.002, err_msg=name)
            assert leaf.max() > 0.05, name  # a normal has tails, a uniform of this width has none
        else:
            np.testing.assert_array_equal(leaf, np.full_like(leaf, name.endswith("scale")), err_msg=name)


def test_torch_initialiser_is_uniform_within_its_bounds_biases_included():
    params = wide("torch")
    for name, leaf in params.items():
        if "norm" in name:
            np.testing.assert_array_equal(leaf, np.full_like(leaf, name.endswith("scale")), err_msg=name)
        elif name.endswith("embedding"):
            np.testing.assert_allclose(leaf.std(), 1, rtol=0.06, err_msg=name)
        else:
            bound = 1 / math.sqrt(params[name.rsplit("/", 1)[0] + "/kernel"].shape[0])
            assert np.abs(leaf).max() <= bound, name
            np.testing.assert_allclose(leaf.std(), bound / math.sqrt(3), rtol=0.25, err_msg=name)
            np.testing.assert_allclose(np.abs(leaf).max(), bound, rtol=0.1, err_msg=name)


def test_bfloat16_computes_near_float32_and_keeps_float32_parameters():
    half = dataclasses.replace(CONFIG, dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(parameters(half))} == {np.dtype("float32")}
    jax.tree.map(np.testing.assert_array_equal, parameters(half), parameters())
    exact = run(CONFIG, parameters(), states(), MASK)
    got = run(half, parameters(), states().astype(jnp.bfloat16), MASK)
    assert got.dtype == jnp.bfloat16
    # Two post-norm layers, outputs of size 1, each rounded to 8 bits a handful of times.
    error = np.abs(np.asarray(got, np.float32) - exact)[MASK]
    assert 0 < error.max() < 0.08
    assert error.mean() < 0.015


def test_padding_never_changes_a_valid_state():
    want = run(CONFIG, parameters(), states(), MASK)
    more = jnp.concatenate([states(), 50 * states(4)[:, :3]], axis=1)
    got = run(CONFIG, parameters(), more, np.pad(MASK, ((0, 0), (0, 3))))
    np.testing.assert_allclose(np.asarray(got)[:, :L][MASK], np.asarray(want)[MASK], atol=1e-5)


# ---- Dropout ----


def norm(x, params):
    """LayerNorm in plain numpy."""
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + CONFIG.epsilon)
    return normed * np.asarray(params["scale"]) + np.asarray(params["bias"])


def layer(x, rate, deterministic=False, changes=lambda params: params):
    """Returns one layer's states of `x`, and its parameters."""
    model = EncoderLayer(dataclasses.replace(CONFIG, dropout=rate))
    params = changes(dict(parameters()["layer_0"]))
    table = jax.random.normal(jax.random.key(2), (2 * CONFIG.position_buckets, CONFIG.hidden))
    call = lambda x: model.apply(
        {"params": params}, x, MASK, table, L, deterministic, rngs={"dropout": jax.random.key(4)}
    )
    return np.asarray(jax.jit(call)(x)), params


def test_what_drops_out_altogether_leaves_the_residual_branch_alone():
    """At rate 1 neither attention nor feed-forward is left: two LayerNorms of the input."""
    out, params = layer(states(), 1.0)
    expected = norm(norm(states(), params["attention_norm"]), params["ffn_norm"])
    np.testing.assert_allclose(out, expected, atol=1e-5)
    kept, _ = layer(states(), 1.0, deterministic=True)
    assert np.abs(kept - expected).max() > 0.1
    np.testing.assert_array_equal(kept, layer(states(), 0.0)[0])


@pytest.mark.parametrize("branch", ["attention", "ffn"])
def test_each_branch_drops_out_at_the_rate_before_it_is_added(branch):
    """With zero input, one branch that says 1 everywhere and norms that change nothing, the sum is the mask itself."""

    def alone(params):
        silent = jax.tree.map(jnp.zeros_like, params)
        loud, inner = ("attention", "output") if branch == "attention" else ("ffn_out", None)
        bias = lambda part: part | {"bias": jnp.ones_like(part["bias"])}
        silent[loud] = silent[loud] | {inner: bias(silent[loud][inner])} if inner else bias(silent[loud])
        ones = {"scale": jnp.ones(CONFIG.hidden), "bias": jnp.zeros(CONFIG.hidden)}
        return silent | {"attention_norm": ones, "ffn_norm": ones}

    rate, zeros = 0.25, jnp.zeros((2, L, CONFIG.hidden))
    out, _ = layer(zeros, rate, changes=alone)
    # A row holds 0 where it was dropped and 1 / 0.75 elsewhere; after LayerNorm, two values with the same signs.
    dropped = out < 0
    assert 0.15 < dropped.mean() < 0.35
    expected = norm(np.where(dropped, 0.0, 1 / (1 - rate)), {"scale": np.ones(1), "bias": np.zeros(1)})
    again = norm(expected, {"scale": np.ones(1), "bias": np.zeros(1)}) if branch == "attention" else expected
    np.testing.assert_allclose(out, again, atol=1e-3)
    assert len({row.tobytes() for row in dropped.reshape(-1, CONFIG.hidden)}) > L  # drawn for every position


def test_characters_drop_out_after_their_norm():
    model = CharEmbed(9, 64, CONFIG.epsilon, 0.25, "torch", jnp.float32)
    chars = jnp.arange(9).repeat(4)
    variables = model.init(jax.random.key(0), chars, True)
    whole = model.apply(variables, chars, True)
    out = np.asarray(model.apply(variables, chars, False, rngs={"dropout": jax.random.key(1)}))
    dropped = out == 0
    assert 0.2 < dropped.mean() < 0.3
    np.testing.assert_allclose(out, np.where(dropped, 0, whole / 0.75), rtol=1e-6)
